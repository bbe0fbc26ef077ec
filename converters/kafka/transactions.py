"""Which batches of a Kafka log belong to aborted or to open transactions, decided from the control batches.

A transactional batch carries the producer id of its transaction. The transaction of a producer id lasts from its first
batch to the next control record of that id:

    control record key = int16 version | int16 type      0 ABORT, 1 COMMIT; every other type concerns no transaction

A producer id has at most one open transaction. The *last stable place* is the first batch of the earliest transaction
that is still open: a consumer with isolation level read_committed reads no further, because a later commit would add
records in front of records that the consumer has already read.

The caller chooses the places: any int that ascends along the log (offsets in a partition's segments, byte positions in
a file whose offsets do not ascend). Source: Apache Kafka, "Control Batches" in the message format chapter; KIP-98.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.converters.errors import ConverterError
from magnetar.converters.kafka.record_batch import RecordBatch

if TYPE_CHECKING:
    from magnetar.converters.kafka.record_set import Batch

_KEY_BYTES = 4
_END = 1 << 63


class Isolation(enum.StrEnum):
    """Whether a reader takes the records of uncommitted transactions; names as in Kafka."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Marker(enum.IntEnum):
    """The outcome that a control record gives to the transaction of its producer id."""

    ABORT = 0
    COMMIT = 1


def marker_of(batch: RecordBatch) -> Marker | None:
    """Return the marker in a control batch; None when its control record ends no transaction.

    Raises: ConverterError for a control batch whose record cannot be read.
    """
    for record in batch.records():
        key = record.key
        if key is not None and len(key) >= _KEY_BYTES:
            kind = int.from_bytes(key[2:_KEY_BYTES], "big", signed=True)
            return Marker(kind) if kind in (Marker.ABORT, Marker.COMMIT) else None
    return None


class Outcome(enum.Enum):
    """The outcome of a batch's transaction; a batch without a transaction is COMMITTED."""

    COMMITTED = enum.auto()
    ABORTED = enum.auto()
    OPEN = enum.auto()


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a log that do not count as committed.

    aborted:  producer id -> [(place of the first batch, place of the marker)], ascending.
    open:     producer id -> place of the first batch; no marker follows.
    doubtful: how many transactions have damage between their first batch and their marker: the marker may belong to a
    later transaction of the same producer id.
    """

    aborted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    doubtful: int = 0

    @property
    def last_stable_place(self) -> int | None:
        """The end of read_committed (exclusive); None when every transaction has ended."""
        return min(self.open.values(), default=None)

    def outcome(self, batch: Batch, place: int) -> Outcome:
        """Return the outcome of the batch at this place. Markers and batches without a transaction are COMMITTED."""
        if not isinstance(batch, RecordBatch) or not batch.is_transactional or batch.is_control:
            return Outcome.COMMITTED
        if place >= self.open.get(batch.producer_id, _END):
            return Outcome.OPEN
        ranges = self.aborted.get(batch.producer_id, ())
        before = bisect_right(ranges, place, key=lambda each: each[0])
        return Outcome.ABORTED if before and place < ranges[before - 1][1] else Outcome.COMMITTED

    def with_open_aborted(self) -> Transactions:
        """Return a copy in which every open transaction counts as aborted."""
        aborted = {producer: list(ranges) for producer, ranges in self.aborted.items()}
        for producer, first in self.open.items():
            aborted.setdefault(producer, []).append((first, _END))
        return Transactions(aborted, {}, self.doubtful)


class TransactionSurvey:
    """Collects the transactions of a log, batch after batch. Keeps a pair of ints per aborted transaction."""

    def __init__(self) -> None:
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        self._open: dict[int, int] = {}
        self._damaged: set[int] = set()
        self._doubtful = 0

    @property
    def has_open(self) -> bool:
        """Whether at least one transaction has begun and not ended."""
        return bool(self._open)

    def add(self, batch: Batch, place: int) -> None:
        """Add the next batch of the log. A control batch whose record cannot be read counts as damage."""
        if not isinstance(batch, RecordBatch) or not batch.is_transactional:
            return
        if not batch.is_control:
            self._open.setdefault(batch.producer_id, place)
            return
        try:
            marker = marker_of(batch)
        except ConverterError:
            self.damage()
            return
        if marker is not None:
            self._end(batch.producer_id, marker, place)

    def damage(self) -> None:
        """Note that a stretch of the log is missing here, which may have contained markers of the open transactions."""
        self._damaged.update(self._open)

    def result(self) -> Transactions:
        """Return the transactions found so far; later batches do not change the returned value."""
        aborted = {producer: list(ranges) for producer, ranges in self._aborted.items()}
        return Transactions(aborted, dict(self._open), self._doubtful + len(self._damaged & self._open.keys()))

    def _end(self, producer: int, marker: Marker, place: int) -> None:
        first = self._open.pop(producer, None)
        if first is None:
            return
        if producer in self._damaged:
            self._damaged.discard(producer)
            self._doubtful += 1
        if marker is Marker.ABORT:
            self._aborted.setdefault(producer, []).append((first, place))
