"""All commands of a broker to a client: pure functions that build the bytes of a frame from values.

A field is set exactly when Apache Pulsar 4.2 sets it (clients and transcripts see presence, not only values). Ids are
signed numbers; -1 travels as 2^64 - 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command
from magnetar.protocol.list_reply import ListReply
from magnetar.protocol.message_id import unsigned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NO_REQUEST = unsigned(-1)
_TYPE = pb.BaseCommand


def _base(command_type: int) -> pb.BaseCommand:
    base = pb.BaseCommand()
    base.type = command_type  # type: ignore[assignment]
    return base


# --- connection --------------------------------------------------------------------------------------------------


def connected(*, server_version: str, protocol_version: int, max_message_size: int, topic_watchers: bool) -> bytes:
    base = _base(_TYPE.CONNECTED)
    reply = base.connected
    reply.server_version = server_version
    reply.protocol_version = protocol_version
    reply.max_message_size = max_message_size
    flags = reply.feature_flags
    flags.supports_get_partitioned_metadata_without_auto_creation = True
    flags.supports_repl_dedup_by_lid_and_eid = True
    if topic_watchers:
        flags.supports_topic_watchers = True
        flags.supports_topic_watcher_reconcile = True
    return encode_command(base)


def auth_challenge(server_version: str, protocol_version: int, method: str, data: bytes) -> bytes:
    base = _base(_TYPE.AUTH_CHALLENGE)
    base.authChallenge.server_version = server_version
    base.authChallenge.protocol_version = protocol_version
    base.authChallenge.challenge.auth_method_name = method
    base.authChallenge.challenge.auth_data = data
    return encode_command(base)


def _empty(command_type: int, field: str) -> bytes:
    base = _base(command_type)
    getattr(base, field).SetInParent()
    return encode_command(base)


_PING = _empty(_TYPE.PING, "ping")
_PONG = _empty(_TYPE.PONG, "pong")


def ping() -> bytes:
    return _PING


def pong() -> bytes:
    return _PONG


def success(request_id: int) -> bytes:
    base = _base(_TYPE.SUCCESS)
    base.success.request_id = request_id
    return encode_command(base)


def error(request_id: int, code: int, message: str) -> bytes:
    base = _base(_TYPE.ERROR)
    base.error.request_id = unsigned(request_id)
    base.error.error = code  # type: ignore[assignment]
    base.error.message = message
    return encode_command(base)


# --- finding topics ----------------------------------------------------------------------------------------------


def lookup_connect(
    request_id: int, url: str | None, url_tls: str | None, *, authoritative: bool, proxy_through_service_url: bool
) -> bytes:
    base = _base(_TYPE.LOOKUP_RESPONSE)
    reply = base.lookupTopicResponse
    if url is not None:
        reply.brokerServiceUrl = url
    if url_tls is not None:
        reply.brokerServiceUrlTls = url_tls
    reply.response = pb.CommandLookupTopicResponse.Connect
    reply.request_id = request_id
    reply.authoritative = authoritative
    reply.proxy_through_service_url = proxy_through_service_url
    return encode_command(base)


def lookup_redirect(request_id: int, url: str | None, url_tls: str | None, *, authoritative: bool) -> bytes:
    """Redirect the client to that broker; the client repeats ``authoritative`` there."""
    base = _base(_TYPE.LOOKUP_RESPONSE)
    reply = base.lookupTopicResponse
    if url is not None:
        reply.brokerServiceUrl = url
    if url_tls is not None:
        reply.brokerServiceUrlTls = url_tls
    reply.response = pb.CommandLookupTopicResponse.Redirect
    reply.request_id = request_id
    reply.authoritative = authoritative
    reply.proxy_through_service_url = False
    return encode_command(base)


def lookup_failed(request_id: int, code: int, message: str) -> bytes:
    base = _base(_TYPE.LOOKUP_RESPONSE)
    reply = base.lookupTopicResponse
    reply.response = pb.CommandLookupTopicResponse.Failed
    reply.request_id = request_id
    reply.error = code  # type: ignore[assignment]
    reply.message = message
    return encode_command(base)


def partitioned_metadata(request_id: int, partitions: int) -> bytes:
    base = _base(_TYPE.PARTITIONED_METADATA_RESPONSE)
    reply = base.partitionMetadataResponse
    reply.partitions = partitions
    reply.request_id = request_id
    reply.response = pb.CommandPartitionedTopicMetadataResponse.Success
    return encode_command(base)


def partitioned_metadata_failed(request_id: int, code: int, message: str) -> bytes:
    base = _base(_TYPE.PARTITIONED_METADATA_RESPONSE)
    reply = base.partitionMetadataResponse
    reply.request_id = request_id
    reply.response = pb.CommandPartitionedTopicMetadataResponse.Failed
    reply.error = code  # type: ignore[assignment]
    reply.message = message
    return encode_command(base)


def topics_of_namespace(request_id: int, *, topics_hash: str, filtered: bool, changed: bool) -> ListReply:
    """The reply to which the caller adds the names."""
    base = _base(_TYPE.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    reply = base.getTopicsOfNamespaceResponse
    reply.request_id = request_id
    reply.filtered = filtered
    reply.topics_hash = topics_hash
    reply.changed = changed
    return ListReply(base, "getTopicsOfNamespaceResponse", "topics")


def watch_topic_list_success(request_id: int, watcher_id: int, topics_hash: str) -> ListReply:
    """The reply to which the caller adds the names."""
    base = _base(_TYPE.WATCH_TOPIC_LIST_SUCCESS)
    reply = base.watchTopicListSuccess
    reply.request_id = request_id
    reply.watcher_id = watcher_id
    reply.topics_hash = topics_hash
    return ListReply(base, "watchTopicListSuccess", "topic")


def watch_topic_update(watcher_id: int, new: Iterable[str], deleted: Iterable[str], topics_hash: str) -> bytes:
    base = _base(_TYPE.WATCH_TOPIC_UPDATE)
    update = base.watchTopicUpdate
    update.watcher_id = watcher_id
    update.new_topics.extend(new)
    update.deleted_topics.extend(deleted)
    update.topics_hash = topics_hash
    return encode_command(base)


# --- producing ---------------------------------------------------------------------------------------------------


def producer_success(
    request_id: int,
    name: str,
    *,
    last_sequence_id: int,
    schema_version: bytes,
    topic_epoch: int | None,
    producer_ready: bool,
) -> bytes:
    base = _base(_TYPE.PRODUCER_SUCCESS)
    reply = base.producer_success
    reply.request_id = request_id
    reply.producer_name = name
    reply.last_sequence_id = last_sequence_id
    reply.schema_version = schema_version
    if topic_epoch is not None:
        reply.topic_epoch = unsigned(topic_epoch)
    reply.producer_ready = producer_ready
    return encode_command(base)


def send_error(producer_id: int, sequence_id: int, code: int, message: str) -> bytes:
    base = _base(_TYPE.SEND_ERROR)
    reply = base.send_error
    reply.producer_id = producer_id
    reply.sequence_id = unsigned(sequence_id)
    reply.error = code  # type: ignore[assignment]
    reply.message = message
    return encode_command(base)


def close_producer(producer_id: int, request_id: int = NO_REQUEST) -> bytes:
    base = _base(_TYPE.CLOSE_PRODUCER)
    base.close_producer.producer_id = producer_id
    base.close_producer.request_id = request_id
    return encode_command(base)


# --- consuming ---------------------------------------------------------------------------------------------------


def message(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    payload: bytes | memoryview,
    *,
    redelivery_count: int = 0,
    ack_set: Sequence[int] = (),
    consumer_epoch: int = -1,
) -> bytes:
    """Return one MESSAGE (`speed.encode_messages` encodes many). Words of `ack_set` are signed; a set bit stands for a
    message that is still to be consumed.
    """
    base = _base(_TYPE.MESSAGE)
    command = base.message
    command.consumer_id = consumer_id
    command.message_id.ledgerId = unsigned(ledger_id)
    command.message_id.entryId = unsigned(entry_id)
    command.message_id.partition = partition
    if redelivery_count > 0:
        command.redelivery_count = redelivery_count
    command.ack_set.extend(ack_set)
    if consumer_epoch >= 0:
        command.consumer_epoch = consumer_epoch
    return encode_command(base, payload)


def ack_response(consumer_id: int, request_id: int, code: int | None = None, text: str = "") -> bytes:
    base = _base(_TYPE.ACK_RESPONSE)
    reply = base.ackResponse
    reply.consumer_id = consumer_id
    reply.request_id = request_id
    if code is not None:
        reply.error = code  # type: ignore[assignment]
        reply.message = text
    return encode_command(base)


def close_consumer(consumer_id: int, request_id: int = NO_REQUEST) -> bytes:
    base = _base(_TYPE.CLOSE_CONSUMER)
    base.close_consumer.consumer_id = consumer_id
    base.close_consumer.request_id = request_id
    return encode_command(base)


def active_consumer_change(consumer_id: int, *, is_active: bool) -> bytes:
    base = _base(_TYPE.ACTIVE_CONSUMER_CHANGE)
    base.active_consumer_change.consumer_id = consumer_id
    base.active_consumer_change.is_active = is_active
    return encode_command(base)


def reached_end_of_topic(consumer_id: int) -> bytes:
    base = _base(_TYPE.REACHED_END_OF_TOPIC)
    base.reachedEndOfTopic.consumer_id = consumer_id
    return encode_command(base)


def last_message_id(
    request_id: int, last: tuple[int, int], partition: int, batch_index: int, mark_delete: tuple[int, int] | None
) -> bytes:
    base = _base(_TYPE.GET_LAST_MESSAGE_ID_RESPONSE)
    reply = base.getLastMessageIdResponse
    reply.last_message_id.ledgerId = unsigned(last[0])
    reply.last_message_id.entryId = unsigned(last[1])
    reply.last_message_id.partition = partition
    reply.last_message_id.batch_index = batch_index
    reply.request_id = request_id
    if mark_delete is not None:
        reply.consumer_mark_delete_position.ledgerId = unsigned(mark_delete[0])
        reply.consumer_mark_delete_position.entryId = unsigned(mark_delete[1])
    return encode_command(base)


def consumer_stats(request_id: int, values: Mapping[str, Any]) -> bytes:
    """`values` by the field names of CommandConsumerStatsResponse."""
    base = _base(_TYPE.CONSUMER_STATS_RESPONSE)
    reply = base.consumerStatsResponse
    reply.request_id = request_id
    for name, value in values.items():
        setattr(reply, name, value)
    return encode_command(base)


def consumer_stats_failed(request_id: int, code: int, message: str) -> bytes:
    base = _base(_TYPE.CONSUMER_STATS_RESPONSE)
    reply = base.consumerStatsResponse
    reply.request_id = request_id
    reply.error_code = code  # type: ignore[assignment]
    reply.error_message = message
    return encode_command(base)


# --- schemas -----------------------------------------------------------------------------------------------------


def get_schema_response(request_id: int, schema: pb.Schema, version: bytes) -> bytes:
    base = _base(_TYPE.GET_SCHEMA_RESPONSE)
    reply = base.getSchemaResponse
    reply.request_id = request_id
    reply.schema.CopyFrom(schema)
    reply.schema_version = version
    return encode_command(base)


def get_schema_failed(request_id: int, code: int, message: str) -> bytes:
    base = _base(_TYPE.GET_SCHEMA_RESPONSE)
    reply = base.getSchemaResponse
    reply.request_id = request_id
    reply.error_code = code  # type: ignore[assignment]
    reply.error_message = message
    return encode_command(base)


def get_or_create_schema_response(request_id: int, version: bytes) -> bytes:
    base = _base(_TYPE.GET_OR_CREATE_SCHEMA_RESPONSE)
    base.getOrCreateSchemaResponse.request_id = request_id
    base.getOrCreateSchemaResponse.schema_version = version
    return encode_command(base)


def get_or_create_schema_failed(request_id: int, code: int, message: str) -> bytes:
    base = _base(_TYPE.GET_OR_CREATE_SCHEMA_RESPONSE)
    reply = base.getOrCreateSchemaResponse
    reply.request_id = request_id
    reply.error_code = code  # type: ignore[assignment]
    reply.error_message = message
    return encode_command(base)


# --- transactions ------------------------------------------------------------------------------------------------


def end_txn_on_partition_response(
    request_id: int, least_bits: int, most_bits: int, refusal: tuple[int, str] | None
) -> bytes:
    base = _base(_TYPE.END_TXN_ON_PARTITION_RESPONSE)
    reply = base.endTxnOnPartitionResponse
    reply.request_id = request_id
    reply.txnid_least_bits = least_bits
    reply.txnid_most_bits = most_bits
    if refusal is not None:
        reply.error, reply.message = refusal  # type: ignore[assignment]
    return encode_command(base)


def end_txn_on_subscription_response(
    request_id: int, least_bits: int, most_bits: int, refusal: tuple[int, str] | None
) -> bytes:
    base = _base(_TYPE.END_TXN_ON_SUBSCRIPTION_RESPONSE)
    reply = base.endTxnOnSubscriptionResponse
    reply.request_id = request_id
    reply.txnid_least_bits = least_bits
    reply.txnid_most_bits = most_bits
    if refusal is not None:
        reply.error, reply.message = refusal  # type: ignore[assignment]
    return encode_command(base)
