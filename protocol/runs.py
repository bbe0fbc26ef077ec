"""EntryRun: consecutive SENDs of one producer found in one socket read. The broker publishes entries in runs."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final


class EntryFlag:
    """Flags of the special entries of a run; a run without rare flags takes the short path.

    Plain numbers: operations of an enum.IntFlag cost fifty times as much, several times a run.
    """

    HAS_CHECKSUM: Final = 1
    BAD_CHECKSUM: Final = 2
    CHUNK: Final = 4
    """CommandSend.is_chunk."""
    NOT_LAST_CHUNK: Final = 8
    """MessageMetadata.chunk_id is neither -1 nor num_chunks_from_msg - 1."""
    MARKER: Final = 16
    """CommandSend.marker or MessageMetadata.marker_type."""
    TXN: Final = 32
    """CommandSend carries a transaction id."""
    UNREADABLE: Final = 64
    """The MessageMetadata does not parse or lacks a required field."""
    ENCRYPTED: Final = 128
    """MessageMetadata.encryption_keys."""
    HAS_HIGHEST: Final = 256
    """CommandSend.highest_sequence_id is present."""
    BATCHED: Final = 512
    """MessageMetadata.num_messages_in_batch is present."""
    NAMES_FORMAT: Final = 1024
    """A property has the key `entry.format`: a converter may take the entry."""
    HAS_DELIVER_AT: Final = 2048
    NO_ENTRY: Final = 4096
    """No bytes behind the command, or a cut-off checksum: the connection closes."""
    SHADOW: Final = 8192
    """CommandSend has a message id (shadow topics)."""


@dataclass
class _Fields:
    producer_id: int
    count: int
    data: bytes
    offsets: bytes
    sequence_ids: bytes
    highest_sequence_ids: bytes
    num_messages: bytes
    deliver_at: bytes | None
    flags: bytes
    any_flags: int
    all_flags: int
    total_messages: int
    ascending: bool
    size_bytes: int
    gap: int = 0


NO_HIGHEST: Final = -1
"""The highest sequence id of an entry whose SEND has none, where its own sequence id is lower."""


class EntryRun(_Fields):
    """`count` entries of a producer, in the order of their SENDs. Immutable, except for the gaps.

    data: the entries' headers and payload one behind the other, untouched, each behind `gap` bytes that are reserved
    for the header of a log record; offsets: native int64[count + 1] into data, where these parts begin and end.
    size_bytes: of the entries without gaps.
    sequence_ids, highest_sequence_ids (0 when absent), num_messages, deliver_at: native int64[count], u64 of the wire
    as signed. flags: native uint32[count] of EntryFlag; any_flags and all_flags are their OR and AND. ascending: each
    sequence id is above the previous id.
    """

    are_records = False
    """Whether the gaps contain the headers of log records: `data` is then a ledger's slab."""
    wanted_gap = 0
    """The gap with which this run would not have needed a copy; 0: unknown, or the run had this gap."""

    @classmethod
    def from_cut(cls, item: tuple[Any, ...]) -> EntryRun:
        """Make a run from an item of `speed.cut`, whose fields have the order above."""
        return cls(*item)

    @classmethod
    def single(
        cls, body: bytes, *, producer_id: int = 0, sequence_id: int = 0, num_messages: int = 1, flags: int = 0
    ) -> EntryRun:
        """A run of one entry, for appends of the broker itself."""
        sequence = array("q", [sequence_id]).tobytes()
        return cls(
            producer_id,
            1,
            body,
            array("q", [0, len(body)]).tobytes(),
            sequence,
            array("q", [0]).tobytes(),
            array("q", [num_messages]).tobytes(),
            None,
            array("I", [flags]).tobytes(),
            flags,
            flags,
            num_messages,
            True,
            len(body),
        )

    @cached_property
    def _views(self) -> tuple[Any, Any, Any]:
        return (
            memoryview(self.offsets).cast("q"),
            memoryview(self.sequence_ids).cast("q"),
            memoryview(self.highest_sequence_ids).cast("q"),
        )

    def offset_view(self) -> memoryview:
        return memoryview(self.offsets).cast("q")

    def flag_view(self) -> memoryview:
        return memoryview(self.flags).cast("I")

    def message_counts(self) -> memoryview:
        return memoryview(self.num_messages).cast("q")

    def deliver_at_view(self) -> memoryview | None:
        return None if self.deliver_at is None else memoryview(self.deliver_at).cast("q")

    def entry(self, i: int) -> memoryview:
        """Return headers and payload of entry `i`, without a copy."""
        offsets = self._views[0]
        return memoryview(self.data)[offsets[i] + self.gap : offsets[i + 1]]

    def largest_entry_bytes(self) -> int:
        offsets = self._views[0]
        largest: int = max(offsets[k + 1] - offsets[k] for k in range(self.count))
        return largest - self.gap

    def sequence(self, i: int) -> int:
        value: int = self._views[1][i]
        return value

    def high(self, i: int) -> int:
        """Return the highest sequence id of entry `i`: the end of its range, or its only id."""
        _, sequences, highest = self._views
        value: int = max(sequences[i], highest[i])
        if value == 0 and sequences[i] < 0 and not self.flag_view()[i] & EntryFlag.HAS_HIGHEST:
            return NO_HIGHEST
        return value

    def slice(self, i: int, j: int) -> EntryRun:
        """Return the entries i .. j - 1 as a separate run."""
        offsets = self._views[0]
        base = offsets[i]
        flags = self.flag_view()[i:j]
        any_flags, all_flags = 0, 0xFFFFFFFF
        for flag in flags:
            any_flags |= flag
            all_flags &= flag
        counts = self.message_counts()[i:j]
        sequences = self._views[1]
        return EntryRun(
            self.producer_id,
            j - i,
            self.data[base : offsets[j]],
            array("q", [o - base for o in offsets[i : j + 1]]).tobytes(),
            self.sequence_ids[8 * i : 8 * j],
            self.highest_sequence_ids[8 * i : 8 * j],
            counts.tobytes(),
            None
            if self.deliver_at is None or not any_flags & EntryFlag.HAS_DELIVER_AT
            else self.deliver_at[8 * i : 8 * j],
            flags.tobytes(),
            any_flags,
            all_flags,
            sum(n for n in counts if n > 0),
            all(sequences[k] < sequences[k + 1] for k in range(i, j - 1)),
            offsets[j] - base - (j - i) * self.gap,
            self.gap,
        )
