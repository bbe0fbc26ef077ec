"""An entry or message that cannot be read: where it is and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a message is in quarantine; the labels of counts."""

    CHECKSUM = "checksum"
    """The entry's CRC32C does not match."""
    HEADERS = "headers"
    """Headers or metadata of the entry do not parse."""
    BATCH = "batch"
    """A message of the batch does not parse; the messages before it are delivered."""
    COMPRESSION = "compression"
    """The payload does not decompress to the size it declares, or declares more than is allowed."""
    CONVERSION = "conversion"
    """A Kafka-format payload that the converter refuses."""
    KEY = "key"
    """The key is flagged as base64 and is not valid base64."""
    CHUNKS = "chunks"
    """A chunked message of which chunks are missing."""
    VALUE = "value"
    """The payload does not fit the schema."""
    ENCRYPTED = "encrypted"
    """The payload is encrypted, and encrypted messages are not wanted."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An unreadable position: an entry, a batch from `batch_index` on (Reason.BATCH), or a single message of a batch.

    index: broker entry index of the message, or of the entry's last message; None without an index.
    messages: how many messages are missing because of this position, as far as is known.
    """

    topic: str
    ledger_id: int
    entry_id: int
    reason: Reason
    detail: str
    batch_index: int | None = None
    index: int | None = None
    messages: int = 1

    def __str__(self) -> str:
        batch = "" if self.batch_index is None else f":{self.batch_index}"
        index = "" if self.index is None else f" (index {self.index})"
        return f"{self.topic} {self.ledger_id}:{self.entry_id}{batch}{index}: {self.reason}: {self.detail}"
