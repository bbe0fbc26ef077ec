"""The metadata of a ledger: its bookies, its quorums, its end. Immutable values."""

from __future__ import annotations

import enum
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.bookkeeper.wire.digests import DigestType

__all__ = ["LedgerMetadata", "LedgerState", "Segment", "Versioned"]


class LedgerState(enum.IntEnum):
    """The ledger's writer changes OPEN -> CLOSED; a recovering client changes OPEN -> IN_RECOVERY -> CLOSED."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class Segment(NamedTuple):
    """The bookies of the entries from ``first`` on, in order, up to the first entry of the next segment."""

    first: int
    bookies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """``LedgerMetadataFormat`` without void fields: length and last entry count only in a CLOSED ledger."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    segments: tuple[Segment, ...]
    """At least one segment; the first segment begins with entry 0; the starts increase."""
    state: LedgerState = LedgerState.OPEN
    last_entry_id: int = -1
    length: int = 0
    """Payload bytes."""
    digest_type: DigestType | None = None
    """None in metadata of BookKeeper before 4.2: the opener's value applies."""
    password: bytes | None = None
    custom: Mapping[str, bytes] = field(default_factory=dict)
    created_ms: int | None = None
    token: int | None = None
    """A random mark of the creator, by which a create whose answer was lost finds out whether it succeeded."""
    format_version: int = 3
    """The version of the stored format; an update keeps this version."""

    @property
    def is_closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    @property
    def last_segment(self) -> Segment:
        return self.segments[-1]

    def segment_of(self, entry_id: int) -> Segment:
        """The segment that holds (or would hold) the entry."""
        return self.segments[bisect_right(self.segments, entry_id, key=lambda segment: segment.first) - 1]

    def write_set(self, entry_id: int) -> tuple[str, ...]:
        """Return the bookies of the entry's write set, in the order in which BookKeeper's client reads from them."""
        bookies = self.segment_of(entry_id).bookies
        return tuple(bookies[(entry_id + index) % self.ensemble_size] for index in range(self.write_quorum))

    def with_segment(self, first: int, bookies: tuple[str, ...]) -> LedgerMetadata:
        """Return the metadata in which the entries from `first` on go to `bookies`: with a new segment, or, if the last
        segment begins with `first`, with that segment changed.
        """
        assert len(bookies) == self.ensemble_size
        assert len(set(bookies)) == len(bookies)
        last = self.last_segment
        assert first >= last.first, f"segment from {first} behind one from {last.first}"
        kept = self.segments[:-1] if last.first == first else self.segments
        return replace(self, segments=(*kept, Segment(first, bookies)))

    def in_recovery(self) -> LedgerMetadata:
        assert not self.is_closed
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, last_entry_id: int, length: int) -> LedgerMetadata:
        return replace(self, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)


class Versioned(NamedTuple):
    """Metadata of a ledger, and the node version that the next compare-and-set must name."""

    metadata: LedgerMetadata
    version: int
