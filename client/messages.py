"""Messages as a consumer sees them: entries split into messages, chunks joined. No I/O.

An unreadable entry (encrypted, damaged) becomes one message with the stored payload and the reason.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from magnetar.client.encryption import CannotDecryptError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import walk_batch
from magnetar.protocol.compression import decompress
from magnetar.protocol.errors import ProtocolError
from magnetar.protocol.message_id import signed
from magnetar.protocol.metadata import parse_entry_metadata, split_entry
from magnetar.protocol.texts import TextRepair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.client.encryption import Decrypting

MAX_PENDING_CHUNKED = 10
MAX_CHUNKED_BYTES = 128 * 1024 * 1024
_ENTRY_FORMAT = "entry.format"
_MOST_TEXTS = 1 << 24  # as many as an entry can hold: a tool may take its time


class ReceivedMessage(NamedTuple):
    """One message.

    batch_index: -1 outside a batch. problem: the reason why the payload is given as stored, else None.
    entries: ledger and entry of each entry to acknowledge; a chunked message has several.
    batch_delivered: batch indexes of the messages that the broker delivered together with this message.
    """

    topic: str
    ledger_id: int
    entry_id: int
    batch_index: int
    batch_size: int
    payload: bytes
    key: bytes | None
    key_text: str | None
    ordering_key: bytes
    properties: dict[str, str]
    publish_time_ms: int
    event_time_ms: int
    sequence_id: int
    producer_name: str
    redelivery_count: int
    schema_version: bytes
    broker_index: int
    null_value: bool
    replicated_from: str
    encrypted: bool
    compression: str
    uncompressed_bytes: int
    entries: tuple[tuple[int, int], ...]
    problem: str | None
    batch_delivered: frozenset[int] = frozenset()


class _Chunks(NamedTuple):
    parts: list[bytes]
    entries: list[tuple[int, int]]
    size: int


class EntryReader:
    """Turns the entries of one topic or partition, given in order, into messages; keeps incomplete chunked messages.

    declared: the number of messages that the last entry declares: the entry used so many permits.
    """

    def __init__(self, topic: str, decrypting: Decrypting | None = None) -> None:
        self.declared = 1
        self._topic = topic
        self._decrypting = decrypting
        self._chunked: dict[str, _Chunks] = {}

    def messages(self, place: pb.MessageIdData, entry: bytes, redelivery_count: int = 0) -> Iterator[ReceivedMessage]:
        """Yield the messages that this entry completes: none for a chunk before the last."""
        metadata, payload = split_entry(entry)
        self.declared = 1 if metadata is None else max(metadata.num_messages_in_batch, 1)
        position = signed(place.ledgerId), signed(place.entryId)
        if metadata is None:
            metadata = pb.MessageMetadata(producer_name="", sequence_id=0, publish_time=0)
            yield self._message(metadata, bytes(payload), position, redelivery_count, "the metadata cannot be read")
            return
        texts = TextRepair(_MOST_TEXTS)
        texts.apply(metadata)
        if metadata.encryption_keys and self._decrypting is not None:
            try:
                payload = memoryview(self._decrypting.decrypt(metadata, bytes(payload)))
            except CannotDecryptError as error:
                yield self._message(metadata, bytes(payload), position, redelivery_count, str(error))
                return
            metadata.ClearField("encryption_keys")
        stored = parse_entry_metadata(entry)
        index = stored.index if stored is not None and stored.HasField("index") else -1
        if metadata.num_chunks_from_msg > 1 and metadata.HasField("chunk_id"):
            yield from self._chunk(metadata, bytes(payload), position, redelivery_count)
            return
        if metadata.HasField("num_messages_in_batch") and not metadata.encryption_keys:
            try:
                singles = list(walk_batch(metadata, payload))
                for each in singles:
                    texts.apply(each.metadata)
            except ProtocolError as error:
                reason = _problem_of_batch(metadata, error)
                yield self._message(metadata, bytes(payload), position, redelivery_count, reason)
                return
            first = index - metadata.num_messages_in_batch + 1
            for each in singles:
                if not each.metadata.compacted_out:
                    number = first + each.batch_index if index >= 0 else -1
                    yield self._single(
                        metadata, each.metadata, bytes(each.payload), position, redelivery_count
                    )._replace(
                        batch_index=each.batch_index, batch_size=metadata.num_messages_in_batch, broker_index=number
                    )
            return
        plain, problem = _plain(metadata, bytes(payload))
        yield self._message(metadata, plain, position, redelivery_count, problem)._replace(broker_index=index)

    def _chunk(
        self, metadata: pb.MessageMetadata, payload: bytes, position: tuple[int, int], redelivery_count: int
    ) -> Iterator[ReceivedMessage]:
        if metadata.chunk_id == 0:
            while len(self._chunked) >= MAX_PENDING_CHUNKED:
                del self._chunked[next(iter(self._chunked))]
            self._chunked[metadata.uuid] = _Chunks([], [], 0)
        known = self._chunked.get(metadata.uuid)
        if known is None or len(known.parts) != metadata.chunk_id:
            return  # the first chunk is missing: another consumer has it, or it was dropped
        size = known.size + len(payload)
        if size > MAX_CHUNKED_BYTES:
            del self._chunked[metadata.uuid]
            return
        known.parts.append(payload)
        known.entries.append(position)
        self._chunked[metadata.uuid] = known._replace(size=size)
        if len(known.parts) < metadata.num_chunks_from_msg:
            return
        del self._chunked[metadata.uuid]
        plain, problem = _plain(metadata, b"".join(known.parts))
        whole = self._message(metadata, plain, position, redelivery_count, problem)
        yield whole._replace(entries=tuple(known.entries))

    def _message(
        self,
        metadata: pb.MessageMetadata,
        payload: bytes,
        position: tuple[int, int],
        redelivery_count: int,
        problem: str | None,
    ) -> ReceivedMessage:
        """Return the message of an entry that is no batch; MessageMetadata has the same fields as a batched message."""
        single = pb.SingleMessageMetadata(payload_size=len(payload), properties=metadata.properties)
        if metadata.HasField("partition_key"):
            single.partition_key = metadata.partition_key
            single.partition_key_b64_encoded = metadata.partition_key_b64_encoded
        single.event_time, single.sequence_id = metadata.event_time, metadata.sequence_id
        single.ordering_key, single.null_value = metadata.ordering_key, metadata.null_value
        return self._single(metadata, single, payload, position, redelivery_count)._replace(problem=problem)

    def _single(
        self,
        metadata: pb.MessageMetadata,
        single: pb.SingleMessageMetadata,
        payload: bytes,
        position: tuple[int, int],
        redelivery_count: int,
    ) -> ReceivedMessage:
        text = single.partition_key if single.HasField("partition_key") else None
        return ReceivedMessage(
            self._topic,
            *position,
            -1,
            0,
            payload,
            key_bytes(text, encoded=single.partition_key_b64_encoded),
            text,
            single.ordering_key,
            {each.key: each.value for each in single.properties},
            signed(metadata.publish_time),
            signed(single.event_time),
            signed(single.sequence_id if single.HasField("sequence_id") else metadata.sequence_id),
            metadata.producer_name,
            redelivery_count,
            metadata.schema_version,
            -1,
            single.null_value,
            metadata.replicated_from,
            bool(metadata.encryption_keys),
            pb.CompressionType.Name(metadata.compression),
            metadata.uncompressed_size,
            (position,),
            "the payload is encrypted" if metadata.encryption_keys else None,
        )


def key_bytes(text: str | None, *, encoded: bool) -> bytes | None:
    """Return the key that the metadata contain as `text`, in Base64 if `encoded`; invalid Base64 is the key itself."""
    if text is None:
        return None
    if encoded:
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            pass
    return text.encode("utf-8", "surrogateescape")


def _problem_of_batch(metadata: pb.MessageMetadata, error: ProtocolError) -> str:
    """Why an entry has no readable messages: a foreign format, which this broker stores and does not convert."""
    formats = [each.value for each in metadata.properties if each.key == _ENTRY_FORMAT]
    return f"not converted from entry.format={formats[0]}: see messageConverters" if formats else str(error)


def _plain(metadata: pb.MessageMetadata, payload: bytes) -> tuple[bytes, str | None]:
    """Return the decompressed payload and None, or the payload as stored and the reason why it cannot be read."""
    if metadata.encryption_keys:
        return payload, "the payload is encrypted"
    if metadata.compression == pb.NONE:
        return payload, None
    try:
        return decompress(metadata.compression, payload, metadata.uncompressed_size), None
    except ProtocolError as error:
        return payload, str(error)
