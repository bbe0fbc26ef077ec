"""Quarantine: entries and messages that could not be read, with position and reason, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from magnetar.pipeline.errors import CorruptEntryError

MAX_KEPT: Final = 1000
"""Positions kept by one Quarantine; all are counted."""
ON_CORRUPT: Final = ("fail", "quarantine")


class Reason(StrEnum):
    """Why something is in quarantine; the labels of counts."""

    CHECKSUM = "checksum"
    """The entry's CRC32C does not match."""
    HEADERS = "headers"
    """Headers or metadata of the entry do not parse."""
    BATCH = "batch"
    """A message of the batch does not hold together; those before it are delivered."""
    COMPRESSION = "compression"
    """The payload does not decompress to the size it declares, or declares more than is allowed."""
    CONVERSION = "conversion"
    """A Kafka-format payload that the converter refuses."""
    KEY = "key"
    """The key is flagged as base64 and is not."""
    CHUNKS = "chunks"
    """A chunked message of which chunks are missing."""
    VALUE = "value"
    """The payload does not fit the schema."""
    ENCRYPTED = "encrypted"
    """The payload is encrypted, and encrypted messages are not wanted."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One position: an entry, or from batch_index on (Reason.BATCH), or that one message of a batch.

    index: broker entry index of the message, or of the entry's last message; None without.
    messages: how many messages are missing for it, as far as is known.
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


class Quarantine:
    """Collects what cannot be read, or raises for the first of it.

    entries: the first MAX_KEPT positions. counts: all of them by reason. messages: missing for them.
    """

    def __init__(self, on_corrupt: str = "fail") -> None:
        if on_corrupt not in ON_CORRUPT:
            raise ValueError(f"onCorrupt is {' or '.join(ON_CORRUPT)}, not {on_corrupt!r}")
        self._fail = on_corrupt == "fail"
        self.entries: list[Quarantined] = []
        self.counts: Counter[Reason] = Counter()
        self.messages = 0

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, found: Quarantined) -> None:
        """Count it. Raises: CorruptEntryError when the job is to fail."""
        if self._fail:
            raise CorruptEntryError(found)
        self.report(found)

    def report(self, found: Quarantined) -> None:
        """Count it without ever failing: what is no damage (chunks that were never published)."""
        self.counts[found.reason] += 1
        self.messages += found.messages
        if len(self.entries) < MAX_KEPT:
            self.entries.append(found)
