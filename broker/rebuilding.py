"""Rebuilds the records of tenants, namespaces and partitioned topics when only the topics' names are left. Pure.

For `magnetar verify --repair metadata`: a broker finds a topic through its namespace, so the record of the namespace
must exist. Rebuilt records have defaults and no grants: operators set lost policies, permissions and schemas again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from magnetar.broker.policies.records import Policies, even_bundles
from magnetar.broker.policies.values import TenantInfo
from magnetar.broker.topics.catalog import PartitionedTopic, partitioned_path
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.managed.ledger_list import ROOT
from magnetar.storage.managed.rebuild import LedgerOrigin, rebuild_managed_ledgers

Nodes = Mapping[str, tuple[bytes, int]]
Records = list[tuple[str, bytes]]

_CLUSTERS: Final = "/admin/clusters/"
_POLICIES: Final = "/admin/policies"
_CLUSTER: Final = "standalone"
_BUNDLES: Final = 4


def rebuild_records(nodes: Nodes, ledgers: Sequence[LedgerOrigin], now_ms: int) -> tuple[Records, list[str]]:
    """(records to write, lines of the report): ledger lists and cursors, then the records that lead a
    broker to them.
    """
    records, said = rebuild_managed_ledgers(nodes, ledgers, now_ms)
    paths = {*nodes, *(path for path, _ in records)}
    topics = [name for path in sorted(paths) if (name := _topic_of(path)) is not None]
    clusters = sorted(path.removeprefix(_CLUSTERS) for path in nodes if path.startswith(_CLUSTERS)) or [_CLUSTER]
    for namespace in sorted({topic.namespace for topic in topics}):
        tenant = namespace.partition("/")[0]
        if f"{_POLICIES}/{tenant}" not in paths:
            paths.add(f"{_POLICIES}/{tenant}")
            info = TenantInfo(admin_roles=[], allowed_clusters=clusters)
            records.append((f"{_POLICIES}/{tenant}", msgspec.json.encode(info)))
            said.append(f"tenant {tenant}: made anew, without administrators")
        if f"{_POLICIES}/{namespace}" not in paths:
            policies = Policies(replication_clusters=clusters, bundles=even_bundles(_BUNDLES))
            records.append((f"{_POLICIES}/{namespace}", msgspec.json.encode(policies)))
            said.append(f"namespace {namespace}: made anew with default policies and no permissions")
    partitioned, text = _partitioned(topics, paths)
    return records + partitioned, said + text


def _partitioned(topics: Sequence[TopicName], paths: set[str]) -> tuple[Records, list[str]]:
    """Find partitioned topics by their partitions; the highest partition determines the number of partitions."""
    counts: dict[str, tuple[TopicName, int]] = {}
    for topic in topics:
        if topic.partition >= 0:
            base = topic.base
            counts[str(base)] = (base, max(topic.partition + 1, counts.get(str(base), (base, 0))[1]))
    records: Records = []
    said = []
    for base, count in counts.values():
        path = partitioned_path(base)
        if path not in paths:
            records.append((path, msgspec.json.encode(PartitionedTopic(count))))
            said.append(f"{base}: listed again with {count} partitions, there may have been more")
    return records, said


def _topic_of(path: str) -> TopicName | None:
    """Return the topic of a ledger list's path; None for the path of a cursor or of any other record."""
    if not path.startswith(ROOT + "/"):
        return None
    return TopicName.from_persistence_name(path.removeprefix(ROOT + "/"))
