"""Policies of topics as events: two members over one broker, which serves the topic of events to both."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest

from magnetar.broker.broker import Broker
from magnetar.broker.clustering.cluster_topic_policies import ClusterTopicPolicies
from magnetar.broker.clustering.peer_client import PeerClient, peer_credentials
from magnetar.broker.clustering.policy_log import events_topic
from magnetar.broker.policies.effective import NO_TOPIC_POLICIES
from magnetar.broker.policies.records import TopicPolicies
from magnetar.broker.settings import Settings
from magnetar.broker.tasks import TaskSet
from magnetar.broker.topics.catalog import PartitionedTopic
from magnetar.client.errors import RefusedError
from magnetar.client.readers import Readers
from magnetar.protocol.topic_name import TopicName
from tests.storage.metadata_contract import until

NAMESPACE = "public/default"
NAME = f"persistent://{NAMESPACE}/t"


class Member:
    """One broker's view of the policies; the topics are those of the broker that serves them."""

    def __init__(self, broker):
        self.broker = broker
        self.changes = []
        self.reports_lag = False
        """Whether this broker has no report yet of the deletion of the topic of events."""
        self.tasks = TaskSet()
        peers = PeerClient(broker.settings, lambda: broker.listeners.addresses.own)
        self.policies = ClusterTopicPolicies("c1", peers, self, self.changes.append, self.tasks)

    def events_exist(self, namespace):
        catalog, name = self.broker.stored.catalog, events_topic(namespace)
        return self.reports_lag or catalog.exists(name) or catalog.partitioned(name) is not None

    def events_created(self, topic):
        self.broker.stored.catalog.created(topic)

    async def events_created_ms(self, topic):
        loaded = self.broker.topics.loaded.get(str(topic))
        return 0 if loaded is None else loaded.ledger.created_ms

    async def events_schemas(self, topic):
        return await self.broker.stored.schemas.history(topic)

    async def ready(self):
        waiting = self.policies.ready(NAMESPACE)
        if waiting is not None:
            await waiting

    async def close(self):
        await self.policies.close()
        await self.tasks.close()


@pytest.fixture
async def broker(tmp_path):
    settings = dataclasses.replace(
        Settings(), data_dir=str(tmp_path / "data"), broker_service_port=0, web_service_port=None
    )
    started = Broker(settings)
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
async def members(broker):
    made = [Member(broker), Member(broker)]
    yield made
    for each in made:
        await each.close()


def with_producers(number):
    return lambda old: msgspec.structs.replace(old, max_producers=number)


async def test_a_namespace_without_events_has_no_policies_and_needs_no_topic(members, broker):
    assert members[0].policies.ready(NAMESPACE) is None
    assert NAME not in members[0].policies
    await members[0].policies.delete(NAME)
    assert not members[0].events_exist(NAMESPACE)


async def test_a_broker_knows_its_own_change_at_once_and_another_brokers_soon(members):
    one, two = members
    assert two.policies.ready(NAMESPACE) is None
    stored = await one.policies.update(NAME, with_producers(5), NO_TOPIC_POLICIES)
    assert stored.max_producers == 5
    assert one.policies.get(NAME) is one.policies.get(NAME)
    two.policies.appeared(NAMESPACE)
    await two.ready()
    assert two.policies.get(NAME).max_producers == 5
    await two.policies.update(NAME, lambda old: msgspec.structs.replace(old, max_consumers=7))
    await until(lambda: one.policies.get(NAME).max_consumers == 7)
    assert one.policies.get(NAME).max_producers == 5
    assert TopicName.parse(NAME) in one.changes
    await one.policies.delete(NAME)
    assert NAME not in one.policies
    await until(lambda: NAME not in two.policies)


async def test_a_change_is_based_on_everything_stored_before_it(members):
    one, two = members
    await one.policies.update(NAME, with_producers(1), NO_TOPIC_POLICIES)
    for number in range(2, 8):
        member = members[number % 2]
        await member.policies.update(
            NAME, lambda old, n=number: msgspec.structs.replace(old, max_producers=old.max_producers + n)
        )
    assert two.policies.get(NAME).max_producers == sum(range(1, 8))
    await asyncio.gather(
        *(one.policies.update(f"{NAME}{n}", with_producers(n), NO_TOPIC_POLICIES) for n in range(5)),
        *(
            one.policies.update(
                NAME, lambda old: msgspec.structs.replace(old, max_consumers=(old.max_consumers or 0) + 1)
            )
            for _ in range(5)
        ),
    )
    assert one.policies.get(NAME).max_consumers == 5
    await until(lambda: two.policies.get(NAME).max_consumers == 5)


async def test_policies_for_all_clusters_and_of_non_persistent_topics(members):
    one, _ = members
    name = f"non-persistent://{NAMESPACE}/n"
    everywhere = TopicPolicies(max_producers=9)
    await one.policies.update(name, lambda old: old.with_scope(everywhere, all_clusters=True), NO_TOPIC_POLICIES)
    found = one.policies.get(name)
    assert found.max_producers is None
    assert found.merged().max_producers == 9


async def test_the_log_is_read_again_where_it_was_left(members, broker):
    one, two = members
    await one.policies.update(NAME, with_producers(1), NO_TOPIC_POLICIES)
    await two.ready()
    await broker.topics.unload(events_topic(NAMESPACE))
    await one.policies.update(NAME, with_producers(2))
    await until(lambda: two.policies.get(NAME).max_producers == 2)


async def test_a_log_that_lost_one_partition_leaves_no_reader_of_the_others_behind(members, broker):
    one, _ = members
    events = events_topic(NAMESPACE)
    await broker.stored.catalog.create_partitioned(events, PartitionedTopic(partitions=2))
    parts = [events.partition_name(index) for index in range(2)]
    topics = [await broker.topics.get(part, create=True) for part in parts]
    await one.ready()

    def readers():
        return sum(len(each.consumers) for each in topics[1].subscriptions.by_name.values())

    assert readers() == 1
    for number in range(3):
        await broker.topics.unload(parts[0])
        await one.policies.update(NAME, with_producers(number), NO_TOPIC_POLICIES)
    await until(lambda: readers() == 1)


async def test_a_refusal_to_name_the_last_event_opens_the_readers_again(members, monkeypatch):
    one, _ = members
    await one.policies.update(NAME, with_producers(1), NO_TOPIC_POLICIES)
    ask, refused = Readers.last_message, []

    async def refuse_once(readers, reader_id):
        if not refused:
            refused.append(reader_id)
            raise RefusedError("the last entry cannot be read")
        return await ask(readers, reader_id)

    monkeypatch.setattr(Readers, "last_message", refuse_once)
    async with asyncio.timeout(5):
        await one.policies.update(NAME, with_producers(2))
    assert one.policies.get(NAME).max_producers == 2
    assert refused


async def test_compaction_keeps_the_newest_policies_of_every_topic(members, broker):
    one, two = members
    for number in range(4):
        await one.policies.update(NAME, with_producers(number), NO_TOPIC_POLICIES)
        await one.policies.update(f"{NAME}-gone", with_producers(number), NO_TOPIC_POLICIES)
    await one.policies.delete(f"{NAME}-gone")
    topic = await broker.topics.get(events_topic(NAMESPACE), create=False)
    assert "__compaction" in topic.ledger.cursors  # the cursor keeps every event until compaction
    assert topic.compaction.start()
    await topic.compaction.wait()
    await two.ready()
    assert two.policies.get(NAME).max_producers == 3
    assert f"{NAME}-gone" not in two.policies
    await two.policies.delete(NAME)
    assert topic.compaction.start()  # leaves an empty compacted ledger
    await topic.compaction.wait()
    third = Member(broker)
    await third.ready()
    assert NAME not in third.policies
    await third.close()


async def test_a_deleted_topic_of_events_ends_the_log(members, broker):
    one, _ = members
    await one.policies.update(NAME, with_producers(1), NO_TOPIC_POLICIES)
    await broker.topics.delete(events_topic(NAMESPACE))
    await until(lambda: one.policies.ready(NAMESPACE) is None and NAME not in one.policies)
    assert not one.events_exist(NAMESPACE)  # the reader that lost the topic has not created it again
    await one.policies.update(NAME, with_producers(2), NO_TOPIC_POLICIES)
    assert one.policies.get(NAME).max_producers == 2
    await one.policies.forget(NAMESPACE)
    assert NAME not in one.policies


async def test_a_topic_of_events_that_is_made_anew_at_once_begins_without_former_policies(members, broker):
    one, two = members
    await one.policies.update(NAME, with_producers(1), NO_TOPIC_POLICIES)
    two.policies.appeared(NAMESPACE)
    await two.ready()
    two.reports_lag = True
    two.changes.clear()
    await broker.topics.delete(events_topic(NAMESPACE))
    await until(lambda: one.policies.ready(NAMESPACE) is None)
    await one.policies.update(f"{NAME}-new", with_producers(2), NO_TOPIC_POLICIES)
    await until(lambda: f"{NAME}-new" in two.policies)
    assert NAME not in two.policies
    assert TopicName.parse(NAME) in two.changes


async def test_policies_of_the_broker_itself_do_not_touch_the_events(broker):
    await broker.stored.namespaces.update_namespace(
        NAMESPACE, lambda old: msgspec.structs.replace(old, message_ttl_in_seconds=1, encryption_required=True)
    )
    config = broker.stored.namespaces.effective(events_topic(NAMESPACE))
    assert (config.message_ttl_seconds, config.encryption_required) == (0, False)
    assert config.size_quota.limit_size == -1
    assert config.compaction_threshold_bytes > 0


@pytest.mark.parametrize(
    ("plugin", "parameters", "shown"),
    [
        ("", "", ("", b"")),
        ("org.apache.pulsar.client.impl.auth.AuthenticationToken", "token:abc", ("token", b"abc")),
        ("token", "abc", ("token", b"abc")),
        ("org.apache.pulsar.client.impl.auth.AuthenticationBasic", '{"userId":"u","password":"p"}', ("basic", b"u:p")),
        ("basic", "u:p", ("basic", b"u:p")),
        ("tls", "tlsCertFile:/a,tlsKeyFile:/b", ("tls", b"")),
    ],
)
def test_the_credentials_of_the_settings(plugin, parameters, shown):
    settings = dataclasses.replace(
        Settings(),
        broker_client_authentication_plugin=plugin,
        broker_client_authentication_parameters=parameters,
    )
    assert peer_credentials(settings).auth() == shown


def test_a_plugin_that_is_not_there_is_refused():
    settings = dataclasses.replace(Settings(), broker_client_authentication_plugin="a.b.AuthenticationSasl")
    with pytest.raises(ValueError, match="brokerClientAuthenticationPlugin"):
        peer_credentials(settings)
