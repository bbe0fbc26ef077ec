"""Kafka headers as Pulsar properties and back, without loss.

Properties are UTF-8 text; header keys and values are bytes, values may be null. Headers keep their order and
duplicates, one property each; companion properties behind them name values that text cannot carry:

| companion               | value                                                     |
|-------------------------|-----------------------------------------------------------|
| __kafka.header.b64      | indexes of properties whose value is base64               |
| __kafka.header.null     | indexes of properties whose header value is null ("")     |
| __kafka.header.key.b64  | indexes of properties whose key is base64                 |
| __kafka.timestamp       | a record timestamp below -1, which event_time cannot hold |
| __kafka.offset          | the record's offset, if an option of the converter is set |
| __kafka.headers         | the number of headers, if a key starts with `__kafka.`; always last |

Indexes are decimal, separated by commas. Companions follow all headers, so `__kafka.headers`
tells them from headers with the same key.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, NamedTuple

from magnetar.converters.errors import ConversionError
from magnetar.converters.kafka.records import Header, RawHeaders
from magnetar.converters.kafka.varints import encode_unsigned

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX = "__kafka."
VALUE_BASE64 = PREFIX + "header.b64"
VALUE_NULL = PREFIX + "header.null"
KEY_BASE64 = PREFIX + "header.key.b64"
TIMESTAMP = PREFIX + "timestamp"
OFFSET = PREFIX + "offset"
HEADER_COUNT = PREFIX + "headers"
_COMPANIONS = frozenset((VALUE_BASE64, VALUE_NULL, KEY_BASE64, TIMESTAMP, OFFSET))
PREFIX_BYTES = PREFIX.encode()


def encode_property(key: bytes, value: bytes) -> bytes:
    """One KeyValue as field 1 of SingleMessageMetadata; both must be UTF-8."""
    pair = b"".join((b"\x0a", encode_unsigned(len(key)), key, b"\x12", encode_unsigned(len(value)), value))
    return b"\x0a" + encode_unsigned(len(pair)) + pair


def encode_headers(headers: RawHeaders, extra: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return all properties of one message: headers, then `extra` companions, then the companions of the headers."""
    parts: list[bytes] = []
    marks: dict[str, list[str]] = {VALUE_BASE64: [], VALUE_NULL: [], KEY_BASE64: []}
    looks_like_companion = False
    for index, (key, value) in enumerate(headers):
        name, text = key, value
        if text is None:
            text = b""
            marks[VALUE_NULL].append(str(index))
        elif not is_utf8(text):
            text = b64encode(text)
            marks[VALUE_BASE64].append(str(index))
        if not is_utf8(name):
            name = b64encode(name)
            marks[KEY_BASE64].append(str(index))
        looks_like_companion = looks_like_companion or name.startswith(PREFIX_BYTES)
        parts.append(encode_property(name, text))
    companions = [*extra, *((name, ",".join(indexes)) for name, indexes in marks.items() if indexes)]
    if looks_like_companion:
        companions.append((HEADER_COUNT, str(len(headers))))
    parts += [encode_property(name.encode(), text.encode()) for name, text in companions]
    return b"".join(parts)


def encode_headers_kop(headers: RawHeaders) -> bytes:
    """Properties as KoP makes them: text with replacement characters. A null value, at which KoP fails, becomes ""."""
    return b"".join(
        encode_property(_replaced(key), b"" if value is None else _replaced(value)) for key, value in headers
    )


class DecodedProperties(NamedTuple):
    """The fields of a record, from the properties of a converted message."""

    headers: tuple[Header, ...]
    timestamp: int | None = None
    offset: int | None = None


def decode_properties(pairs: Sequence[tuple[str, str]]) -> DecodedProperties:
    """Reverse `encode_headers`; of a native Pulsar message every property is a header.

    Raises: ConversionError for companions that contradict the properties.
    """
    count = len(pairs)
    if pairs and pairs[-1][0] == HEADER_COUNT:
        count = _number(pairs[-1][1], len(pairs) - 1)
        companions = dict(pairs[count:-1])
    else:
        while count and pairs[count - 1][0] in _COMPANIONS:
            count -= 1
        companions = dict(pairs[count:])
    in_base64, null, key_in_base64 = (
        {_number(text, count - 1) for text in companions.get(name, "").split(",") if text}
        for name in (VALUE_BASE64, VALUE_NULL, KEY_BASE64)
    )
    headers: list[Header] = []
    for index, (name, text) in enumerate(pairs[:count]):
        key = _from_base64(name).decode("utf-8", "surrogateescape") if index in key_in_base64 else name
        value = None if index in null else _from_base64(text) if index in in_base64 else text.encode()
        headers.append(Header(key, value))
    timestamp, offset = companions.get(TIMESTAMP), companions.get(OFFSET)
    return DecodedProperties(
        tuple(headers),
        None if timestamp is None else _signed(timestamp),
        None if offset is None else _signed(offset),
    )


def is_utf8(data: bytes) -> bool:
    """Whether protobuf strings can hold these bytes."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _replaced(data: bytes) -> bytes:
    return data if data.isascii() else data.decode("utf-8", "replace").encode()


def _number(text: str, maximum: int) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= maximum:
        return int(text)
    raise ConversionError(f"{text[:20]!r} is no index up to {maximum}")


def _signed(text: str) -> int:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 19:
        return int(text)
    raise ConversionError(f"{text[:20]!r} is no 64-bit number")


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise ConversionError(f"{text[:20]!r} is no base64") from error
