"""The figures of a loaded topic among those of its bundle, as `broker-stats/topics` shows them to tools.

The names differ from those of the topic's own statistics, and rates have three digits behind the point, as in Apache
Pulsar.
"""

from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.compat.java_times import instant
from magnetar.broker.slices import sliced
from magnetar.protocol.message_id import signed

if TYPE_CHECKING:
    from magnetar.broker.consumers.consumer_stats import ConsumerStats, SubscriptionStats
    from magnetar.broker.topics.topic_stats import ProducerStats, TopicStats

Json = dict[str, Any]
_ACKNOWLEDGED_SINGLY: Final = ("Shared", "Key_Shared")
_FILTERED: Final = dict.fromkeys(
    ("filterProcessedMsgCount", "filterAcceptedMsgCount", "filterRejectedMsgCount", "filterRescheduledMsgCount"), 0
)
_CLIENTS_IN_ONE_TURN: Final = 128
_DIGITS: Final = 3


async def topic_in_bundle(stats: "TopicStats") -> Json:
    """The figures of one topic; clients and subscriptions are written in slices."""
    subscriptions: Json = {}
    async for some in sliced(tuple(stats.subscriptions.items()), _CLIENTS_IN_ONE_TURN):
        for name, each in some:
            subscriptions[name] = await _subscription(each, stats, name)
    publishers = [_publisher(each) async for some in sliced(stats.publishers, _CLIENTS_IN_ONE_TURN) for each in some]
    sent = stats.subscriptions.values()
    out: Json = {
        "publishers": publishers,
        "replication": {},
        "subscriptions": subscriptions,
        "producerCount": len(publishers),
        "averageMsgSize": _rounded(stats.average_msg_size),
        "msgRateIn": _rounded(stats.msg_rate_in),
        "msgRateOut": _rounded(sum(each.msg_rate_out for each in sent)),
        "msgInCount": stats.msg_in_counter,
        "bytesInCount": stats.bytes_in_counter,
        "msgOutCount": stats.gone_msg_out_counter + sum(each.msg_out_counter for each in sent),
        "bytesOutCount": stats.gone_bytes_out_counter + sum(each.bytes_out_counter for each in sent),
        "msgThroughputIn": _rounded(stats.msg_throughput_in),
        "msgThroughputOut": _rounded(sum(each.msg_throughput_out for each in sent)),
    }
    if stats.name.persistent:
        out |= {"storageSize": stats.storage_bytes, "backlogSize": stats.backlog_bytes, "pendingAddEntriesCount": 0}
    return out | {"filteredEntriesCount": 0}


async def _subscription(stats: "SubscriptionStats", topic: "TopicStats", name: str) -> Json:
    consumers = [_consumer(each) async for some in sliced(stats.consumers, _CLIENTS_IN_ONE_TURN) for each in some]
    out: Json = {
        "consumers": consumers,
        "msgBacklog": stats.msg_backlog,
        "msgRateExpired": _rounded(stats.msg_rate_expired),
        "msgRateOut": _rounded(stats.msg_rate_out),
        "messageAckRate": _rounded(stats.message_ack_rate),
        "msgThroughputOut": _rounded(stats.msg_throughput_out),
        "msgRateRedeliver": _rounded(stats.msg_rate_redeliver),
    }
    if topic.name.persistent:
        out["numberOfEntriesSinceFirstNotAckedMessage"] = topic.entries_since_mark_delete.get(name, 0) + 1
        out["totalNonContiguousDeletedMessagesRange"] = topic.non_contiguous_deleted_ranges.get(name, 0)
    out["type"] = stats.type_name or "None"
    if stats.type_name:
        out |= _FILTERED
    if not topic.name.persistent:
        out["msgDropRate"] = _rounded(stats.msg_drop_rate)
    elif stats.type_name in _ACKNOWLEDGED_SINGLY:
        out["blockedSubscriptionOnUnackedMsgs"] = stats.blocked_on_unacked
        out["unackedMessages"] = stats.unacked_messages
    return out


def _consumer(stats: "ConsumerStats") -> Json:
    out: Json = {
        "address": stats.address,
        "consumerName": stats.consumer_name,
        "availablePermits": stats.available_permits,
        "connectedSince": instant(stats.connected_since_ms),
        "msgRateOut": _rounded(stats.msg_rate_out),
        "msgThroughputOut": _rounded(stats.msg_throughput_out),
        "msgRateRedeliver": _rounded(stats.msg_rate_redeliver),
        "avgMessagesPerEntry": stats.avg_messages_per_entry,
        "messageAckRate": _rounded(stats.message_ack_rate),
    }
    if stats.type_name in _ACKNOWLEDGED_SINGLY:
        out["unackedMessages"] = stats.unacked_messages
        out["blockedConsumerOnUnackedMsgs"] = stats.blocked_on_unacked
    return out | {"clientVersion": stats.client_version, "metadata": stats.metadata}


def _publisher(stats: "ProducerStats") -> Json:
    return {
        "msgRateIn": _rounded(stats.msg_rate_in),
        "msgThroughputIn": _rounded(stats.msg_throughput_in),
        "averageMsgSize": _rounded(stats.average_msg_size),
        "address": stats.address,
        "producerId": signed(stats.producer_id),
        "producerName": stats.producer_name,
        "connectedSince": instant(stats.connected_since_ms),
        "clientVersion": stats.client_version,
        "metadata": stats.metadata,
    }


def _rounded(rate: float) -> float:
    return round(float(rate), _DIGITS)
