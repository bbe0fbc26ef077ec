"""Spans of entries with sticky keys: their hashes, parts of one slab, runs of one consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol.runs import EntryFlag
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.key_ranges import KeySelector
    from magnetar.storage.slab import Slab

_SPECIAL = int(EntryFlag.BATCHED | EntryFlag.NOT_LAST_CHUNK)


def by_slab(spans: list[Span]) -> list[tuple[Slab, list[tuple[int, int]]]]:
    """Neighbouring spans of one slab as parts of that slab: entries from the replay queue come as spans of a few."""
    found: list[tuple[Slab, list[tuple[int, int]]]] = []
    last: Slab | None = None
    parts: list[tuple[int, int]] = []
    for slab, i, j in spans:
        if slab is not last:
            last, parts = slab, []
            found.append((slab, parts))
        parts.append((i, j))
    return found


def are_plain(spans: list[Span]) -> bool:
    """Whether the spans' slabs have neither batches nor chunks, except last chunks."""
    last: Slab | None = None
    for span in spans:
        if span.slab is not last:
            last = span.slab
            if last.facts().any_flags & _SPECIAL:
                return False
    return True


class KeyHashes:
    """Hash of each entry of a slab, in the range of the selector."""

    __slots__ = ("_hash_of", "_murmurs")

    def __init__(self, slab: Slab, selector: KeySelector) -> None:
        murmurs = slab.facts(want_hash=True).key_hashes
        assert murmurs is not None
        self._murmurs = memoryview(murmurs).cast("q")
        self._hash_of = selector.hash_of

    def __getitem__(self, index: int) -> int:
        return self._hash_of(self._murmurs[index])


def runs(given: list[tuple[Consumer, int]], entries: list[tuple[Slab, int]]) -> list[tuple[Consumer, Span]]:
    """Neighbouring entries of one consumer as one span."""
    runs: list[tuple[Consumer, Span]] = []
    for consumer, index in given:
        slab, k = entries[index]
        if runs:
            last_consumer, last = runs[-1]
            if last_consumer is consumer and last.slab is slab and last.end == k:
                runs[-1] = (consumer, Span(slab, last.start, k + 1))
                continue
        runs.append((consumer, Span(slab, k, k + 1)))
    return runs
