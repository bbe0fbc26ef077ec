"""The segment path: entries straight from ledger files, without a copy on the way to the decoder.

A chunk is the result of one read of the file; its bodies lie between the headers of the records.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from magnetar.pipeline.entry_chunk import EntryChunk
from magnetar.pipeline.planning import Covered, EntrySpan
from magnetar.storage.reading.data_directory import DataDirectory
from magnetar.storage.reading.errors import CorruptEntryError, DamagedFileError, NoSuchLedgerError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from magnetar.pipeline.log_range import LedgerSpan, LogRange
    from magnetar.pipeline.planning import ReadRange
    from magnetar.storage.reading.ledger_segment import LedgerSegment

RECORD_HEADER_BYTES = 32
_REMEMBERED_LEDGERS = 100_000
_MOST_OPEN = 256


class SegmentGoneError(Exception):
    """The ledger's file cannot be read (it is deleted or damaged); the broker may still have the messages."""


def read_segment(
    directory: DataDirectory, piece: ReadRange, on_damaged: Callable[[int, str], None]
) -> Iterator[EntryChunk]:
    """The entries that hold the messages ``piece.start .. piece.end - 1``, from the ledger file the piece names.

    The first and the last entry may hold more messages than that. `on_damaged(entry, why)` is called for an entry that
    cannot be read; when it returns, the entry is left out.
    Raises SegmentGoneError before the first chunk, when there is nothing to be read in this way.
    """
    assert piece.ledger_id is not None
    assert isinstance(piece.start, int)
    assert isinstance(piece.end, int)
    span = piece.span
    try:
        ledger = directory.open_ledger(piece.ledger_id, span.walked if span else None)
    except (NoSuchLedgerError, DamagedFileError) as error:
        raise SegmentGoneError(str(error)) from error
    with ledger:
        if span is not None:
            at, end = span.first, span.end
        else:
            at, end = ledger.entry_of_index(piece.start), ledger.entry_of_index(piece.end - 1) + 1
        if end > ledger.entries:
            raise SegmentGoneError(f"ledger {piece.ledger_id} ends before index {piece.end}")
        yield from _entries(ledger, piece.topic, piece.partition, at, end, on_damaged)


def _entries(
    ledger: LedgerSegment, topic: str, partition: int, at: int, end: int, on_damaged: Callable[[int, str], None]
) -> Iterator[EntryChunk]:
    while at < end:
        try:
            for slab in ledger.slabs(at, end):
                offsets = np.frombuffer(slab.offsets, np.int64)
                ids = np.arange(slab.first_entry_id, slab.first_entry_id + slab.count, dtype=np.int64)
                bodies = offsets[:-1] + RECORD_HEADER_BYTES
                yield EntryChunk(topic, partition, slab.ledger_id, slab.data, bodies, offsets[1:], ids, verified=True)
                at = slab.last_entry_id + 1
        except CorruptEntryError as error:
            on_damaged(error.position.entry_id, str(error))
            at = error.position.entry_id + 1


class SegmentMap:
    """The indexes of the ledger files of a data directory, for `stitch`. For one thread.

    The map remembers the ranges of sealed ledgers. It keeps other ledgers open, so that a stream reads only appended
    records. A ledger without a file, or without an index, is not covered.
    """

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self._sealed: dict[int, Covered | None] = {}
        self._growing: OrderedDict[int, LedgerSegment] = OrderedDict()

    def covered(self, log: LogRange, start: int, end: int) -> list[Covered]:
        """Coverage of the log's ledgers with messages of ``start .. end - 1``; files are opened from the newest back,
        no further than `start`.
        """
        found: list[Covered] = []
        for span in reversed(log.ledgers):
            covered = self._ledger(span) if span.entries else None
            if covered is None or covered.first >= end:
                continue
            found.append(covered)
            if covered.first <= start:
                break
        return found[::-1]

    def span(self, ledger_id: int, start: int, end: int) -> EntrySpan | None:
        """Return the place of the messages ``start .. end - 1`` in a ledger whose file has no index yet; else None."""
        growing = self._growing.get(ledger_id)
        if growing is None:
            return None
        first, last = growing.entry_of_index(start), growing.entry_of_index(end - 1)
        return EntrySpan(first, last + 1, growing.walked(first))

    def close(self) -> None:
        """Close open ledgers; the map may be used again."""
        while self._growing:
            self._growing.popitem()[1].close()

    def _ledger(self, span: LedgerSpan) -> Covered | None:
        if span.ledger_id in self._sealed:
            return self._sealed[span.ledger_id]
        try:
            ledger = self._opened(span.ledger_id)
            bounds = ledger.index_range()
        except (StorageError, OSError):
            self._forget(span.ledger_id)
            return None
        other = span.closed and ledger.entries > span.entries  # not the ledger the broker speaks of
        covered = Covered(span.ledger_id, *bounds) if bounds is not None and not other else None
        if ledger.sealed:
            self._forget(span.ledger_id)
            if len(self._sealed) < _REMEMBERED_LEDGERS:
                self._sealed[span.ledger_id] = covered
        return covered

    def _opened(self, ledger_id: int) -> LedgerSegment:
        ledger = self._growing.get(ledger_id)
        if ledger is not None:
            self._growing.move_to_end(ledger_id)
            ledger.refresh()
            return ledger
        ledger = self._growing[ledger_id] = self.directory.open_ledger(ledger_id)
        if len(self._growing) > _MOST_OPEN:
            self._growing.popitem(last=False)[1].close()
        return ledger

    def _forget(self, ledger_id: int) -> None:
        ledger = self._growing.pop(ledger_id, None)
        if ledger is not None:
            ledger.close()


def open_directory(path: str) -> DataDirectory | None:
    """The data directory, None when it cannot be read from here."""
    try:
        return DataDirectory(path)
    except (StorageError, OSError):
        return None
