"""Statistics as Pulsar's REST shows them: figures of broker objects under Pulsar's JSON names."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

from magnetar.broker.compat import absent_features
from magnetar.broker.compat.java_order import java_text_key
from magnetar.broker.compat.java_times import instant
from magnetar.broker.slices import WeighedTurn, give_way, in_turns, sliced
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.message_id import signed

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.compaction.compaction_stats import CompactionStats
    from magnetar.broker.consumers.consumer_stats import ConsumerStats, SubscriptionStats
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.topics.topic_stats import ProducerStats, TopicStats

Json = dict[str, Any]
T = TypeVar("T")
_CLIENTS_IN_ONE_TURN = 128
_SUBSCRIPTIONS_IN_ONE_TURN = 64
_SORTED_AT_A_TIME = 1024


async def topic_stats(stats: "TopicStats", config: "TopicConfig", *, owner: str) -> Json:
    """One topic; `owner` is the broker id. Subscriptions, consumers and publishers are written in slices."""
    subscriptions: Json = {}
    turn = WeighedTurn(_CLIENTS_IN_ONE_TURN)
    async for some in sliced(tuple(stats.subscriptions.items()), _SUBSCRIPTIONS_IN_ONE_TURN):
        for name, each in some:
            consumers = await _consumers(each.consumers, stats, turn)
            subscriptions[name] = subscription(each, stats, name, consumers)
    out = _topic_figures(stats)
    publishers = await _in_java_order(stats.publishers)
    if stats.oldest_backlog_subscription is not None:
        out[_OLDEST_SUBSCRIPTION] = stats.oldest_backlog_subscription
    out |= {
        "backlogQuotaLimitSize": config.size_quota.limit_size,
        "backlogQuotaLimitTime": config.age_quota.limit_time,
        "publishers": await _in_slices(publisher, publishers, stats),
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": stats.deduplication_status,
        "compaction": compaction(stats.compaction),
        "ownerBroker": owner,
        "topicCreationTimeStamp": stats.created_ms,
        "lastPublishTimeStamp": stats.last_publish_ms,
    }
    if stats.topic_epoch is not None:
        out["topicEpoch"] = stats.topic_epoch
    if not stats.name.persistent:
        out |= {"msgDropRate": stats.msg_drop_rate, "oldestBacklogMessageAgeSeconds": 0}
        out |= dict.fromkeys(("topicCreationTimeStamp", "lastPublishTimeStamp"), 0)
        out |= {"backlogQuotaLimitSize": 0, "backlogQuotaLimitTime": 0}
        del out["deduplicationStatus"]
    return out


async def _in_java_order(rows: "Sequence[ProducerStats]") -> "list[ProducerStats]":
    """The producers by name. Each turn of the loop sorts a slice, so that the last turn merges sorted runs."""
    runs: list[tuple[object, int]] = []
    for start in range(0, len(rows), _SORTED_AT_A_TIME):
        if start:
            await give_way()
        some = range(start, min(start + _SORTED_AT_A_TIME, len(rows)))
        runs += sorted((java_text_key(rows[at].producer_name), at) for at in some)
    return [rows[at] for _, at in sorted(runs)]


async def _in_slices(write: "Callable[[T, TopicStats], Json]", rows: "Sequence[T]", stats: "TopicStats") -> list[Json]:
    """A row for each producer, written in slices between which the loop has turns."""
    return [write(row, stats) async for part in sliced(rows, _CLIENTS_IN_ONE_TURN) for row in part]


async def _consumers(rows: "Sequence[ConsumerStats]", stats: "TopicStats", turn: WeighedTurn) -> list[Json]:
    """The rows of consumers, each with up to tens of thousands of hashes; `turn` is that of all subscriptions."""
    written = []
    for row in rows:
        written.append(consumer(row, stats))
        await turn.spend(row.weight)
    return written


def _topic_figures(stats: "TopicStats") -> Json:
    subscriptions = stats.subscriptions.values()
    return {
        "msgRateIn": stats.msg_rate_in,
        "msgThroughputIn": stats.msg_throughput_in,
        "msgRateOut": sum((s.msg_rate_out for s in subscriptions), 0.0),
        "msgThroughputOut": sum((s.msg_throughput_out for s in subscriptions), 0.0),
        "bytesInCounter": stats.bytes_in_counter,
        "msgInCounter": stats.msg_in_counter,
        "bytesOutCounter": stats.gone_bytes_out_counter + sum(s.bytes_out_counter for s in subscriptions),
        "msgOutCounter": stats.gone_msg_out_counter + sum(s.msg_out_counter for s in subscriptions),
        "averageMsgSize": stats.average_msg_size,
        "msgChunkPublished": stats.msg_chunk_published,
        "storageSize": stats.storage_bytes,
        "backlogSize": stats.backlog_bytes,
        "oldestBacklogMessageAgeSeconds": stats.oldest_backlog_age_seconds,
        "publishRateLimitedTimes": stats.publish_rate_limited_times,
        "earliestMsgPublishTimeInBacklogs": stats.earliest_in_backlog_ms,
        **absent_features.TOPIC_FIELDS,
        "bytesOutInternalCounter": stats.bytes_out_internal_counter,
        "waitingPublishers": stats.waiting_publishers,
        "nonContiguousDeletedMessagesRanges": sum(stats.non_contiguous_deleted_ranges.values()),
        "nonContiguousDeletedMessagesRangesSerializedSize": sum(stats.deleted_ranges_bytes.values()),
        "delayedMessageIndexSizeInBytes": stats.delayed_index_bytes,
    }


def _of_no_partition() -> Json:
    """The figures of a partitioned topic before its first partition is used."""
    return {
        **dict.fromkeys(("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut"), 0.0),
        **dict.fromkeys(("bytesInCounter", "msgInCounter", "bytesOutCounter", "msgOutCounter"), 0),
        **dict.fromkeys(("storageSize", "backlogSize", "waitingPublishers", "publishRateLimitedTimes"), 0),
        **absent_features.UNUSED_TOPIC_FIELDS,
        "msgChunkPublished": False,
        "backlogQuotaLimitSize": -1,
        "backlogQuotaLimitTime": -1,
    }


_NOTHING = _of_no_partition()
_OLDEST_SUBSCRIPTION = "oldestBacklogMessageSubscriptionName"
_NOT_SUMMED = (
    "publishers",
    "subscriptions",
    "replication",
    "compaction",
    "deduplicationStatus",
    "ownerBroker",
    "topicEpoch",
    _OLDEST_SUBSCRIPTION,
)
_COUNTS_OF_NOTHING = (
    *("abortedTxnCount", "backlogQuotaLimitSize", "backlogQuotaLimitTime", "backlogSize", "bytesInCounter"),
    *("bytesOutCounter", "bytesOutInternalCounter", "committedTxnCount", "delayedMessageIndexSizeInBytes"),
    *("earliestMsgPublishTimeInBacklogs", "lastOffloadFailureTimeStamp", "lastOffloadLedgerId"),
    *("lastOffloadSuccessTimeStamp", "lastPublishTimeStamp", "msgInCounter", "msgOutCounter"),
    *("nonContiguousDeletedMessagesRanges", "nonContiguousDeletedMessagesRangesSerializedSize", "offloadedStorageSize"),
    *("oldestBacklogMessageAgeSeconds", "ongoingTxnCount", "publishRateLimitedTimes", "storageSize"),
    *("systemTopicBytesInCounter", "topicCreationTimeStamp", "waitingPublishers"),
)
_COMPACTION_OF_NOTHING = (
    "lastCompactionDurationTimeInMills",
    "lastCompactionFailedTimestamp",
    "lastCompactionRemovedEventCount",
    "lastCompactionSucceedTimestamp",
)
_LIMITS = tuple((kind, level) for level in ("Subscription", "Topic", "Broker") for kind in ("Msg", "Bytes"))
_OF_ONE_PARTITION = ("activeConsumerName", "keySharedMode")
_OF_ONE_CLIENT = ("address", "connectedSince", "clientVersion", "metadata")
_SUMMED_OF_CONSUMERS = (
    *("msgRateOut", "messageAckRate", "msgThroughputOut", "bytesOutCounter", "msgOutCounter", "msgRateRedeliver"),
    *("availablePermits", "unackedMessages", "drainingHashesClearedTotal"),
)
_UNKNOWN_OF_CONSUMERS = {
    **dict.fromkeys(("lastAckedTimestamp", "lastConsumedTimestamp", "lastConsumedFlowTimestamp"), 0),
    **dict.fromkeys(("lastAckedTime", "lastConsumedTime"), instant(0)),
    "avgMessagesPerEntry": 0,
    "chunkedMessageRate": 0.0,
}


def compaction(stats: "CompactionStats") -> Json:
    return {
        "lastCompactionRemovedEventCount": stats.removed_events,
        "lastCompactionSucceedTimestamp": stats.succeeded_ms,
        "lastCompactionFailedTimestamp": stats.failed_ms,
        "lastCompactionDurationTimeInMills": stats.duration_ms,
    }


def publisher(stats: "ProducerStats", topic: "TopicStats") -> Json:
    return {
        "accessMode": pb.ProducerAccessMode.Name(stats.access_mode),
        "msgRateIn": stats.msg_rate_in,
        "msgThroughputIn": stats.msg_throughput_in,
        "averageMsgSize": stats.average_msg_size,
        "chunkedMessageRate": stats.chunked_message_rate,
        "producerId": signed(stats.producer_id),
        "supportsPartialProducer": False,  # Apache Pulsar 4.2 never sets it
        "producerName": stats.producer_name,
        "address": stats.address,
        "connectedSince": instant(stats.connected_since_ms),
        "clientVersion": stats.client_version,
        "metadata": stats.metadata,
        **({} if topic.name.persistent else {"msgDropRate": 0.0}),
    }


def _limited(stats: "SubscriptionStats") -> dict[tuple[str, str], int]:
    """How often dispatch waited, for each kind of tokens at each level."""
    return dict.fromkeys(_LIMITS, 0) | stats.dispatch_limited


def subscription(stats: "SubscriptionStats", topic: "TopicStats", name: str, consumers: list[Json]) -> Json:
    """One subscription of a topic."""
    durable = stats.is_durable
    out: Json = {
        "msgRateOut": stats.msg_rate_out,
        "msgThroughputOut": stats.msg_throughput_out,
        "bytesOutCounter": stats.bytes_out_counter,
        "msgOutCounter": stats.msg_out_counter,
        "msgRateRedeliver": stats.msg_rate_redeliver,
        "messageAckRate": stats.message_ack_rate,
        "chunkedMessageRate": stats.chunked_message_rate,
        "msgBacklog": stats.msg_backlog,
        "backlogSize": topic.subscription_backlog_bytes.get(name, 0),
        "earliestMsgPublishTimeInBacklog": topic.earliest_publish_ms.get(name, 0),
        "msgBacklogNoDelayed": stats.msg_backlog_no_delayed,
        "blockedSubscriptionOnUnackedMsgs": stats.blocked_on_unacked,
        "msgDelayed": stats.msg_delayed,
        "msgInReplay": stats.msg_in_replay,
        "unackedMessages": stats.unacked_messages,
        "msgRateExpired": stats.msg_rate_expired,
        "msgExpired": stats.msg_expired,
        "totalMsgExpired": stats.total_msg_expired,
        "lastExpireTimestamp": stats.last_expire_ms,
        "lastConsumedFlowTimestamp": stats.last_consumed_flow_ms,
        "lastConsumedTimestamp": stats.last_consumed_ms,
        "lastAckedTimestamp": stats.last_acked_ms,
        "lastMarkDeleteAdvancedTimestamp": stats.last_mark_delete_advanced_ms,
        "consumers": consumers,
        "isDurable": durable,
        "isReplicated": stats.is_replicated,
        "allowOutOfOrderDelivery": stats.allow_out_of_order_delivery,
        "consumersAfterMarkDeletePosition": {},
        "drainingHashesCount": stats.draining_hashes_count,
        "drainingHashesClearedTotal": stats.draining_hashes_cleared_total,
        "drainingHashesUnackedMessages": stats.draining_hashes_unacked_messages,
        "nonContiguousDeletedMessagesRanges": topic.non_contiguous_deleted_ranges.get(name, 0),
        "nonContiguousDeletedMessagesRangesSerializedSize": topic.deleted_ranges_bytes.get(name, 0),
        "delayedMessageIndexSizeInBytes": stats.delayed_index_bytes,
        "subscriptionProperties": stats.subscription_properties,
        **absent_features.SUBSCRIPTION_FIELDS,
        **{f"dispatchThrottled{kind}EventsBy{level}Limit": count for (kind, level), count in _limited(stats).items()},
        "durable": durable,
        "replicated": stats.is_replicated,
    }
    out["type"] = stats.type_name or "None"
    if stats.active_consumer_name is not None:
        out["activeConsumerName"] = stats.active_consumer_name
    if stats.key_shared_mode is not None:
        out["keySharedMode"] = stats.key_shared_mode
    if not topic.name.persistent:
        out["msgDropRate"] = stats.msg_drop_rate
    return out


def consumer(stats: "ConsumerStats", topic: "TopicStats") -> Json:
    out: Json = {
        "msgRateOut": stats.msg_rate_out,
        "msgThroughputOut": stats.msg_throughput_out,
        "bytesOutCounter": stats.bytes_out_counter,
        "msgOutCounter": stats.msg_out_counter,
        "msgRateRedeliver": stats.msg_rate_redeliver,
        "messageAckRate": stats.message_ack_rate,
        "chunkedMessageRate": stats.chunked_message_rate,
        "consumerName": stats.consumer_name,
        "availablePermits": stats.available_permits,
        "unackedMessages": stats.unacked_messages,
        "avgMessagesPerEntry": stats.avg_messages_per_entry,
        "blockedConsumerOnUnackedMsgs": stats.blocked_on_unacked,
        "drainingHashesCount": len(stats.draining_hashes),
        "drainingHashesClearedTotal": stats.draining_hashes_cleared_total,
        "drainingHashesUnackedMessages": stats.draining_hashes_unacked_messages,
        "address": stats.address,
        "connectedSince": instant(stats.connected_since_ms),
        "clientVersion": stats.client_version,
        "lastAckedTimestamp": stats.last_acked_ms,
        "lastConsumedTimestamp": stats.last_consumed_ms,
        "firstMessagesSentTimestamp": stats.first_messages_sent_ms,
        "lastConsumedFlowTimestamp": stats.last_consumed_flow_ms,
        "firstConsumedFlowTimestamp": stats.first_consumed_flow_ms,
        "metadata": stats.metadata,
        "lastAckedTime": instant(stats.last_acked_ms),
        "lastConsumedTime": instant(stats.last_consumed_ms),
    }
    if stats.type_name == "Key_Shared" and topic.name.persistent:
        if stats.drains_hashes:
            out["drainingHashes"] = [
                {"hash": key_hash, "unackMsgs": held, "blockedAttempts": blocked}
                for key_hash, held, blocked in sorted(stats.draining_hashes)
            ]
        out["keyHashRangeArrays"] = [list(each) for each in stats.key_hash_ranges]
    return out


def stats_of_nothing() -> Json:
    """The statistics that Apache Pulsar shows under the name of a topic none of whose partitions exists."""
    return {
        **dict.fromkeys(_COUNTS_OF_NOTHING, 0),
        **dict.fromkeys(("averageMsgSize", "msgRateIn", "msgThroughputIn"), 0.0),
        "msgChunkPublished": False,
        "publishers": [],
        "replication": {},
        "subscriptions": {},
        "compaction": dict.fromkeys(_COMPACTION_OF_NOTHING, 0),
    }


async def partitioned_stats(parts: "dict[str, Json]", metadata: Json, *, per_partition: bool) -> Json:
    """The sum over the statistics of a topic's partitions; with `per_partition` each partition as well."""
    figures: list[Json] = []
    async for some in sliced(list(parts.values())):
        figures += [{key: value for key, value in each.items() if key not in _NOT_SUMMED} for each in some]
    out: Json = _NOTHING | await _summed_in_turns(figures)
    out["earliestMsgPublishTimeInBacklogs"] = _earliest(each["earliestMsgPublishTimeInBacklogs"] for each in figures)
    oldest = max(parts.values(), key=_oldest_age, default=None)
    age = out["oldestBacklogMessageAgeSeconds"] = 0 if oldest is None else max(0, _oldest_age(oldest))
    if oldest is not None and age and _OLDEST_SUBSCRIPTION in oldest:
        out[_OLDEST_SUBSCRIPTION] = oldest[_OLDEST_SUBSCRIPTION]
    out["averageMsgSize"] = _average([each["averageMsgSize"] for each in figures])
    out["lastPublishTimeStamp"] = max((each["lastPublishTimeStamp"] for each in figures), default=0)
    out["topicCreationTimeStamp"] = _earliest(each["topicCreationTimeStamp"] for each in figures)
    for key in ("backlogQuotaLimitSize", "backlogQuotaLimitTime"):
        out[key] = figures[0][key] if figures else -1
    out["publishers"] = await _summed_publishers(list(parts.values()))
    out["subscriptions"] = await _summed_subscriptions(list(parts.values()))
    out["replication"] = {}
    out["compaction"] = await _summed_in_turns([each["compaction"] for each in parts.values()])
    out["metadata"] = metadata
    out["partitions"] = parts if per_partition else {}
    return out


def _oldest_age(part: Json) -> int:
    age: int = part["oldestBacklogMessageAgeSeconds"]
    return age


def _earliest(times_ms: Iterable[int]) -> int:
    """The earliest of the partitions' times, as Apache Pulsar adds them up: 0 is unknown, and -1 counts as a time
    behind a known time alone.
    """
    return reduce(lambda found, ms: min(found, ms) if found and ms else max(found, ms), times_ms, 0)


def _average(values: Sequence[float]) -> float:
    """The mean of the partitions' averages, step by step as in Apache Pulsar: a partition without messages counts."""
    return reduce(lambda found, row: (found * row[0] + row[1]) / (row[0] + 1), enumerate(values), 0.0)


async def _summed_subscriptions(parts: list[Json]) -> Json:
    """The sums by name, in the order of the names; each partition may have other subscriptions."""
    by_name: dict[str, list[Json]] = {}
    async for part in in_turns(parts):
        for name, stats in part["subscriptions"].items():
            by_name.setdefault(name, []).append(stats)
    return {name: await _summed_subscription(by_name[name]) async for name in in_turns(sorted(by_name))}


async def _summed_subscription(each: list[Json]) -> Json:
    out = {key: value for key, value in (await _summed_in_turns(each)).items() if key not in _OF_ONE_PARTITION}
    out |= {key: 0 for key in out if key.endswith("Timestamp")}
    out["earliestMsgPublishTimeInBacklog"] = _earliest(stats["earliestMsgPublishTimeInBacklog"] for stats in each)
    consumers: list[Json] = []
    properties: Json = {}
    async for stats in in_turns(each):
        _add_consumers(consumers, stats["consumers"])
        properties |= stats.get("subscriptionProperties", {})
    return out | {"type": each[-1]["type"], "consumers": consumers, "subscriptionProperties": properties}


def _add_consumers(known: list[Json], more: list[Json]) -> None:
    """Add up the consumers at the same places of two lists of equal length; else append the second list."""
    if len(known) != len(more):
        known += (_one_consumer(None, each) for each in more)
    else:
        known[:] = (_one_consumer(each, another) for each, another in zip(known, more, strict=True))


def _one_consumer(known: Json | None, more: Json) -> Json:
    """Add a consumer to the sum; as in Apache Pulsar, the sum has some values of the last consumer and omits others."""
    out = {key: value for key, value in more.items() if key not in _OF_ONE_CLIENT}
    if known is not None:
        out |= {key: known[key] + more[key] for key in _SUMMED_OF_CONSUMERS}
    return out | _UNKNOWN_OF_CONSUMERS


async def _summed_publishers(parts: list[Json]) -> list[Json]:
    """Add up the first, second, ... producers of the partitions; as in Apache Pulsar, a row has no producer name."""
    rows: list[list[Json]] = []
    async for part in in_turns(parts):
        publishers = part["publishers"]
        rows += ([] for _ in range(len(publishers) - len(rows)))
        for row, each in zip(rows, publishers, strict=False):
            row.append(each)
    return [_one_publisher(row) async for row in in_turns(rows)]


def _one_publisher(row: list[Json]) -> Json:
    rates = [key for key in ("msgRateIn", "msgThroughputIn", "chunkedMessageRate", "msgDropRate") if key in row[0]]
    out: Json = {key: sum((each[key] for each in row), 0.0) for key in rates}
    out["averageMsgSize"] = sum((each["averageMsgSize"] for each in row), 0.0) / len(row)
    return out | {"producerId": 0, "supportsPartialProducer": False}


async def _summed_in_turns(rows: list[Json]) -> Json:
    out: Json = {}
    async for part in sliced(rows):
        out = _summed(part, out)
    return out


def _summed(rows: Iterable[Json], out: Json | None = None) -> Json:
    """Add up numbers and combine truth values by or; of all other values keep the first. ``out``: the sum so far."""
    out = {} if out is None else out
    for row in rows:
        for key, value in row.items():
            if isinstance(value, bool):
                out[key] = out.get(key, False) or value
            elif isinstance(value, (int, float)) and key in out and not key.endswith(("Id", "Timestamp", "TimeStamp")):
                out[key] += value
            else:
                out.setdefault(key, value)
    return out
