"""The runs of entries that a subscription has acknowledged behind its mark-delete position, as statistics show them.

A client may acknowledge every second entry of a log of millions: counting the runs compares whole bitmaps, and an
answer shows a limited number of them.
"""

from __future__ import annotations

from array import array
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from magnetar.broker.slices import give_way
from magnetar.storage.pulsar_layout.entry_bits import parts_of_bitmap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from pyroaring import BitMap

    from magnetar.storage.managed.cursors.cursor import ManagedCursor

C = TypeVar("C", bound="ManagedCursor")
RANGES_OF_A_CURSOR: Final = 10_000
"""Limit of the shown ranges of a cursor: as many as Apache Pulsar keeps (managedLedgerMaxUnackedRangesToPersist)."""
RANGES_OF_AN_ANSWER: Final = 100_000
_RANGES_IN_ONE_TURN = 2000
_AS_RANGES = 125
"""Ranges that take about as long as the other figures of a cursor."""
_WORD_BYTES = [2, *(1 + (bits + 6) // 7 for bits in range(1, 65))]
"""Bytes of a word in Apache Pulsar's record, by the number of its bits up to the highest."""
_FEWEST_WORDS = 2
_PARTS_IN_ONE_TURN = 8
"""Bit sets of 65,536 entries whose words are measured in a turn of the loop."""


class DeletedRange(NamedTuple):
    """Entries of a ledger after `low`, up to `high`."""

    ledger_id: int
    low: int
    high: int


def count_deleted_ranges(cursor: ManagedCursor) -> int:
    """Return the number of runs of acknowledged entries behind mark-delete."""
    return sum(len(entries - entries.shift(1)) for _, entries in cursor.deleted_by_ledger())


def deleted_ranges(cursor: ManagedCursor) -> Iterator[DeletedRange]:
    """Yield the runs in order; the cursor may change meanwhile, if no ledger comes or goes."""
    for ledger_id, entries in cursor.deleted_by_ledger():
        firsts, lasts = entries - entries.shift(1), entries - entries.shift(-1)
        for first, last in zip(firsts, lasts, strict=True):
            yield DeletedRange(ledger_id, first - 1, last)


async def stored_bytes(cursors: Mapping[str, ManagedCursor]) -> dict[str, int]:
    """Return the size of each cursor's acknowledged entries behind mark-delete in Apache Pulsar's record of the cursor:
    the id of each ledger, and the words of a bit set. Gives way to others meanwhile.
    """
    found, parts = dict.fromkeys(cursors, 0), 0
    for name, cursor in cursors.items():
        for ledger_id, entries in cursor.deleted_by_ledger():
            found[name] += _bytes_of_ledger(ledger_id, entries) if entries else 0
            parts += 1 + (len(entries) >> 16)
            if parts >= _PARTS_IN_ONE_TURN:
                parts = 0
                await give_way()
    return found


def _bytes_of_ledger(ledger_id: int, entries: BitMap) -> int:
    found = _WORD_BYTES[0] * max(entries.max() // 64 + 1, _FEWEST_WORDS)
    for _, bits in parts_of_bitmap(entries):
        words = array("Q", bits)
        found += sum(map(_WORD_BYTES.__getitem__, map(int.bit_length, words))) - _WORD_BYTES[0] * len(words)
    return 1 + (max(ledger_id.bit_length(), 1) + 6) // 7 + found


async def with_ranges(
    cursors: Mapping[str, C], shows: Callable[[str, C], bool] = lambda _name, _cursor: True
) -> AsyncIterator[tuple[str, C, list[DeletedRange]]]:
    """Yield each cursor with its first runs, within both limits, and without runs where `shows` is false. Gives way to
    others after some cursors, or a cursor of many runs: its reader writes them in the same turn.
    """
    left, in_turn = RANGES_OF_AN_ANSWER, 0
    for name, cursor in list(cursors.items()):
        most = min(left, RANGES_OF_A_CURSOR) if shows(name, cursor) else 0
        ranges = list(islice(deleted_ranges(cursor), most))
        yield name, cursor, ranges
        left -= len(ranges)
        in_turn += _AS_RANGES + len(ranges)
        if in_turn >= _RANGES_IN_ONE_TURN:
            in_turn = 0
            await give_way()


def as_text(ranges: list[DeletedRange]) -> str:
    """The ranges as Pulsar prints them: ``[(l:e..l:e]]``; the lower end is not part of a range."""
    return f"[{','.join([f'({ledger}:{low}..{ledger}:{high}]' for ledger, low, high in ranges])}]"
