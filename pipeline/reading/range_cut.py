"""Selects the received entries of a range, and finds missing entries between them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from magnetar.pipeline.offsets import Position

if TYPE_CHECKING:
    from magnetar.pipeline.entry_chunk import EntryChunk
    from magnetar.pipeline.offsets import Place
    from magnetar.pipeline.reading.index_tracker import Indexed


class Cut(NamedTuple):
    """kept: entries with messages of the range.   lost: half-open ranges of indexes without an entry.
    reached: the place where the range continues.   seen: how many of the given entries were examined; the others lie
    behind the end of the range.
    """

    kept: EntryChunk
    lost: list[tuple[int, int]]
    reached: Place
    seen: int


def cut_by_index(found: Indexed, start: int, end: int) -> Cut:
    """Return the entries that have one of the indexes ``start .. end - 1``; all entries without an index belong to the
    range.

    The entries come in the order of the log, and `start` is the index of the next message.
    """
    known = found.last_index >= 0
    reached = np.maximum.accumulate(np.where(known, np.maximum(found.last_index + 1, start), start))
    before = np.concatenate((np.array([start], np.int64), reached[:-1]))
    seen = int(np.searchsorted(before, end))
    first = found.last_index - found.messages + 1
    belongs = (~known | ((found.last_index >= before) & (first < end)))[:seen]
    gaps = np.flatnonzero((known & (first > before))[:seen]).tolist()
    lost = [(int(before[i]), min(int(first[i]), end)) for i in gaps]
    return Cut(found.chunk.slice(0, seen).picked(belongs), lost, int(reached[seen - 1]) if seen else start, seen)


def cut_by_position(chunk: EntryChunk, start: Position, end: Position) -> Cut:
    """The entries before `end`."""
    if chunk.ledger_id != end.ledger_id:
        seen = len(chunk) if chunk.ledger_id < end.ledger_id else 0
    else:
        seen = int(np.searchsorted(chunk.entry_ids, end.entry_id))
    reached = Position(chunk.ledger_id, int(chunk.entry_ids[seen - 1]) + 1) if seen else start
    return Cut(chunk.slice(0, seen), [], reached if seen == len(chunk) else end, seen)


def behind(chunk: EntryChunk, last: Position) -> EntryChunk:
    """The entries behind `last`, each once and in order."""
    if chunk.ledger_id < last.ledger_id:
        return chunk.slice(0, 0)
    floor = last.entry_id if chunk.ledger_id == last.ledger_id else -1
    highest = np.maximum.accumulate(np.concatenate((np.array([floor], np.int64), chunk.entry_ids[:-1])))
    return chunk.picked(chunk.entry_ids > highest)
