"""Tenants, namespaces and partitioned topics from the names of topics."""

import msgspec

from magnetar.broker.policies.records import Policies
from magnetar.broker.policies.values import TenantInfo
from magnetar.broker.rebuilding import rebuild_records
from magnetar.broker.topics.catalog import PartitionedTopic, partitioned_path
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.embedded.verify.identities import LedgerIdentity


def ledger(ledger_id, topic):
    name = TopicName.parse(topic).persistence_name
    properties = {"component": "managed-ledger", "pulsar/managed-ledger": name}
    return LedgerIdentity(ledger_id, properties, 1, in_file=True)


TOPICS = [
    "persistent://t/n/plain",
    "persistent://t/n/many-partition-0",
    "persistent://t/n/many-partition-6",
    "persistent://other/m/with spaces",
]
LEDGERS = [ledger(number, topic) for number, topic in enumerate(TOPICS)]


def test_everything_lost():
    records, said = rebuild_records({}, LEDGERS, 1)
    found = dict(records)
    assert msgspec.json.decode(found["/admin/policies/t"], type=TenantInfo).admin_roles == []
    policies = msgspec.json.decode(found["/admin/policies/other/m"], type=Policies)
    assert policies.replication_clusters == ["standalone"]
    assert policies.bundles.num_bundles == 4
    many = found[partitioned_path(TopicName.parse("persistent://t/n/many"))]
    assert msgspec.json.decode(many, type=PartitionedTopic).partitions == 7
    assert "persistent://t/n/many: listed again with 7 partitions, there may have been more" in said


def test_remaining_metadata_stay():
    nodes = {
        "/admin/policies/t": (b"kept", 1),
        "/admin/policies/t/n": (b"kept", 1),
        "/admin/clusters/west": (b"{}", 0),
        partitioned_path(TopicName.parse("persistent://t/n/many")): (b"kept", 0),
    }
    found = dict(rebuild_records(nodes, LEDGERS, 1)[0])
    assert not set(found) & set(nodes)
    assert msgspec.json.decode(found["/admin/policies/other"], type=TenantInfo).allowed_clusters == ["west"]
