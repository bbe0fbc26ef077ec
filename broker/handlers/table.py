"""The single table of commands: how the broker treats each command of the protocol.

The broker handles a command (`HANDLERS`), or closes the connection because only brokers send the command
(`FROM_BROKER`), or because the supported protocol version does not have it (`NOT_SPOKEN`, with the reason; an unknown
type has the same effect). A test proves that every command of the API is in exactly one of the three tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from magnetar.broker.handlers import connect, consume, lookup, publish, refused_commands, schema
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies

if TYPE_CHECKING:
    from collections.abc import Callable

_T = pb.BaseCommand


class Request(Protocol):
    """A command that gets a reply."""

    request_id: int


class Row(NamedTuple):
    """How a command is handled."""

    field: str
    """The field of the command in BaseCommand."""
    handler: Callable[..., Any]
    """`handler(connection, command)`: a plain function, or a coroutine function that becomes a task."""
    fail: Callable[[Any, int, str], bytes] | None
    """Makes the reply with an error; None for a command that has no reply."""


def _error(command: Request, code: int, text: str) -> bytes:
    return replies.error(command.request_id, code, text)


def _connect_error(_command: object, code: int, text: str) -> bytes:
    return replies.error(-1, code, text)


def _lookup(command: Request, code: int, text: str) -> bytes:
    return replies.lookup_failed(command.request_id, code, text)


def _partitions(command: Request, code: int, text: str) -> bytes:
    return replies.partitioned_metadata_failed(command.request_id, code, text)


def _ack(command: pb.CommandAck, code: int, text: str) -> bytes:
    return (
        replies.ack_response(command.consumer_id, command.request_id, code, text)
        if command.HasField("request_id")
        else b""
    )


def _get_schema(command: Request, code: int, text: str) -> bytes:
    return replies.get_schema_failed(command.request_id, code, text)


def _get_or_create_schema(command: Request, code: int, text: str) -> bytes:
    return replies.get_or_create_schema_failed(command.request_id, code, text)


def _consumer_stats(command: Request, code: int, text: str) -> bytes:
    return replies.consumer_stats_failed(command.request_id, code, text)


HANDLERS: dict[int, Row] = {
    _T.CONNECT: Row("connect", connect.on_connect, _connect_error),
    _T.AUTH_RESPONSE: Row("authResponse", connect.on_auth_response, _connect_error),
    _T.PING: Row("ping", connect.on_ping, None),
    _T.PONG: Row("pong", connect.on_pong, None),
    _T.LOOKUP: Row("lookupTopic", lookup.on_lookup, _lookup),
    _T.PARTITIONED_METADATA: Row("partitionMetadata", lookup.on_partitioned_metadata, _partitions),
    _T.GET_TOPICS_OF_NAMESPACE: Row("getTopicsOfNamespace", lookup.on_get_topics_of_namespace, _error),
    _T.WATCH_TOPIC_LIST: Row("watchTopicList", lookup.on_watch_topic_list, _error),
    _T.WATCH_TOPIC_LIST_CLOSE: Row("watchTopicListClose", lookup.on_watch_topic_list_close, _error),
    _T.PRODUCER: Row("producer", publish.on_producer, _error),
    _T.CLOSE_PRODUCER: Row("close_producer", publish.on_close_producer, _error),
    _T.SUBSCRIBE: Row("subscribe", consume.on_subscribe, _error),
    _T.FLOW: Row("flow", consume.on_flow, None),
    _T.ACK: Row("ack", consume.on_ack, _ack),
    _T.REDELIVER_UNACKNOWLEDGED_MESSAGES: Row(
        "redeliverUnacknowledgedMessages", consume.on_redeliver_unacknowledged_messages, None
    ),
    _T.UNSUBSCRIBE: Row("unsubscribe", consume.on_unsubscribe, _error),
    _T.SEEK: Row("seek", consume.on_seek, _error),
    _T.CLOSE_CONSUMER: Row("close_consumer", consume.on_close_consumer, _error),
    _T.GET_LAST_MESSAGE_ID: Row("getLastMessageId", consume.on_get_last_message_id, _error),
    _T.CONSUMER_STATS: Row("consumerStats", consume.on_consumer_stats, _consumer_stats),
    _T.GET_SCHEMA: Row("getSchema", schema.on_get_schema, _get_schema),
    _T.GET_OR_CREATE_SCHEMA: Row("getOrCreateSchema", schema.on_get_or_create_schema, _get_or_create_schema),
    _T.TC_CLIENT_CONNECT_REQUEST: Row("tcClientConnectRequest", refused_commands.on_transaction, _error),
    _T.NEW_TXN: Row("newTxn", refused_commands.on_transaction, _error),
    _T.ADD_PARTITION_TO_TXN: Row("addPartitionToTxn", refused_commands.on_transaction, _error),
    _T.ADD_SUBSCRIPTION_TO_TXN: Row("addSubscriptionToTxn", refused_commands.on_transaction, _error),
    _T.END_TXN: Row("endTxn", refused_commands.on_transaction, _error),
    _T.END_TXN_ON_PARTITION: Row("endTxnOnPartition", refused_commands.on_end_txn_on_partition, _error),
    _T.END_TXN_ON_SUBSCRIPTION: Row("endTxnOnSubscription", refused_commands.on_end_txn_on_subscription, _error),
}

NOT_A_COMMAND_FRAME = frozenset({_T.SEND})
"""SENDs never come as commands: `speed.cut` gives them as runs."""

FROM_BROKER = frozenset(
    {
        _T.CONNECTED,
        _T.SEND_RECEIPT,
        _T.SEND_ERROR,
        _T.MESSAGE,
        _T.SUCCESS,
        _T.ERROR,
        _T.PRODUCER_SUCCESS,
        _T.PARTITIONED_METADATA_RESPONSE,
        _T.LOOKUP_RESPONSE,
        _T.CONSUMER_STATS_RESPONSE,
        _T.REACHED_END_OF_TOPIC,
        _T.GET_LAST_MESSAGE_ID_RESPONSE,
        _T.ACTIVE_CONSUMER_CHANGE,
        _T.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        _T.GET_SCHEMA_RESPONSE,
        _T.AUTH_CHALLENGE,
        _T.ACK_RESPONSE,
        _T.GET_OR_CREATE_SCHEMA_RESPONSE,
        _T.NEW_TXN_RESPONSE,
        _T.ADD_PARTITION_TO_TXN_RESPONSE,
        _T.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        _T.END_TXN_RESPONSE,
        _T.END_TXN_ON_PARTITION_RESPONSE,
        _T.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        _T.TC_CLIENT_CONNECT_RESPONSE,
        _T.WATCH_TOPIC_LIST_SUCCESS,
        _T.WATCH_TOPIC_UPDATE,
        _T.TOPIC_MIGRATED,
        _T.SCALABLE_TOPIC_UPDATE,
        _T.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
        _T.SCALABLE_TOPIC_ASSIGNMENT_UPDATE,
        _T.WATCH_SCALABLE_TOPICS_UPDATE,
        _T.WATCH_TC_ASSIGNMENTS_UPDATE,
    }
)

BEFORE_HANDSHAKE = frozenset({_T.CONNECT, _T.AUTH_RESPONSE, _T.PING, _T.PONG})
OPENING = frozenset({_T.PRODUCER, _T.SUBSCRIBE, _T.WATCH_TOPIC_LIST})
"""Commands that open a client whose memory the connection holds."""
_SCALABLE = "newer than the protocol of Apache Pulsar 4.2 that we speak; we do not advertise supports_scalable_topics"
NOT_SPOKEN: dict[int, str] = {
    _T.SCALABLE_TOPIC_LOOKUP: _SCALABLE,
    _T.SCALABLE_TOPIC_CLOSE: _SCALABLE,
    _T.SCALABLE_TOPIC_SUBSCRIBE: _SCALABLE,
    _T.WATCH_SCALABLE_TOPICS: _SCALABLE,
    _T.WATCH_SCALABLE_TOPICS_CLOSE: _SCALABLE,
    _T.WATCH_TC_ASSIGNMENTS: _SCALABLE,
    _T.WATCH_TC_ASSIGNMENTS_CLOSE: _SCALABLE,
}
