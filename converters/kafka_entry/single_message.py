"""SingleMessageMetadata of one Kafka record; written by hand, because this code runs once per record.

    u32 size | 1 properties | 2 partition_key | 3 payload_size | 5 event_time | 6 partition_key_b64_encoded
             | 7 ordering_key | 9 null_value                                  (protobuf fields, in this order)

| Kafka           | faithful                                                | kop                               |
|-----------------|---------------------------------------------------------|-----------------------------------|
| key             | partition_key = base64 with flag (or text as an option) | partition_key = text              |
|                 | ordering_key = raw                                      | ordering_key = raw                |
| key null        | no key fields                                           | no key fields                     |
| value null      | null_value, payload size 0                              | same                              |
| headers         | properties and companions (properties.py)               | properties as text                |
| timestamp >= 0  | event_time                                              | lost                              |
| timestamp -1    | no event_time                                           | -                                 |
"""

from __future__ import annotations

from binascii import b2a_base64

from magnetar.converters.kafka.records import NO_TIMESTAMP, RawHeaders
from magnetar.converters.kafka.varints import SMALL_VARINTS, encode_unsigned
from magnetar.converters.kafka_entry.options import KafkaOptions, KeyText, Mode
from magnetar.converters.kafka_entry.properties import (
    OFFSET,
    PREFIX_BYTES,
    TIMESTAMP,
    VALUE_BASE64,
    VALUE_NULL,
    encode_headers,
    encode_headers_kop,
    encode_property,
    is_utf8,
)

HOLE = b"\x00\x00\x00\x04\x18\x00\x20\x01"
"""A slot without a message: u32 size, SingleMessageMetadata{payload_size=0, compacted_out=true}."""

_MAX_REMEMBERED = 1024
_SIZES = tuple(b"\x18" + varint for varint in SMALL_VARINTS)
_BASE64_FLAG = b"\x30\x01"
_NULL_VALUE = b"\x48\x01"


class SingleMessageEncoder:
    """Encodes records one after the other; the only state is a cache of the bytes of the last timestamp."""

    __slots__ = (
        "_base64_keys",
        "_companions",
        "_header_keys",
        "_kop",
        "_needs_no_companion",
        "_offset_property",
        "_plain",
        "_text_keys",
        "_time",
        "_time_bytes",
        "_time_high",
        "_time_high_bytes",
    )

    def __init__(self, options: KafkaOptions) -> None:
        self._kop = options.mode is Mode.KOP
        self._text_keys = options.key is KeyText.UTF8
        self._base64_keys = not (self._kop or self._text_keys)
        self._offset_property = options.offset_property
        self._header_keys: dict[bytes, bytes] = {}
        self._companions: dict[tuple[str, str], bytes] = {}
        self._time = NO_TIMESTAMP
        self._time_bytes = b""
        self._time_high = -1
        self._time_high_bytes = b""
        self._needs_no_companion = not (options.offset_property or self._kop)
        self._plain = self._needs_no_companion

    def encode(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: RawHeaders | None
    ) -> bytes:
        """Return size and metadata of one message; in the batch, the value follows them."""
        if timestamp != self._time:
            self._remember(timestamp)
        if not value:
            size = b"\x18\x00"
        else:
            length = len(value)
            size = _SIZES[length] if length < 4096 else b"\x18" + encode_unsigned(length)
        if headers is None and self._plain:
            fields = b""
        elif self._plain:
            fields = self._header_fields(headers or ()) or self._properties(offset, timestamp, headers or ())
        else:
            fields = self._properties(offset, timestamp, headers or ())
        if key is None:
            fields += size + self._time_bytes
        else:
            text, flag = (
                (b2a_base64(key, newline=False), _BASE64_FLAG) if self._base64_keys else self._partition_key(key)
            )
            fields += b"\x12%b%b%b%b%b\x3a%b%b" % (
                SMALL_VARINTS[length] if (length := len(text)) < 4096 else encode_unsigned(length),
                text,
                size,
                self._time_bytes,
                flag,
                SMALL_VARINTS[length] if (length := len(key)) < 4096 else encode_unsigned(length),
                key,
            )
        if value is None:
            fields += _NULL_VALUE
        return len(fields).to_bytes(4, "big") + fields

    def _remember(self, timestamp: int) -> None:
        self._time = timestamp
        self._plain = timestamp >= NO_TIMESTAMP and self._needs_no_companion
        if self._kop or timestamp < 0:
            self._time_bytes = b""
        elif timestamp < 1 << 14:
            self._time_bytes = b"\x28" + encode_unsigned(timestamp)
        else:
            # The records of a batch are close in time: all but the low 14 bits are encoded once.
            if timestamp >> 14 != self._time_high:
                self._time_high = timestamp >> 14
                self._time_high_bytes = encode_unsigned(self._time_high)
            low = timestamp & 0x7F | 0x80, timestamp >> 7 & 0x7F | 0x80
            self._time_bytes = b"\x28%c%c%b" % (*low, self._time_high_bytes)

    def _partition_key(self, key: bytes) -> tuple[bytes, bytes]:
        if self._kop:
            return key.decode("utf-8", "replace").encode(), b""
        if self._text_keys:
            try:
                key.decode()
            except UnicodeDecodeError:
                pass
            else:
                return key, b""
        return b2a_base64(key, newline=False), _BASE64_FLAG

    def _header_fields(self, headers: RawHeaders) -> bytes | None:
        """Return all headers as properties with the companions of their values; None when a key needs a
        companion too.
        """
        parts: list[bytes] = []  # joined once: a record may have any number of headers
        names = self._header_keys
        in_base64, null = "", ""
        for index, (key, content) in enumerate(headers):
            name = names.get(key)
            if name is None:
                if not key.isascii() or key.startswith(PREFIX_BYTES):
                    return None
                name = b"\x0a%b%b\x12" % (encode_unsigned(len(key)), key)
                if len(names) < _MAX_REMEMBERED:
                    names[key] = name
            if content is None:
                value = b""
                null += f",{index}"
            elif content.isascii() or is_utf8(content):
                value = content
            else:
                value = b2a_base64(content, newline=False)
                in_base64 += f",{index}"
            size = SMALL_VARINTS[length] if (length := len(value)) < 4096 else encode_unsigned(length)
            length += len(name) + len(size)
            parts += (b"\x0a", SMALL_VARINTS[length] if length < 4096 else encode_unsigned(length), name, size, value)
        if in_base64:
            parts.append(self._companion(VALUE_BASE64, in_base64))
        if null:
            parts.append(self._companion(VALUE_NULL, null))
        return b"".join(parts)

    def _companion(self, name: str, indexes: str) -> bytes:
        """The property that lists header indexes; the records of a batch mostly share it."""
        found = self._companions.get((name, indexes))
        if found is None:
            found = encode_property(name.encode(), indexes[1:].encode())
            if len(self._companions) < _MAX_REMEMBERED:
                self._companions[name, indexes] = found
        return found

    def _properties(self, offset: int, timestamp: int, headers: RawHeaders) -> bytes:
        extra = [(OFFSET, str(offset))] if self._offset_property else []
        if self._kop:
            return encode_headers_kop(headers) + (encode_headers((), extra) if extra else b"")
        if timestamp < NO_TIMESTAMP:
            extra.append((TIMESTAMP, str(timestamp)))
        return encode_headers(headers, extra)
