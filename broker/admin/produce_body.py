"""The body of a produce request: decodes its head at once, its messages in slices.

A body may have MAX_MESSAGES messages. A large body keeps each message as JSON until `slices` decodes the message, so
that the memory of a request is about the size of its payloads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from magnetar.broker.admin.request_limits import check_shape
from magnetar.broker.compat.jackson_body import decode_body
from magnetar.broker.errors import RestError
from magnetar.broker.slices import give_way

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

MAX_MESSAGES: Final = 10_000
MAX_FIELDS_BYTES: Final = 256 << 10
"""Largest size of a message without its payload, as JSON."""
_SPLIT_BYTES: Final = 64 << 10
"""A larger body is split into its messages, which are decoded one after the other."""
_SLICE_MESSAGES: Final = 100
_SLICE_BYTES: Final = 512 << 10
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw] | None)
Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class ProducerMessage(msgspec.Struct, rename="camel"):
    """One message; times in ms."""

    payload: str | None = None
    properties: dict[str, str | None] | None = None
    key: str | None = None
    replication_clusters: list[str] | None = None
    event_time: str | None = None
    sequence_id: Long = 0
    disable_replication: bool = False
    deliver_at: Long = 0
    deliver_after_ms: Long = 0


class ProducerMessages(msgspec.Struct, rename="camel"):
    """The body. The schemas are JSON in a text: {"type", "schema" (base64), "name", "properties"}."""

    key_schema: str | None = None
    value_schema: str | None = None
    producer_name: str | None = None
    schema_version: Long = -1
    messages: list[ProducerMessage | None] | None = None


@dataclass(frozen=True, slots=True)
class ProduceBody:
    """`head`: all fields but the messages. `messages`: decoded, or still JSON; None without a list of messages."""

    head: ProducerMessages
    messages: Sequence[ProducerMessage | msgspec.Raw | None] | None

    @property
    def count(self) -> int:
        return len(self.messages or ())

    async def slices(self) -> AsyncIterator[list[ProducerMessage]]:
        """Yield the messages in order, in slices; yield to the loop after each slice.

        Raises 500 for a body without messages or a message without payload, 400 for JSON that is not a message.
        """
        if self.messages is None:
            raise _incomplete()
        part: list[ProducerMessage] = []
        size = 0
        for each in self.messages:
            message = _decoded(each) if isinstance(each, msgspec.Raw) else each
            if message is None or message.payload is None:
                raise _incomplete()
            part.append(message)
            size += len(message.payload)
            if len(part) >= _SLICE_MESSAGES or size >= _SLICE_BYTES:
                yield part
                part, size = [], 0
                await give_way()
        if part:
            yield part


def _incomplete() -> RestError:
    return RestError(500, "messages and their payloads are required")


async def produce_body(raw: bytes) -> ProduceBody | None:
    """Decode the body; None for an empty body or null. Raises 400, 413."""
    await check_shape(raw)
    try:
        found = _split(raw) if len(raw) > _SPLIT_BYTES else _whole(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise RestError(400, f"body: {e}") from e
    if found is not None and found.count > MAX_MESSAGES:
        raise RestError(413, f"a request may have {MAX_MESSAGES} messages, not {found.count}")
    return found


def _whole(raw: bytes) -> ProduceBody | None:
    head = decode_body(raw, ProducerMessages) if raw.strip() else None
    return None if head is None else ProduceBody(head, head.messages)


def _split(raw: bytes) -> ProduceBody:
    parts = _PARTS.decode(raw)
    texts = parts.pop("messages", None)
    rest = b",".join(b"%s:%s" % (msgspec.json.encode(key), bytes(value)) for key, value in parts.items())
    head = decode_body(b"{" + rest + b"}", ProducerMessages)
    assert head is not None, "only null is None"
    return ProduceBody(head, None if texts is None else _LIST.decode(texts))


def _decoded(text: msgspec.Raw) -> ProducerMessage | None:
    raw = bytes(text)
    try:
        if len(raw) > MAX_FIELDS_BYTES:
            _check_fields(raw)
        return decode_body(raw, ProducerMessage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise RestError(400, f"body: {e}") from e


def _check_fields(raw: bytes) -> None:
    """Raise 413 for a message that has more than MAX_FIELDS_BYTES besides its payload."""
    parts = _PARTS.decode(raw)
    payload = bytes(parts.get("payload", b""))
    if not payload.startswith(b'"') or len(raw) - len(payload) > MAX_FIELDS_BYTES:
        raise RestError(413, f"a message may have {MAX_FIELDS_BYTES} bytes besides its payload")
