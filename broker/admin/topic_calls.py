"""Shared parts of calls about topics: the check of existence and the iteration over partitions."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from magnetar.broker.admin.api import MessagePosition
from magnetar.broker.admin.call import Call, target_of
from magnetar.broker.admin.elsewhere import is_elsewhere
from magnetar.broker.auth.authorizer import Target
from magnetar.broker.auth.table import NAMESPACE_CONSUME, TOPIC_CONSUME, Need
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.jackson_body import Int32
from magnetar.broker.errors import RestError
from magnetar.broker.limits import MAX_TOPIC_PROPERTIES_BYTES, size_of
from magnetar.broker.topics.lifecycle import in_use
from magnetar.broker.topics.served_topic import ServedTopic
from magnetar.protocol.topic_name import TopicName

_ANY_OTHER: Final = "\0"
"""A name for any subscription without granted roles; it has no role as its prefix."""
COMPACTION: Final = "__compaction"
"""The subscription of compaction, which compaction alone moves."""
_NOT_FOR_PARTITIONED = "not allowed on a partitioned topic: name one of its partitions"


def bounded(properties: dict[str, str], most: int = MAX_TOPIC_PROPERTIES_BYTES) -> dict[str, str]:
    """The properties; raises 413 when they have more than `most` bytes together."""
    if size_of(properties) > most:
        raise RestError(413, f"properties of {size_of(properties)} bytes, at most {most}")
    return properties


def without_nulls(call: Call, name: TopicName, properties: Mapping[str, str | None] | None) -> dict[str, str]:
    """The properties of a body for the topic. As in Apache Pulsar a null is left out for a partitioned topic, and
    refused with 500 for any other topic.
    """
    given = {key: value for key, value in (properties or {}).items() if value is not None}
    if len(given) < len(properties or {}) and call.topics.partition_count(name) is None:
        raise RestError(500, "the value of a property is null")
    return given


def check_subscriptions(call: Call, name: TopicName, subscriptions: Iterable[str], need: Need) -> None:
    """Raise the refusal of `need` unless the caller may consume through each of these subscriptions.

    So a call about all subscriptions needs the same rights as a call about each of them.
    """
    for subscription in subscriptions:
        if not call.may(TOPIC_CONSUME, Target.of_topic(name, subscription)):
            raise RestError(need.denied_status, f"Unauthorized to {need.action.value} through {subscription}")


def check_all_subscriptions(call: Call) -> None:
    """Raise a refusal unless the caller may consume through every subscription that the namespace may have.

    For calls that other brokers execute with the rights of this broker: this broker does not know their subscriptions.
    """
    limited = call.policies().auth_policies.subscription_auth_roles
    for subscription in (*limited, _ANY_OTHER):
        if not call.may(NAMESPACE_CONSUME, replace(target_of(call.request.path_params), subscription=subscription)):
            raise RestError(NAMESPACE_CONSUME.denied_status, "Unauthorized to consume through every subscription")


class MessageIdBody(msgspec.Struct, rename="camel"):
    """A message id with options (Pulsar ResetCursorData); an absent ledger or entry is 0, as in Apache Pulsar."""

    ledger_id: int = 0
    entry_id: int = 0
    partition_index: Int32 = -1
    batch_index: Int32 = -1
    properties: dict[str, str] | None = None
    excluded: bool = False

    def position(self) -> MessagePosition:
        return MessagePosition(self.ledger_id, self.entry_id, self.partition_index, self.batch_index)


def refuse_in_use(call: Call, name: TopicName) -> None:
    """Raise the refusal of a deletion while clients are connected."""
    consumers, producers = call.lifecycle.clients(name)
    if consumers or producers:
        raise in_use(name, consumers, producers)


async def delete_unused(call: Call, name: TopicName) -> None:
    """Delete the topic; raise the refusal if a client is connected now, or when the deletion begins."""
    refuse_in_use(call, name)
    refusals: list[RestError] = []

    def is_unused(_topic: ServedTopic) -> bool:
        try:
            refuse_in_use(call, name)
        except RestError as refusal:
            refusals.append(refusal)
        return not refusals

    await call.lifecycle.delete(name, is_unused)
    if refusals:
        raise refusals[0]


def topic_missing(name: TopicName) -> RestError:
    return rest_refusals.TOPIC_UNKNOWN.error(topic=name)


def topic_unloadable(call: Call, name: TopicName) -> RestError:
    """The refusal for a topic that cannot be loaded. A partition has refusals of its own: for a missing partitioned
    topic, and for a number beyond the topic's partitions.
    """
    if not name.is_partition:
        return topic_missing(name)
    count = call.topics.partition_count(name.base)
    if name.persistent:
        if not call.namespaces.exists(name.namespace):
            return rest_refusals.NAMESPACE_UNKNOWN.error()
        call.namespaces.require_local(name.namespace)
        if count is None:
            return rest_refusals.PARTITIONED_TOPIC_WITHOUT_PARTITIONS.error(topic=name)
        return rest_refusals.PARTITIONS_MISSING.error()
    if count is None:
        return rest_refusals.PARTITION_METADATA_MISSING.error(topic=name)
    return rest_refusals.PARTITION_BEYOND.error(topic=name, count=count)


def loadable(call: Call, name: TopicName) -> bool:
    """Whether the topic exists, or a request creates it: a partition of a partitioned non-persistent topic."""
    return call.topics.exists(name) or (
        not name.persistent and name.is_partition and name.partition < (call.topics.partition_count(name.base) or 0)
    )


def single_topic(call: Call, refusal: RestError | None = None) -> TopicName:
    """The plain topic or partition of the path; raises 404 when it does not exist, `refusal` or 405 for a partitioned
    topic.
    """
    name = call.topic()
    if call.topics.partition_count(name) is not None:
        raise refusal or RestError(405, f"{name}: {_NOT_FOR_PARTITIONED}")
    if not loadable(call, name):
        raise topic_unloadable(call, name)
    return name


def topic_parts(call: Call) -> list[TopicName]:
    """The topic of the path, or all partitions of a partitioned topic; raises 404 when the topic does not exist."""
    name = call.topic()
    count = call.topics.partition_count(name)
    if count is None:
        if not call.topics.exists(name):
            raise topic_unloadable(call, name)
        return [name]
    return [name.partition_name(i) for i in range(count)]


async def existing_parts(call: Call) -> list[TopicName]:
    """Like `topic_parts`, without partitions that do not exist yet. Includes all non-persistent partitions of other
    brokers; creates a non-persistent partition that the path names, if this broker serves the partition.
    """
    name = call.topic()
    if not name.persistent and not is_elsewhere(call, name):
        await load_partition(call, name)
    return [
        part
        for part in topic_parts(call)
        if call.topics.exists(part) or (not part.persistent and is_elsewhere(call, part))
    ]


def refuse_missing_parts(call: Call) -> None:
    """Raise 404 when a partition of the persistent partitioned topic of the path is missing; to be called after the
    other partitions have changed.
    """
    name = call.topic()
    count = (call.topics.partition_count(name) or 0) if name.persistent else 0
    if not all(call.topics.exists(name.partition_name(number)) for number in range(count)):
        raise rest_refusals.PARTITIONS_MISSING.error()


def check_tenant(call: Call) -> None:
    """Raise 412 for a bad name of the topic in the path, 404 where its tenant is missing."""
    if call.topic_name().tenant not in call.namespaces.tenants:
        raise rest_refusals.TENANT_MISSING.error()


def policy_topic(call: Call) -> TopicName:
    """The topic of the path, for its policies. Raises RestError for a partition, for an unknown topic, and when topic
    policies are off.
    """
    if not call.api.settings.topic_level_policies_enabled:
        call.topic()
        raise rest_refusals.NO_TOPIC_POLICIES.error()
    if call.topic_name().is_partition:
        raise rest_refusals.NO_POLICY_OF_PARTITION.error()
    name = call.topic()
    if call.topics.partition_count(name) is None and not call.topics.exists(name):
        raise topic_missing(name)
    return name


async def load_partition(call: Call, name: TopicName) -> None:
    """Create the partition of a partitioned topic if it does not exist; no effect for any other topic."""
    known = name.is_partition and name.partition < (call.topics.partition_count(name.base) or 0)
    if known and not call.topics.exists(name):
        await call.lifecycle.create(name, {})


def shown_position(message: MessagePosition) -> dict[str, int]:
    """MessageIdImpl as Pulsar's REST shows it, or BatchMessageIdImpl for a message of a batch."""
    of_batch = {"originalBatchSize": 0, "outstandingAcksInSameBatch": 0}
    return ({} if message.batch_index < 0 else of_batch) | {
        "ledgerId": message.ledger_id,
        "entryId": message.entry_id,
        "partitionIndex": message.partition,
        "batchSize": message.batch_size,
        "batchIndex": message.batch_index,
    }
