"""The messages between driver and tasks about data files and the indexes in them. All of them pickle."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from magnetar.pipeline.lake.errors import CommitConflictError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


@dataclass(frozen=True, slots=True, order=True)
class IndexSpan:
    """Broker entry indexes ``start .. end - 1`` of one topic partition."""

    topic: str
    start: int
    end: int

    def __post_init__(self) -> None:
        assert 0 <= self.start <= self.end, "a span is a half-open range"

    def __str__(self) -> str:
        return f"{self.topic} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table.

    path:  relative to the table, with "/".
    topic: the topic partition all of its rows come from; "" when they come from several.
    date:  the UTC date of the broker publish time of all rows, ISO form; None when the rows have none.
    min_index, max_index: of the rows, inclusive.
    min_time_us, max_time_us: broker publish time (else publish time) in microseconds since 1970; None without rows.
    """

    path: str
    topic: str
    date: str | None
    rows: int
    bytes: int
    min_index: int
    max_index: int
    min_time_us: int | None = None
    max_time_us: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> DataFile:
        return DataFile(**fields)


@dataclass(frozen=True, slots=True)
class Append:
    """A commit: `files` hold every message of `spans`, except for `lost` indexes, which the topic no longer has.

    schema:      of the rows, without the partition column.
    lost:        spans that the broker had trimmed before they were read; they end where a span of their topic begins.
    quarantined: entries in `spans` that could not be decoded and have no row.
    ledgers:     topic partition -> the newest ledger of its log when the commit was planned: later logs of that name
    begin with a later ledger.
    anew:        topic partition -> index at which the table ends for an earlier log of that name, now deleted.
    """

    spans: tuple[IndexSpan, ...]
    files: tuple[DataFile, ...]
    schema: pa.Schema
    lost: tuple[IndexSpan, ...] = ()
    quarantined: int = 0
    ledgers: Mapping[str, int] = field(default_factory=dict)
    anew: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        topics = [span.topic for span in self.spans]
        assert len(set(topics)) == len(topics), "one span per topic partition"
        assert {span.topic for span in self.lost} <= set(topics), "what is lost lies in front of a span"

    def firsts(self) -> dict[str, int]:
        """The index at which the table must end, by topic partition."""
        lost = {span.topic: span for span in self.lost}
        return {span.topic: lost.get(span.topic, span).start for span in self.spans} | dict(self.anew)

    def ends(self) -> dict[str, int]:
        """The index at which the table ends afterwards (exclusive), by topic partition."""
        return {span.topic: span.end for span in self.spans}


def ensure_follows(committed: Mapping[str, int], append: Append) -> None:
    """The precondition of a commit: for each topic partition the table ends where the commit begins, or is new to it.

    Raises: CommitConflictError.
    """
    for topic, first in append.firsts().items():
        there = committed.get(topic)
        if there is not None and there != first:
            raise CommitConflictError(f"the table holds {topic} up to index {there}, the commit begins at {first}")
