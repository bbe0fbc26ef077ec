"""EntryChunk: consecutive entries of one topic partition, as stored. The output of readers of the log,
for the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

NOT_PARTITIONED = -1
"""`EntryChunk.partition` of a topic that is no partition."""


@dataclass(frozen=True, slots=True, eq=False)
class EntryChunk:
    """Consecutive entries of one ledger, in ascending order of their entry ids; ids may have gaps (compaction).

    topic: full name, ``persistent://tenant/namespace/name[-partition-N]``.
    partition: N, or NOT_PARTITIONED.
    data: holds the bodies; it is not copied, and must not change while record batches of it are being made. It may hold
        other bytes between the bodies (record headers of a ledger file).
    offsets, ends: int64[n], body i is ``data[offsets[i]:ends[i]]``: broker entry metadata if there is any
        (``0x0e02 | u32 size | BrokerEntryMetadata``), then the client's headers and payload
        (``[0x0e01 | u32 crc32c] | u32 size | MessageMetadata | payload``).
    entry_ids: int64[n].
    verified: the reader has compared a checksum over each body; the broker compared that of the client when it took it.
    """

    topic: str
    partition: int
    ledger_id: int
    data: memoryview | bytes
    offsets: NDArray[np.int64]
    ends: NDArray[np.int64]
    entry_ids: NDArray[np.int64]
    verified: bool = False

    def __post_init__(self) -> None:
        n = len(self.offsets)
        assert len(self.ends) == n, "one end an entry"
        assert len(self.entry_ids) == n, "one id an entry"
        assert n == 0 or (int(self.offsets.min()) >= 0 and int(self.ends.max()) <= len(self.data)), "bodies are in data"

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def partitioned_topic(self) -> str:
        """The topic's name without ``-partition-N``."""
        return self.topic if self.partition < 0 else self.topic.removesuffix(f"-partition-{self.partition}")

    @property
    def size_bytes(self) -> int:
        """Bytes of all bodies."""
        return int((self.ends - self.offsets).sum())

    def entry(self, i: int) -> memoryview:
        """Body i, not copied."""
        return memoryview(self.data)[int(self.offsets[i]) : int(self.ends[i])]

    def slice(self, i: int, j: int) -> EntryChunk:
        """Entries i .. j - 1; shares the data."""
        return replace(self, offsets=self.offsets[i:j], ends=self.ends[i:j], entry_ids=self.entry_ids[i:j])

    def picked(self, which: NDArray[np.bool_]) -> EntryChunk:
        """The entries for which `which` is true; shares the data."""
        if which.all():
            return self.slice(0, len(which))
        return replace(self, offsets=self.offsets[which], ends=self.ends[which], entry_ids=self.entry_ids[which])

    @classmethod
    def of_bodies(
        cls,
        topic: str,
        bodies: Iterable[bytes],
        *,
        partition: int = NOT_PARTITIONED,
        ledger_id: int = 0,
        first: int = 0,
    ) -> EntryChunk:
        """A chunk of entries that stand alone, with consecutive entry ids from `first` on; copies the bodies once."""
        parts = list(bodies)
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        offsets = np.concatenate((np.zeros(1, np.int64), ends))[: len(parts)]
        ids = np.arange(first, first + len(parts), dtype=np.int64)
        return cls(topic, partition, ledger_id, b"".join(parts), offsets, ends, ids)
