"""Sends messages to a topic as separate entries, ahead of their receipts; picks partitions as the Java client does."""

from __future__ import annotations

import asyncio
import base64
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from magnetar.client.connection import open_connection
from magnetar.client.errors import InputError, RefusedError, RetryError
from magnetar.client.lookup import find_owner, partitions
from magnetar.client.pool import ConnectionPool
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.batches import encode_entry
from magnetar.protocol.compression import compress
from magnetar.protocol.key_hash import java_string_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.client.address import Address, Credentials
    from magnetar.client.encryption import Encryption
    from magnetar.client.producers import OpenedProducer, Producers, Receipt

MAX_IN_FLIGHT = 500


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send. Times in milliseconds, 0 for none. A key of bytes is stored in base64, like the
    separate key of a KeyValue schema.
    """

    payload: bytes
    key: str | bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    deliver_at_ms: int = 0
    null_value: bool = False


def _partition_key(key: str | bytes) -> str:
    """Return the key as the text in the metadata; the partition depends on this text, too."""
    return base64.b64encode(key).decode() if isinstance(key, bytes) else key


class _Part:
    """The producer of one topic or partition."""

    def __init__(self, topic: str, room: asyncio.Semaphore, encryption: Encryption | None) -> None:
        self.topic = topic
        self._encryption = encryption
        self.producers: Producers | None = None
        self.opened: OpenedProducer | None = None
        self._room = room
        self._waiting: dict[int, asyncio.Future[Receipt]] = {}
        self._last_sequence_id = -1
        self._failure: RefusedError | RetryError | None = None

    def send(self, outgoing: Outgoing, codec: int) -> asyncio.Future[Receipt]:
        """Raises: RefusedError, RetryError, InputError for a message that the broker does not take."""
        if self._failure is not None:
            raise self._failure
        assert self.producers is not None, "open has set it"
        assert self.opened is not None, "the same"
        sequence_id = self._last_sequence_id + 1
        entry = self._entry(outgoing, codec, sequence_id)
        if len(entry) > self.producers.connection.max_message_bytes:
            limit = self.producers.connection.max_message_bytes
            raise InputError(f"a message of {len(entry)} bytes: the broker takes {limit} (maxMessageSize)")
        self._last_sequence_id = sequence_id
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting[sequence_id] = receipt
        self.producers.connection.write(requests.send(self.opened.producer_id, sequence_id, sequence_id, 1, entry))
        return receipt

    def _entry(self, outgoing: Outgoing, codec: int, sequence_id: int) -> bytes:
        assert self.opened is not None, "open has set it"
        metadata = pb.MessageMetadata(
            producer_name=self.opened.name, sequence_id=sequence_id, publish_time=time.time_ns() // 1_000_000
        )
        if outgoing.key is not None:
            metadata.partition_key = _partition_key(outgoing.key)
            if isinstance(outgoing.key, bytes):
                metadata.partition_key_b64_encoded = True
        for key, value in outgoing.properties.items():
            metadata.properties.add(key=key, value=value)
        if outgoing.event_time_ms:
            metadata.event_time = outgoing.event_time_ms
        if outgoing.deliver_at_ms:
            metadata.deliver_at_time = outgoing.deliver_at_ms
        if outgoing.null_value:
            metadata.null_value = True
        if self.opened.schema_version:
            metadata.schema_version = self.opened.schema_version
        if codec != pb.NONE:
            metadata.compression, metadata.uncompressed_size = codec, len(outgoing.payload)  # type: ignore[assignment]
        payload = compress(codec, outgoing.payload)
        return encode_entry(
            metadata, payload if self._encryption is None else self._encryption.encrypt(metadata, payload)
        )

    # --- ProducerEvents ------------------------------------------------------------------------------------------

    def on_receipt(self, receipt: Receipt) -> None:
        waiting = self._waiting.pop(receipt.sequence_id, None)
        if waiting is not None:
            self._room.release()
            if not waiting.done():
                waiting.set_result(receipt)

    def on_failed(self, error: RefusedError | RetryError) -> None:
        self._failure = error
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            self._room.release()
            if not each.done():
                each.set_exception(error)
                each.exception()  # a caller that has ended reads no result, which asyncio would log


class TopicSender:
    """Open with `async with`. A key decides the partition; messages without a key take the partitions in turn.

    schema: encoding of the messages; None for bytes. codec: pb.CompressionType. encryption: of payloads; None for none.
    """

    def __init__(
        self,
        service: Address,
        credentials: Credentials,
        topic: str,
        *,
        schema: pb.Schema | None = None,
        codec: int = pb.NONE,
        encryption: Encryption | None = None,
    ) -> None:
        self._encryption = encryption
        self._service, self._credentials, self._topic = service, credentials, topic
        self._schema, self._codec = schema, codec
        self._pool = ConnectionPool(credentials)
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._parts: list[_Part] = []
        self._next = 0

    async def __aenter__(self) -> Self:
        """Attach to the topic or each partition. Raises: RefusedError, RetryError, InputError."""
        connection = await open_connection(self._service, self._credentials)
        try:
            count = await partitions(connection, self._topic, create=True)
        finally:
            connection.close()
        names = [f"{self._topic}-partition-{index}" for index in range(count)] or [self._topic]
        self._parts = [_Part(name, self._room, self._encryption) for name in names]
        self._next = random.randrange(len(names))  # noqa: S311 - spreads messages, keeps no secret
        try:
            for part in self._parts:
                owner = await find_owner(self._pool, self._service, part.topic)
                part.producers = await self._pool.producers(owner)
                part.opened = await part.producers.open(
                    part.topic, None, part, self._schema, encrypted=self._encryption is not None
                )
        except BaseException:
            self._pool.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pool.close()

    async def send(self, outgoing: Outgoing) -> asyncio.Future[Receipt]:
        """Send once the window has room. The future ends with the receipt: then the message is on the broker's disk.

        Raises: RefusedError, RetryError, InputError.
        """
        await self._room.acquire()
        if outgoing.key is not None:
            part = self._parts[java_string_hash(_partition_key(outgoing.key)) % len(self._parts)]
        else:
            part = self._parts[self._next % len(self._parts)]
            self._next += 1
        try:
            return part.send(outgoing, self._codec)
        except BaseException:
            self._room.release()
            raise
