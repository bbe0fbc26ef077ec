"""Jobs that examine every entry of some topics once and return a small summary of each stretch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.pipeline.jobs.reading import RowReader, RowSettings, plan_tasks, stored_logs, wanted_spans
from magnetar.pipeline.reading.settings import ReadSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.pipeline.entry_chunk import EntryChunk
    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.planning import ReadRange
    from magnetar.pipeline.progress import Progress


class Scan(Protocol):
    """Summarises one stretch. `facts` pickles."""

    facts: Any

    def add(self, chunk: EntryChunk, first_index: int, end_index: int) -> None:
        """Take the entries whose last message is in the half-open range of indexes: each is in one stretch only."""


@dataclass(frozen=True, slots=True)
class ScanPiece:
    """The work of one task; pickles."""

    ranges: tuple[ReadRange, ...]
    rows: RowSettings
    make: Callable[[str], Scan]


def scan_piece(piece: ScanPiece) -> list[Any]:
    """The facts of each range of one task."""
    reader = RowReader(piece.rows)
    found = []
    for each in piece.ranges:
        scan = piece.make(each.topic)
        assert isinstance(each.start, int)
        assert isinstance(each.end, int)
        for chunk in reader.chunks(each):
            scan.add(chunk, each.start, each.end)
        found.append(scan.facts)
    return found


def scan_topics(options: SourceOptions, runner: Runner, progress: Progress, make: Callable[[str], Scan]) -> list[Any]:
    """The facts of every stretch of the selected topics, in the order of each log.

    Args:    make: makes the scan of a topic's stretch; pickles.
    Raises:  PipelineError, ClientError.
    """
    logs = stored_logs(options)
    spans = wanted_spans(options, logs)
    tasks = plan_tasks(spans, logs, options, runner.cores)
    rows = RowSettings(ReadSettings.of(options))
    weights = [sum(each.weight_bytes for each in ranges) for ranges in tasks]
    progress.begin(sum(weights))
    results = runner.map(scan_piece, [ScanPiece(tuple(ranges), rows, make) for ranges in tasks], progress, weights)
    return [facts for result in results for facts in result]
