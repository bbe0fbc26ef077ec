"""Integrity figures of one stretch of a log: one numpy pass over the headers of its entries. Pure.

Both of two neighbouring stretches see the entries at their border; `join` compares their figures at the border.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from magnetar.pipeline.decode.headers import Headers
from magnetar.pipeline.jobs.sequence_ids import SequenceIds
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, EntryStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from magnetar.pipeline.entry_chunk import EntryChunk

MOST_FINDINGS: Final = 1000
"""The most findings that a stretch keeps; the counts include all findings."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect that the audit has found.

    kind: a row of `KINDS`.   where: a position (ledger:entry), a ledger, or a subscription.
    """

    kind: str
    topic: str
    where: str
    detail: str


KINDS: Final = {
    "corrupt-entry": "error",
    "missing-entry": "error",
    "index-gap": "error",
    "index-repeat": "error",
    "broker-time-backwards": "warning",
    "duplicate-sequence-id": "warning",
    "orphan-ledger": "warning",
    "cursor-past-end": "error",
}
"""Kind -> severity. Errors contradict a promise of the broker. Warnings may have an innocent cause: a clock that was
set back, a producer without deduplication that began its sequence ids anew, a ledger that is about to be deleted."""


@dataclass(slots=True)
class StretchFacts:
    """One stretch: counts, findings, and its borders for `join`.

    first_index, end_index: of the messages seen, half-open; -1 without any.
    first_time_ms, last_time_ms: broker publish times at the borders; 0 without any.
    """

    topic: str
    entries: int = 0
    messages: int = 0
    bytes: int = 0
    first_index: int = -1
    end_index: int = -1
    first_position: str = ""
    last_position: str = ""
    first_time_ms: int = 0
    last_time_ms: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    sequence_ids: SequenceIds = field(default_factory=SequenceIds)

    def add(self, kind: str, where: str, detail: str) -> None:
        """Count a finding, and keep it while there is room."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Finding(kind, self.topic, where, detail))


_WHY = {
    EntryStatus.SHORT: "the headers leave the entry",
    EntryStatus.CHECKSUM: "the CRC32C of the entry does not match",
    EntryStatus.METADATA: "MessageMetadata does not parse",
    EntryStatus.REQUIRED: "MessageMetadata lacks a required field",
    EntryStatus.BROKER_METADATA: "BrokerEntryMetadata does not parse",
}


class StretchAudit:
    """Takes the chunks of one stretch in the order of the log."""

    def __init__(self, topic: str) -> None:
        self.facts = StretchFacts(topic)
        self._ledger = -1
        self._last_entry = -1

    def add(self, chunk: EntryChunk, first_index: int = 0, end_index: int | None = None) -> None:
        """Check the entries of a chunk against each other and against those before.

        Only entries whose last message is in the half-open range of indexes count, so that each is in one stretch only;
        an entry without an index counts in every stretch that contains it.
        """
        headers = Headers(chunk, verify=True)
        last = headers.last_index
        mine = (last < 0) | ((last >= first_index) & (last < (end_index if end_index is not None else last + 1)))
        if not mine.all():
            chunk = chunk.picked(mine)
            headers = Headers(chunk, verify=True)
        if not len(chunk):
            return
        facts = self.facts
        fine = headers[EntryColumn.STATUS] == EntryStatus.FINE
        for row in np.flatnonzero(~fine):
            status = EntryStatus(int(headers[EntryColumn.STATUS][row]))
            facts.add("corrupt-entry", self._position(chunk, int(row)), _WHY[status])
        self._check_entry_ids(chunk)
        indexed = np.flatnonzero(fine & (headers.last_index >= 0))
        self._check_indexes(chunk, headers, indexed)
        self._check_times(chunk, headers, np.flatnonzero(fine & headers.has(ColumnFlag.HAS_BROKER_TIMESTAMP)))
        self._note_sequence_ids(chunk, headers, np.flatnonzero(fine & ~headers.has(ColumnFlag.MARKER)))
        facts.entries += len(chunk)
        facts.bytes += chunk.size_bytes
        facts.messages += int(np.maximum(headers.messages[fine], 1).sum())
        facts.first_position = facts.first_position or self._position(chunk, 0)
        facts.last_position = self._position(chunk, len(chunk) - 1)

    def add_damaged(self, ledger_id: int, entry_id: int, why: str) -> None:
        """An entry that the reader could not give."""
        self.facts.add("corrupt-entry", f"{ledger_id}:{entry_id}", why)

    def _position(self, chunk: EntryChunk, row: int) -> str:
        return f"{chunk.ledger_id}:{int(chunk.entry_ids[row])}"

    def _check_entry_ids(self, chunk: EntryChunk) -> None:
        ids = chunk.entry_ids
        steps = np.diff(ids)
        for row in np.flatnonzero(steps != 1):
            missing = f"entries {int(ids[row]) + 1} to {int(ids[row + 1]) - 1} are not there"
            self.facts.add("missing-entry", self._position(chunk, int(row) + 1), missing)
        if chunk.ledger_id == self._ledger and int(ids[0]) > self._last_entry + 1:
            missing = f"entries {self._last_entry + 1} to {int(ids[0]) - 1} are not there"
            self.facts.add("missing-entry", self._position(chunk, 0), missing)
        self._ledger, self._last_entry = chunk.ledger_id, int(ids[-1])

    def _check_indexes(self, chunk: EntryChunk, headers: Headers, rows: NDArray[np.int64]) -> None:
        if not len(rows):
            return
        facts = self.facts
        firsts, ends = headers.first_index[rows], headers.last_index[rows] + 1
        before = np.concatenate(([facts.end_index if facts.end_index >= 0 else firsts[0]], ends[:-1]))
        for place in np.flatnonzero(firsts != before):
            at = self._position(chunk, int(rows[place]))
            _compare(facts, at, int(before[place]), int(firsts[place]))
        if facts.first_index < 0:
            facts.first_index = int(firsts[0])
        facts.end_index = max(facts.end_index, int(ends.max()))

    def _check_times(self, chunk: EntryChunk, headers: Headers, rows: NDArray[np.int64]) -> None:
        if not len(rows):
            return
        facts = self.facts
        times = headers[EntryColumn.BROKER_TIMESTAMP][rows]
        before = np.concatenate(([facts.last_time_ms or times[0]], times[:-1]))
        for place in np.flatnonzero(times < before):
            back = f"{int(before[place] - times[place])} ms before the entry in front of it"
            facts.add("broker-time-backwards", self._position(chunk, int(rows[place])), back)
        facts.first_time_ms = facts.first_time_ms or int(times[0])
        facts.last_time_ms = int(times[-1])

    def _note_sequence_ids(self, chunk: EntryChunk, headers: Headers, rows: NDArray[np.int64]) -> None:
        """Chunks of one message share its sequence id: only the first of them counts."""
        chunked = headers.has(ColumnFlag.IS_CHUNK)[rows] & (headers[EntryColumn.CHUNK_ID][rows] > 0)
        rows = rows[~chunked]
        starts, lengths = headers[EntryColumn.PRODUCER_START][rows], headers[EntryColumn.PRODUCER_LENGTH][rows]
        ids = headers[EntryColumn.SEQUENCE_ID][rows]
        data = memoryview(chunk.data)
        names = [bytes(data[a : a + n]) for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
        for place in self.facts.sequence_ids.add(names, ids.tolist()):
            name = names[place].decode("utf-8", "replace")
            detail = f"producer {name} has published sequence id {int(ids[place])} before"
            self.facts.add("duplicate-sequence-id", self._position(chunk, int(rows[place])), detail)


def _compare(facts: StretchFacts, where: str, expected: int, found: int) -> None:
    if found > expected:
        facts.add("index-gap", where, f"indexes {expected} to {found - 1} are not there")
    elif found < expected:
        facts.add("index-repeat", where, f"index {found} after index {expected - 1}")


def join(stretches: Iterable[StretchFacts]) -> StretchFacts:
    """Join the stretches of one topic partition, in order: a mismatch at a border becomes a separate finding."""
    parts = [part for part in stretches if part.entries or part.counts]
    whole = StretchFacts(parts[0].topic if parts else "")
    for part in parts:
        for kind, count in part.counts.items():
            whole.counts[kind] = whole.counts.get(kind, 0) + count
        whole.findings += part.findings[: MOST_FINDINGS - len(whole.findings)]
        if whole.end_index >= 0 and part.first_index >= 0:
            _compare(whole, part.first_position, whole.end_index, part.first_index)
        if whole.last_time_ms and part.first_time_ms and part.first_time_ms < whole.last_time_ms:
            back = f"{whole.last_time_ms - part.first_time_ms} ms before the entry in front of it"
            whole.add("broker-time-backwards", part.first_position, back)
        for name, first, last in whole.sequence_ids.overlaps(part.sequence_ids):
            text = name.decode("utf-8", "replace")
            whole.add("duplicate-sequence-id", part.first_position, f"producer {text}: {first} to {last} again")
        whole.sequence_ids.merge(part.sequence_ids)
        _extend(whole, part)
    return whole


def _extend(whole: StretchFacts, part: StretchFacts) -> None:
    whole.entries += part.entries
    whole.messages += part.messages
    whole.bytes += part.bytes
    whole.first_position = whole.first_position or part.first_position
    whole.last_position = part.last_position or whole.last_position
    whole.first_time_ms = whole.first_time_ms or part.first_time_ms
    whole.last_time_ms = part.last_time_ms or whole.last_time_ms
    if whole.first_index < 0:
        whole.first_index = part.first_index
    whole.end_index = max(whole.end_index, part.end_index)
