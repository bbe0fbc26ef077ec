"""Commands of a client to a broker: pure functions that build frames, the counterpart of `replies`.

Only the commands that the tools of this project need: lookups, producers, consumers, readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command
from magnetar.protocol.message_id import unsigned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


PROTOCOL_VERSION = 21
_TYPE = pb.BaseCommand


def connect(
    client_version: str, *, auth_method: str = "", auth_data: bytes = b"", entry_metadata: bool = False
) -> bytes:
    """`entry_metadata`: the client understands broker entry metadata before the entries of MESSAGE."""
    command = pb.CommandConnect(client_version=client_version, protocol_version=PROTOCOL_VERSION)
    if auth_method:
        command.auth_method_name, command.auth_data = auth_method, auth_data
    if entry_metadata:
        command.feature_flags.supports_broker_entry_metadata = True
    return encode_command(pb.BaseCommand(type=_TYPE.CONNECT, connect=command))


def auth_response(client_version: str, auth_method: str, auth_data: bytes) -> bytes:
    """AUTH_RESPONSE, the answer to AUTH_CHALLENGE."""
    data = pb.AuthData(auth_method_name=auth_method, auth_data=auth_data)
    command = pb.CommandAuthResponse(client_version=client_version, response=data, protocol_version=PROTOCOL_VERSION)
    return encode_command(pb.BaseCommand(type=_TYPE.AUTH_RESPONSE, authResponse=command))


def ping() -> bytes:
    return encode_command(pb.BaseCommand(type=_TYPE.PING, ping=pb.CommandPing()))


def pong() -> bytes:
    return encode_command(pb.BaseCommand(type=_TYPE.PONG, pong=pb.CommandPong()))


def partitioned_metadata(request_id: int, topic: str, *, create: bool = False) -> bytes:
    """Request the number of partitions. With `create` the broker may create an absent topic, as for producers."""
    command = pb.CommandPartitionedTopicMetadata(
        topic=topic, request_id=request_id, metadata_auto_creation_enabled=create
    )
    return encode_command(pb.BaseCommand(type=_TYPE.PARTITIONED_METADATA, partitionMetadata=command))


def lookup(request_id: int, topic: str, *, authoritative: bool = False) -> bytes:
    command = pb.CommandLookupTopic(topic=topic, request_id=request_id, authoritative=authoritative)
    return encode_command(pb.BaseCommand(type=_TYPE.LOOKUP, lookupTopic=command))


def producer(
    request_id: int,
    producer_id: int,
    topic: str,
    name: str | None,
    schema: pb.Schema | None = None,
    *,
    encrypted: bool = False,
) -> bytes:
    """PRODUCER with access mode Shared. With a name from the caller, the broker's deduplication recognizes the producer
    later; with None the broker chooses a name.
    """
    command = pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=request_id)
    if name is not None:
        command.producer_name, command.user_provided_producer_name = name, True
    if schema is not None:
        command.schema.CopyFrom(schema)
    if encrypted:
        command.encrypted = True
    return encode_command(pb.BaseCommand(type=_TYPE.PRODUCER, producer=command))


def close_producer(request_id: int, producer_id: int) -> bytes:
    command = pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id)
    return encode_command(pb.BaseCommand(type=_TYPE.CLOSE_PRODUCER, close_producer=command))


def send(
    producer_id: int,
    sequence_id: int,
    highest_sequence_id: int,
    num_messages: int,
    entry: bytes,
    *,
    is_chunk: bool = False,
) -> bytes:
    """SEND with `entry` as headers and payload; the ids and the count must be those of its metadata."""
    command = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=num_messages)
    if highest_sequence_id != sequence_id:
        command.highest_sequence_id = highest_sequence_id
    if is_chunk:
        command.is_chunk = True
    return encode_command(pb.BaseCommand(type=_TYPE.SEND, send=command), entry)


def reader(
    request_id: int,
    consumer_id: int,
    topic: str,
    subscription: str,
    metadata: Mapping[str, str],
    *,
    after: tuple[int, int] = (-1, -1),
    read_compacted: bool = False,
    create: bool = True,
) -> bytes:
    """SUBSCRIBE to a non-durable subscription that begins behind position `after`; default: at the first entry.

    Without `create` the broker refuses an absent topic, whatever its rules of auto creation are.
    """
    command = pb.CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=pb.CommandSubscribe.Exclusive,
        consumer_id=consumer_id,
        request_id=request_id,
        durable=False,
        initialPosition=pb.CommandSubscribe.Earliest,
        start_message_id=pb.MessageIdData(ledgerId=unsigned(after[0]), entryId=unsigned(after[1])),
    )
    if read_compacted:
        command.read_compacted = True
    if not create:
        command.force_topic_creation = False
    for key, value in metadata.items():
        command.metadata.add(key=key, value=value)
    return encode_command(pb.BaseCommand(type=_TYPE.SUBSCRIBE, subscribe=command))


def durable_subscription(request_id: int, consumer_id: int, topic: str, subscription: str) -> bytes:
    """SUBSCRIBE, type Shared; the broker creates an absent subscription at the first entry of the topic."""
    command = pb.CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=pb.CommandSubscribe.Shared,
        consumer_id=consumer_id,
        request_id=request_id,
        durable=True,
        initialPosition=pb.CommandSubscribe.Earliest,
    )
    return encode_command(pb.BaseCommand(type=_TYPE.SUBSCRIBE, subscribe=command))


def acknowledge(request_id: int, consumer_id: int, ledger_id: int, entry_id: int) -> bytes:
    """ACK of one whole entry; the broker answers once it has kept the acknowledgement."""
    place = pb.MessageIdData(ledgerId=unsigned(ledger_id), entryId=unsigned(entry_id))
    command = pb.CommandAck(
        consumer_id=consumer_id, ack_type=pb.CommandAck.Individual, message_id=[place], request_id=request_id
    )
    return encode_command(pb.BaseCommand(type=_TYPE.ACK, ack=command))


def flow(consumer_id: int, permits: int) -> bytes:
    command = pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
    return encode_command(pb.BaseCommand(type=_TYPE.FLOW, flow=command))


def get_last_message_id(request_id: int, consumer_id: int) -> bytes:
    command = pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id)
    return encode_command(pb.BaseCommand(type=_TYPE.GET_LAST_MESSAGE_ID, getLastMessageId=command))


def seek_to_time(request_id: int, consumer_id: int, publish_time_ms: int) -> bytes:
    command = pb.CommandSeek(consumer_id=consumer_id, request_id=request_id, message_publish_time=publish_time_ms)
    return encode_command(pb.BaseCommand(type=_TYPE.SEEK, seek=command))


def topics_of_namespace(request_id: int, namespace: str, mode: int) -> bytes:
    """mode: pb.CommandGetTopicsOfNamespace.Mode. Partitions come by their own names."""
    command = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=namespace)
    command.mode = mode  # type: ignore[assignment]
    return encode_command(pb.BaseCommand(type=_TYPE.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=command))


def watch_topic_list(request_id: int, watcher_id: int, namespace: str, pattern: str) -> bytes:
    """pattern: for names without their domain."""
    command = pb.CommandWatchTopicList(
        request_id=request_id, watcher_id=watcher_id, namespace=namespace, topics_pattern=pattern
    )
    return encode_command(pb.BaseCommand(type=_TYPE.WATCH_TOPIC_LIST, watchTopicList=command))


def close_consumer(request_id: int, consumer_id: int) -> bytes:
    command = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id)
    return encode_command(pb.BaseCommand(type=_TYPE.CLOSE_CONSUMER, close_consumer=command))


def subscribe(command: pb.CommandSubscribe) -> bytes:
    return encode_command(pb.BaseCommand(type=_TYPE.SUBSCRIBE, subscribe=command))


def ack(consumer_id: int, entry: tuple[int, int], *, cumulative: bool = False, validation: int | None = None) -> bytes:
    """Acknowledge a whole entry, without an answer. `validation`: the reason why the client cannot read the entry."""
    kind = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
    command = pb.CommandAck(consumer_id=consumer_id, ack_type=kind)
    command.message_id.add(ledgerId=entry[0], entryId=entry[1])
    if validation is not None:
        command.validation_error = validation  # type: ignore[assignment]
    return encode_command(pb.BaseCommand(type=_TYPE.ACK, ack=command))


def redeliver(consumer_id: int, entries: Iterable[tuple[int, int]]) -> bytes:
    """Request redelivery of these entries; without entries, of all unacknowledged entries."""
    command = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id)
    for ledger_id, entry_id in entries:
        command.message_ids.add(ledgerId=ledger_id, entryId=entry_id)
    return encode_command(
        pb.BaseCommand(type=_TYPE.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=command)
    )


def unsubscribe(request_id: int, consumer_id: int) -> bytes:
    command = pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=request_id)
    return encode_command(pb.BaseCommand(type=_TYPE.UNSUBSCRIBE, unsubscribe=command))
