"""The outer form of an entry, and the foreign format that its metadata name.

    headers-and-payload = [0x0e01 | u32 crc32c] | u32 metadata size | MessageMetadata | payload

The checksum covers everything after itself. Entries without it (KoP wrote such, and very old clients) are legal. The
broker entry metadata prefix (0x0e02) is not part of these bytes: the caller strips and re-attaches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from magnetar.converters.errors import EntryChecksumError, EntryError
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

ENTRY_FORMAT: Final = "entry.format"
"""Property of MessageMetadata that names a foreign payload format."""
ENTRY_FORMAT_ORIGIN: Final = "entry.format.origin"
"""The property that replaces `entry.format` in a converted entry (guarantee G5)."""
ENTRY_FORMAT_RAW: Final = "entry.format.raw"
"""Consumer or subscription property: with the value `true` the stored bytes are sent, unconverted."""
HEAD_BYTES: Final = 64
"""The number of payload bytes that `accepts` may look at."""

CHECKSUM_MAGIC: Final = 0x0E01
# KeyValue{key="entry.format"} on the wire: field 1, length 12. Searching for it is the fastest test of an entry.
FORMAT_NEEDLE = b"\x0a\x0centry.format"


class Entry:
    """Headers-and-payload bytes, split into metadata and payload; metadata is parsed at the first use."""

    __slots__ = ("_metadata", "data", "metadata_start", "payload_start")

    def __init__(self, data: bytes) -> None:
        """Raises: EntryError when the frame leaves `data`."""
        self.data = data
        start = 6 if int.from_bytes(data[:2], "big") == CHECKSUM_MAGIC else 0
        self.metadata_start = start + 4
        self.payload_start = self.metadata_start + int.from_bytes(data[start : start + 4], "big")
        if self.metadata_start > len(data) or self.payload_start > len(data):
            raise EntryError(f"metadata ends at {self.payload_start}, the entry at {len(data)}")
        self._metadata: MessageMetadata | None = None

    @property
    def metadata(self) -> MessageMetadata:
        """The parsed metadata; do not change it. Raises: EntryError."""
        if self._metadata is None:
            try:
                parsed = MessageMetadata.FromString(self.data[self.metadata_start : self.payload_start])
            except DecodeError as error:
                raise EntryError(f"MessageMetadata cannot be parsed: {error}") from error
            if not parsed.IsInitialized():
                raise EntryError("MessageMetadata lacks required fields")
            self._metadata = parsed
        return self._metadata

    @property
    def payload(self) -> memoryview:
        return memoryview(self.data)[self.payload_start :]

    @property
    def head(self) -> memoryview:
        return memoryview(self.data)[self.payload_start : self.payload_start + HEAD_BYTES]

    def verify_checksum(self) -> None:
        """Raises: EntryChecksumError when a checksum is present and wrong."""
        if self.metadata_start == 4:
            return
        stored = int.from_bytes(self.data[2:6], "big")
        computed = crc32c(memoryview(self.data)[6:])
        if stored != computed:
            raise EntryChecksumError(f"entry checksum is {stored:#010x}, computed {computed:#010x}")


def build_entry(metadata: bytes, payload: bytes | bytearray | memoryview) -> bytes:
    """Return headers and payload of an entry, with checksum, from serialized metadata and a payload."""
    body = b"".join((len(metadata).to_bytes(4, "big"), metadata, payload))
    return b"".join((CHECKSUM_MAGIC.to_bytes(2, "big"), crc32c(body).to_bytes(4, "big"), body))


def entry_format(metadata: MessageMetadata) -> str | None:
    """Return the last value of the property, as clients do; in lower case, because upstream ignores the case."""
    value = None
    for pair in metadata.properties:
        if pair.key == ENTRY_FORMAT:
            value = pair.value
    return None if value is None else value.lower()


def replace_entry_format(metadata: MessageMetadata, origin: str) -> None:
    """Swap `entry.format` for `entry.format.origin`, so that no client parses converted bytes as the old format."""
    kept = [(p.key, p.value) for p in metadata.properties if p.key not in (ENTRY_FORMAT, ENTRY_FORMAT_ORIGIN)]
    del metadata.properties[:]
    for key, value in (*kept, (ENTRY_FORMAT_ORIGIN, origin)):
        metadata.properties.add(key=key, value=value)


def declared_messages(metadata: MessageMetadata) -> int:
    """Return num_messages_in_batch, or 1 without it: clients, permits and indexes count so many messages."""
    return int(metadata.num_messages_in_batch)


def wants_raw(properties: Mapping[str, str]) -> bool:
    """Whether a consumer with these subscription or consumer properties requests stored bytes."""
    return properties.get(ENTRY_FORMAT_RAW, "").strip().lower() == "true"
