"""Assigns ranges to Spark partitions. Pure: places and sizes in, ranges out.

Three steps. `shares` gives every topic partition its part of a micro-batch. `pack` cuts large ranges and gathers small
ranges into the wanted number of Spark partitions. `stitch` cuts a range at the borders of the ledgers whose files can
be read, so that every piece has a single reader, without gap or overlap.
"""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from magnetar.pipeline.offsets import Place
    from magnetar.storage.reading.ledger_segment import Walked

MOST_SMALL_TASKS = 64
"""With more ranges than this, small ranges share a Spark partition: each partition costs Spark tens of milliseconds."""


SPLIT_BYTES = 256 << 20
"""The approximate number of stored bytes of a Spark partition."""
LEAST_BYTES = 32 << 20
"""The least stored bytes of a Spark partition that exists only to occupy another core."""


class EntrySpan(NamedTuple):
    """The entries ``first .. end - 1`` of a ledger file, and the part of an earlier walk that contains them."""

    first: int
    end: int
    walked: Walked


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Messages of one topic partition that are read in one way.

    start, end: half-open; both indexes, or both positions.
    ledger_id: the ledger file to read; None: through the broker.
    weight_bytes: about how many stored bytes it is.
    span: where these entries are, for a file that has no index of its own.
    newest_ledger: the newest ledger of the log when the range was planned: an entry of a later ledger is behind the
        range, or belongs to a later topic of this name. None: not known.
    """

    topic: str
    partition: int
    start: Place
    end: Place
    ledger_id: int | None = None
    weight_bytes: float = 0.0
    span: EntrySpan | None = None
    newest_ledger: int | None = None

    @property
    def messages(self) -> int | None:
        """How many; None where places are positions."""
        if isinstance(self.start, int) and isinstance(self.end, int):
            return self.end - self.start
        return None


class Covered(NamedTuple):
    """A ledger file holds the messages of this range of indexes."""

    ledger_id: int
    first: int
    end: int


def shares(backlog: Mapping[str, float], limit: float) -> dict[str, float]:
    """How much of `limit` every topic partition gets: in proportion to its backlog, never more than its backlog.

    Each topic partition with a backlog gets at least 1, so none starves; only for this reason may the sum exceed the
    limit.
    """
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    share = limit / total
    return {
        topic: min(waiting, max(1.0, waiting * share)) if waiting > 0 else 0.0 for topic, waiting in backlog.items()
    }


def stitch(whole: ReadRange, covered: Sequence[Covered]) -> list[ReadRange]:
    """`whole` cut into pieces in order: a part inside a ledger file names that ledger, the rest goes to the broker.

    `covered` is in the order of the log. The pieces are exactly `whole`: each begins where its predecessor ends.
    """
    start, end = whole.start, whole.end
    if not isinstance(start, int) or not isinstance(end, int) or not covered:
        return [whole]
    pieces: list[ReadRange] = []
    per_message = whole.weight_bytes / max(1, end - start)

    def add(first: int, stop: int, ledger_id: int | None) -> None:
        if first < stop:
            weight = per_message * (stop - first)
            pieces.append(replace(whole, start=first, end=stop, ledger_id=ledger_id, weight_bytes=weight))

    at = start
    begin = bisect.bisect_right(covered, start, key=lambda each: each.end)
    for ledger in itertools.islice(covered, begin, None):
        first, stop = max(ledger.first, at), min(ledger.end, end)
        if ledger.first >= end:
            break
        if first >= stop:
            continue
        add(at, first, None)
        add(first, stop, ledger.ledger_id)
        at = stop
    add(at, end, None)
    return pieces


def even_split(total_bytes: float, cores: int, least_bytes: float = LEAST_BYTES) -> float:
    """Return a size of Spark partitions of about SPLIT_BYTES, for which the number of partitions is a multiple of the
    cores, so that no core idles during the last of them; fewer partitions when they would have less than `least_bytes`.
    """
    rounds = max(1, round(total_bytes / SPLIT_BYTES / cores))
    tasks = max(1, min(rounds * cores, int(total_bytes / least_bytes)))
    return max(1.0, total_bytes / tasks)


def pack(
    ranges: Sequence[ReadRange], *, split_bytes: float, min_tasks: int | None = None, max_messages: int | None = None
) -> list[list[ReadRange]]:
    """The ranges as Spark partitions, each a list of ranges in their order.

    Ranges heavier than `split_bytes` or longer than `max_messages` are cut; with fewer pieces than `min_tasks` they are
    cut further. With more pieces than both `min_tasks` and MOST_SMALL_TASKS, small neighbours share a partition. Ranges
    of positions are never cut.
    """
    pieces = [part for each in ranges for part in _cut(each, _parts(each, split_bytes, max_messages))]
    if min_tasks is not None and len(pieces) < min_tasks:
        total = sum(_size(each) for each in pieces) or 1
        wanted = [math.ceil(min_tasks * _size(each) / total) for each in pieces]
        pieces = [part for each, n in zip(pieces, wanted, strict=True) for part in _cut(each, n)]
    tasks = max(min_tasks or 0, MOST_SMALL_TASKS)
    if len(pieces) <= tasks:
        return [[each] for each in pieces]
    weight = min(split_bytes, sum(each.weight_bytes for each in pieces) / tasks)
    return _gather(pieces, weight, min_tasks or 0, max_messages)


_ROUNDING = 1e-6


def _parts(each: ReadRange, split_bytes: float, max_messages: int | None) -> int:
    by_size = math.ceil(each.weight_bytes / split_bytes - _ROUNDING)
    by_count = math.ceil((each.messages or 0) / max_messages) if max_messages else 1
    return max(1, by_size, by_count)


def _size(each: ReadRange) -> float:
    return float(each.messages or 1)


def _cut(each: ReadRange, parts: int) -> list[ReadRange]:
    """Cut a range into `parts` parts of nearly equal length; into fewer when it has fewer messages."""
    start, end = each.start, each.end
    if parts <= 1 or not isinstance(start, int) or not isinstance(end, int):
        return [each]
    parts = min(parts, end - start)
    borders = [start + (end - start) * k // parts for k in range(parts + 1)]
    weight = each.weight_bytes / parts
    return [replace(each, start=a, end=b, weight_bytes=weight) for a, b in itertools.pairwise(borders) if a < b]


def _gather(
    pieces: Sequence[ReadRange], weight: float, min_tasks: int, max_messages: int | None
) -> list[list[ReadRange]]:
    """Group neighbouring pieces up to `weight` per group; at least `min_tasks` groups, if there are enough pieces."""
    tasks: list[list[ReadRange]] = []
    filled, messages = math.inf, 0
    for done, piece in enumerate(pieces):
        count = piece.messages or 0
        needed = len(tasks) + len(pieces) - done <= min_tasks
        full = (
            needed
            or filled + piece.weight_bytes / 2 > weight
            or (max_messages is not None and messages + count > max_messages)
        )
        if full:
            tasks.append([])
            filled, messages = 0.0, 0
        tasks[-1].append(piece)
        filled += piece.weight_bytes
        messages += count
    return tasks
