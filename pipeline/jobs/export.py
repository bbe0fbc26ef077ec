"""Export of topics into a table, incremental and exactly once by index range; in one go or as a running stream.

    plan   the table names the index up to which it holds each topic partition; the log behind that index is the work
    write  tasks read, decode and write Parquet files (payloads never cross the JVM)
    commit the driver adds all files with the new positions in one commit; a commit that finds the table moved on is
           planned again

A job that is killed anywhere leaves files that nothing refers to (`vacuum` removes them) and no row in the table; the
next run goes on where the table ends. Large work is cut into rounds of `round_bytes`, each with a commit.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from magnetar.client.errors import RetryError
from magnetar.pipeline.decode.decoder import BATCH_BYTES
from magnetar.pipeline.errors import CatalogUnavailableError, DataLossError, ReadTimeoutError
from magnetar.pipeline.jobs.reading import (
    RowReader,
    RowReport,
    RowSettings,
    ending_indexes,
    ensure_same_logs,
    plan_tasks,
    starting_indexes,
    stored_logs,
)
from magnetar.pipeline.jobs.runner import TaskFailedError
from magnetar.pipeline.jobs.typed_values import choose_values
from magnetar.pipeline.lake.data_file import Append, DataFile, IndexSpan
from magnetar.pipeline.lake.errors import CommitConflictError
from magnetar.pipeline.lake.writer import DEFAULT_WRITE, SplitWriter, WriteOptions
from magnetar.pipeline.log_range import MADE_ANEW
from magnetar.pipeline.offsets import EARLIEST, WantedOffsets
from magnetar.pipeline.planning import ReadRange, shares
from magnetar.pipeline.reading.settings import ReadSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.jobs.typed_values import TypedValues
    from magnetar.pipeline.lake.committer import Committer
    from magnetar.pipeline.lake.table_files import TableFiles
    from magnetar.pipeline.log_range import LogRange
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.progress import Progress

NEEDED = ("__topic", "__index", "__publishTime", "__brokerPublishTime")
"""Columns that every table has, whatever the selection: commits, partitions and pruning depend on them."""
PASSING = (CatalogUnavailableError, ReadTimeoutError, RetryError, TaskFailedError)
"""Errors after which a running stream tries again: the broker is away, or a task was lost."""
_MOST_CONFLICTS = 50


@dataclass(frozen=True, slots=True)
class ExportSplit:
    """The work of one task; pickles."""

    ranges: tuple[ReadRange, ...]
    rows: RowSettings
    place: TableFiles
    schema: pa.Schema
    partition_column: str | None
    run: str
    write: WriteOptions = DEFAULT_WRITE


@dataclass(slots=True)
class SplitResult:
    """The files that a task has written, and the messages that it left out."""

    files: list[DataFile] = field(default_factory=list)
    report: RowReport = field(default_factory=RowReport)


@dataclass(slots=True)
class ExportReport:
    """The committed rounds of one run, or of all runs of a stream.

    spans: topic partition -> [first index, end) of these rounds.   lost: ranges that the topics no longer have.
    anew: topic partitions that were deleted and made anew since.   conflicts: commits of other jobs that came first.
    """

    rows: int = 0
    bytes: int = 0
    files: int = 0
    commits: int = 0
    conflicts: int = 0
    spans: dict[str, list[int]] = field(default_factory=dict)
    lost: list[list[Any]] = field(default_factory=list)
    anew: list[str] = field(default_factory=list)
    quarantined: RowReport = field(default_factory=RowReport)

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "bytes": self.bytes,
            "files": self.files,
            "commits": self.commits,
            "conflicts": self.conflicts,
            "spans": self.spans,
            "lost": self.lost,
            "anew": self.anew,
            "quarantined": {"messages": self.quarantined.messages, "positions": self.quarantined.positions},
        }


def export_split(split: ExportSplit) -> SplitResult:
    """Read, decode and write the ranges of one task; nothing is committed. Runs in a task, or anywhere.

    Returns: every file durable on its disk.
    Raises:  SinkFullError, CorruptEntryError, DataLossError, SchemaDriftError and others; no file is left then.
    """
    reader = RowReader(split.rows)
    result = SplitResult(report=reader.report)
    attempt = f"{split.run}-{os.getpid():x}{uuid.uuid4().hex[:6]}"
    writers: dict[str, SplitWriter] = {}
    try:
        for piece in split.ranges:
            writer = writers.get(piece.topic)
            if writer is None:
                writer = writers[piece.topic] = SplitWriter(
                    split.place,
                    f"{file_slug(piece.topic)}-{piece.start:015d}-{attempt}",
                    split.schema,
                    topic=piece.topic,
                    partition_column=split.partition_column,
                    options=split.write,
                )
            for batch in reader.batches(piece):
                writer.write(batch)
        for writer in writers.values():
            result.files += writer.close()
    except BaseException:
        for writer in writers.values():
            writer.abort()
        raise
    return result


def file_slug(topic: str) -> str:
    """The topic's name as it stands in file names."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", topic.rpartition("/")[2])[:80]


@dataclass(frozen=True, slots=True)
class _Work:
    """The spans of one round, and the lost spans. anew: topic partition whose topic was made anew -> index at which the
    table ends for the earlier log of that name.
    """

    spans: list[IndexSpan]
    lost: list[IndexSpan]
    anew: dict[str, int]


@dataclass(frozen=True, slots=True)
class ExportJob:
    """One export. With valueMode, payloads are decoded by the schema that the topics have when a run begins."""

    options: SourceOptions
    table: Committer
    write: WriteOptions = DEFAULT_WRITE
    round_bytes: int = 8 << 30
    _begun: dict[str, int] = field(default_factory=dict, compare=False)

    def run(self, runner: Runner, progress: Progress, report: ExportReport | None = None) -> ExportReport:
        """Bring the table up to the end of the topics as they are now.

        Raises: DataLossError with failOnDataLoss, PipelineError, ClientError. Committed work stays.
        """
        report = report if report is not None else ExportReport()
        while True:
            try:
                return self._run(runner, progress, report)
            except DataLossError as error:
                if self.options.fail_on_data_loss:
                    raise
                progress.say(f"{error.topic}: {error.why}; planning again")

    def _run(self, runner: Runner, progress: Progress, report: ExportReport) -> ExportReport:
        """Raises: as `run`, and DataLossError without failOnDataLoss for a topic that is made anew while it is read."""
        logs = stored_logs(self.options)
        rows = self._row_settings(choose_values(self.options, logs))
        schema = self.table.prepare(RowReader(rows).decoder().schema)
        ends = ending_indexes(self.options, logs)
        firsts = self._first_indexes(logs)
        weight = sum(log.bytes_per() * _behind(self.table, topic, log) for topic, log in logs.items())
        if weight:
            progress.begin(weight)
        conflicts = 0
        while True:
            work = self._next_round(logs, firsts, ends)
            if not work.spans:
                return report
            for topic in work.anew:
                progress.say(f"{topic} was deleted and made anew; its messages follow those of the earlier topic")
            try:
                self._round(runner, progress, rows, schema, logs, work, report)
                conflicts = 0
            except CommitConflictError as error:
                report.conflicts += 1
                conflicts += 1
                if conflicts > _MOST_CONFLICTS:
                    raise
                progress.say(f"another job has committed ({error}); planning again")

    def follow(
        self,
        runner: Runner,
        progress: Progress,
        *,
        trigger_s: float,
        stop: Callable[[], bool] = lambda: False,
        on_round: Callable[[ExportReport], None] = lambda _: None,
        patience_s: float = 300.0,
    ) -> ExportReport:
        """Repeat `run`, one trigger interval apart, until `stop` returns true; each run picks up new messages, and from
        their first message partitions and topics of a pattern that the first run did not find. The table is the
        checkpoint: a killed stream continues exactly where the table ends.

        Args:    on_round: called after each run that has succeeded.
                 patience_s: how long `run` is repeated while the broker is away or tasks are lost.
        """
        report, healthy, job = ExportReport(), time.monotonic(), self
        while not stop():
            began = time.monotonic()
            try:
                job.run(runner, progress, report)
                healthy, job = time.monotonic(), self._later()
                on_round(report)
            except PASSING as error:
                if time.monotonic() - healthy > patience_s:
                    raise
                progress.say(f"{error}; trying again")
            wake = began + trigger_s
            while not stop() and (left := wake - time.monotonic()) > 0:
                time.sleep(min(left, 0.1))
        return report

    def _later(self) -> ExportJob:
        """The job behind its first run: `startingOffsets` is for the topic partitions that the first run found."""
        return replace(self, options=replace(self.options, starting=WantedOffsets(EARLIEST, {})))

    # --- one round --------------------------------------------------------------------------------------------------

    def _first_indexes(self, logs: Mapping[str, LogRange]) -> dict[str, int]:
        """Return the first index to export of topic partitions without a position in the table, by `startingOffsets`;
        the index of a topic partition stays the same in every round of this job.
        """
        known = self.table.committed(logs).keys() | self._begun.keys()
        self._begun.update(starting_indexes(self.options, {t: log for t, log in logs.items() if t not in known}))
        return self._begun

    def _next_round(self, logs: Mapping[str, LogRange], firsts: Mapping[str, int], ends: Mapping[str, int]) -> _Work:
        """The work of the next round: the next indexes of each topic partition, and lost indexes before them.

        Raises: DataLossError with failOnDataLoss.
        """
        committed, ledgers = self.table.committed(logs), self.table.ledgers(logs)
        wanted, lost, anew = {}, [], {}
        for topic, log in logs.items():
            first, end = int(log.first_index or 0), ends[topic]
            start = committed.get(topic, max(first, firsts.get(topic, first)))
            if topic in committed and log.is_another_than(start, ledgers.get(topic)):
                if self.options.fail_on_data_loss:
                    raise DataLossError(topic, start, "its end", MADE_ANEW)
                anew[topic], start = start, 0
            if start < first:
                if self.options.fail_on_data_loss:
                    raise DataLossError(topic, start, first, "the broker has trimmed them before they were exported")
                lost.append(IndexSpan(topic, start, first))
                start = first
            if start < end:
                wanted[topic] = (start, end)
        backlog = {topic: logs[topic].bytes_per() * (end - start) for topic, (start, end) in wanted.items()}
        granted = shares(backlog, float(self.round_bytes))
        spans = []
        for topic, (start, end) in wanted.items():
            count = max(1, int(granted[topic] / logs[topic].bytes_per() + 0.5))
            spans.append(IndexSpan(topic, start, min(end, start + count)))
        return _Work(
            spans,
            [span for span in lost if span.topic in wanted],
            {topic: end for topic, end in anew.items() if topic in wanted},
        )

    def _round(
        self,
        runner: Runner,
        progress: Progress,
        rows: RowSettings,
        schema: pa.Schema,
        logs: Mapping[str, LogRange],
        work: _Work,
        report: ExportReport,
    ) -> None:
        """Write and commit one round.

        Raises: CommitConflictError, and DataLossError for a topic that was made anew meanwhile; the files of the round
                are removed then.
        """
        tasks = plan_tasks(work.spans, logs, self.options, runner.cores)
        run = uuid.uuid4().hex[:8]
        partition_column = self.table.partition_column
        splits = [
            ExportSplit(tuple(ranges), rows, self.table.place, schema, partition_column, run, self.write)
            for ranges in tasks
        ]
        weights = [sum(each.weight_bytes for each in ranges) for ranges in tasks]
        results = runner.map(export_split, splits, progress, weights)
        files = [file for result in results for file in result.files]
        left_out = RowReport()
        for result in results:
            left_out.extend(result.report)
        ledgers = {span.topic: logs[span.topic].last.ledger_id for span in work.spans}
        append = Append(
            tuple(work.spans), tuple(files), schema, tuple(work.lost), left_out.messages, ledgers, work.anew
        )
        try:
            ensure_same_logs(self.options, work.spans, ledgers)
            self.table.commit(append)
        except (CommitConflictError, DataLossError):
            self._discard(files)
            raise
        self._note(report, append, left_out)
        progress.advance(0, messages=sum(file.rows for file in files))

    def _discard(self, files: list[DataFile]) -> None:
        """Remove the files of a commit that failed, except files that the table names: a commit may have been stored
        although its answer was lost.
        """
        named = {file.path for file in self.table.files()}
        for file in files:
            if file.path not in named:
                self.table.place.remove(file.path)

    def _note(self, report: ExportReport, append: Append, left_out: RowReport) -> None:
        report.rows += sum(file.rows for file in append.files)
        report.bytes += sum(file.bytes for file in append.files)
        report.files += len(append.files)
        report.commits += 1
        report.lost += [[span.topic, span.start, span.end] for span in append.lost]
        report.lost += [list(each[:3]) for each in left_out.lost]
        report.anew += sorted(append.anew)
        report.quarantined.extend(left_out)
        for span in append.spans:
            known = report.spans.setdefault(span.topic, [span.start, span.end])
            known[1] = span.end

    def _row_settings(self, value: TypedValues) -> RowSettings:
        columns = self.options.columns
        wanted = tuple(dict.fromkeys((*columns, *NEEDED))) if columns else None
        return RowSettings(
            ReadSettings.of(self.options),
            wanted,
            value=value,
            batch_bytes=self.options.batch_bytes or BATCH_BYTES,
        )


def _behind(table: Committer, topic: str, log: LogRange) -> int:
    """How many stored messages of a topic partition the table lacks."""
    start = table.committed([topic]).get(topic, 0)
    return max(0, int(log.end_index or 0) - max(start, int(log.first_index or 0)))
