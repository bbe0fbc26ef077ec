"""Back-fill of Kafka log segments as one job: each partition's directory is one task.

    orders-0/*.log -> TARGET-partition-0     orders-1/*.log -> TARGET-partition-1     ...

The entries, the producer names and the sequence ids are those of `magnetar kafka import` (`ImportPlan`), so either tool
continues where the other stopped, and deduplication stores each record once. Records of aborted transactions are left
out; a task stops in front of the first transaction whose end the segments do not hold.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError

import numpy as np

from magnetar.client.deduplication import Remedies, ensure_deduplication, topic_path
from magnetar.client.errors import InputError, RefusedError, RetryError
from magnetar.converters.errors import ConverterError
from magnetar.converters.kafka.log_file import LogDamage, LogFile
from magnetar.converters.kafka.transactions import Isolation, Transactions, TransactionSurvey
from magnetar.converters.kafka_entry.import_plan import ImportPlan, SequenceMode, place_of, producer_name
from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.decode.headers import Headers
from magnetar.pipeline.errors import PipelineError
from magnetar.pipeline.jobs.entry_sender import send_entries
from magnetar.pipeline.planning import ReadRange
from magnetar.pipeline.reading.ranges import RangeReader
from magnetar.pipeline.reading.settings import ReadSettings
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.entry_columns import EntryColumn, EntryStatus
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from magnetar.client.admin import AdminApi
    from magnetar.converters.kafka_entry.import_plan import ImportStep
    from magnetar.pipeline.connect_options import ConnectOptions
    from magnetar.pipeline.entry_chunk import EntryChunk
    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.progress import Progress

_PREFIX: Final = "kafka-import-"


def highest_sequence_ids(connect: ConnectOptions, topic: str) -> dict[str, int]:
    """Producer of an import -> highest sequence id stored. Reads the whole topic once. Raises: PipelineError."""
    log = Catalog(connect.admin()).range(topic, ledgers=True)
    if log is None or not log.entries:
        return {}
    reader = RangeReader(ReadSettings(connect, on_corrupt="quarantine", fail_on_data_loss=False))
    found: dict[str, int] = {}
    whole = ReadRange(topic, log.partition, log.first, log.end, newest_ledger=log.last.ledger_id)
    for chunk in reader.chunks(whole):
        _note(chunk, found)
    return found


def _note(chunk: EntryChunk, found: dict[str, int]) -> None:
    headers = Headers(chunk, verify=False)
    data = memoryview(chunk.data)
    starts, ends = headers[EntryColumn.METADATA_START], headers[EntryColumn.METADATA_END]
    for row in np.flatnonzero(headers[EntryColumn.STATUS] == EntryStatus.FINE).tolist():
        metadata = pb.MessageMetadata.FromString(bytes(data[int(starts[row]) : int(ends[row])]))
        if metadata.producer_name.startswith(_PREFIX):
            high = max(metadata.sequence_id, metadata.highest_sequence_id)
            found[metadata.producer_name] = max(high, found.get(metadata.producer_name, -1))


_PARTITION = re.compile(r"(?P<topic>.+)-(?P<number>\d+)")
_REMEDIES = Remedies("--enable-deduplication", "--admin-url", "a topic that deduplicates")


class BackfillError(PipelineError):
    """Segments that cannot be imported as they are; the text names the place and the option that goes on."""


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """How segments become entries; pickles."""

    connect: ConnectOptions
    isolation: Isolation = Isolation.READ_COMMITTED
    skip_open: bool = False
    skip_damage: bool = False
    enable_deduplication: bool = False
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class BackfillPiece:
    """One partition: its segments in order, and the topic that gets them; pickles."""

    segments: tuple[str, ...]
    target: str
    options: BackfillOptions


@dataclass(slots=True)
class PartitionReport:
    """The result of one partition.

    known: messages that the topic had before.
    waits: the task stopped in front of a transaction whose end the segments do not hold.
    """

    target: str
    stored: int = 0
    known: int = 0
    aborted: int = 0
    damaged: int = 0
    waits: bool = False


def find_partitions(paths: Sequence[Path], target: str) -> list[tuple[tuple[str, ...], str]]:
    """(segments, topic) of each partition's directory: of a directory that holds such directories, all of them.

    Raises: InputError for a directory without segments, or whose name is no KAFKATOPIC-NUMBER.
    """
    topic = TopicName.parse(target)
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        if not path.is_dir():
            raise InputError(f"{path}: no directory; name the directories of Kafka partitions, or one that holds them")
        directories = [path] if any(path.glob("*.log")) else sorted(each for each in path.iterdir() if each.is_dir())
        for directory in directories:
            segments = tuple(str(each) for each in sorted(directory.glob("*.log")) if each.stat().st_size)
            match = _PARTITION.fullmatch(directory.name)
            if not segments:
                continue
            if match is None:
                raise InputError(f"{directory}: the directory of a Kafka partition is called TOPIC-NUMBER")
            name = str(topic.partition_name(int(match["number"])))
            if name in found:
                raise InputError(f"{directory}: another directory holds {name}, too; import one topic a run")
            found[name] = segments
    if not found:
        raise InputError(f"{', '.join(map(str, paths))}: no segments (*.log) of Kafka partitions")
    return [(segments, name) for name, segments in sorted(found.items())]


def backfill(
    paths: Sequence[Path], target: str, options: BackfillOptions, runner: Runner, progress: Progress
) -> dict[str, Any]:
    """Back-fill every partition; an absent topic is created with as many partitions as the segments need.

    Raises: BackfillError, ClientError.
    """
    found = find_partitions(paths, target)
    _ensure_partitions(options.connect.admin(), TopicName.parse(target), [TopicName.parse(name) for _, name in found])
    pieces = [BackfillPiece(segments, name, options) for segments, name in found]
    weights = [float(sum(Path(each).stat().st_size for each in piece.segments)) for piece in pieces]
    progress.begin(sum(weights))
    reports = runner.map(backfill_partition, pieces, progress, weights)
    return {
        "partitions": [asdict(each) for each in reports],
        "stored": sum(each.stored for each in reports),
        "known": sum(each.known for each in reports),
        "aborted": sum(each.aborted for each in reports),
        "findings": [each.target for each in reports if each.waits or each.damaged],
    }


def _ensure_partitions(admin: AdminApi, topic: TopicName, wanted: Sequence[TopicName]) -> None:
    """Raises: InputError when the topic has fewer partitions; RefusedError, RetryError."""
    needed = max(each.partition for each in wanted) + 1
    path = f"{topic_path(topic)}/partitions"
    try:
        there = _partitions(admin, path)
        if not there:
            admin.call("PUT", path, str(needed).encode())
            there = needed
    except HTTPError as error:
        reason = error.read()[:200].decode("utf-8", "replace")
        raise RefusedError(f"{admin.url} answers {error.code} for the partitions of {topic}: {reason}") from error
    except (OSError, ValueError) as error:
        raise RetryError(f"{admin.url} does not tell the partitions of {topic}: {error}") from error
    if there < needed:
        raise InputError(
            f"{topic} has {there} partitions, the segments have {needed}: raise their number first "
            f"(pulsar-admin topics update-partitioned-topic {topic} -p {needed})"
        )


def _partitions(admin: AdminApi, path: str) -> int:
    """The number of partitions; 0 for an absent topic. Raises: OSError (also as HTTPError), ValueError."""
    try:
        return int((admin.call("GET", path) or {}).get("partitions", 0))
    except HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return 0
        raise


def backfill_partition(piece: BackfillPiece) -> PartitionReport:
    """Import the segments of one partition, one after the other. Raises: BackfillError, ClientError."""
    report = PartitionReport(piece.target)
    options = piece.options
    transactions = None
    if options.isolation is Isolation.READ_COMMITTED:
        transactions = survey_transactions(piece.segments)
        if options.skip_open:
            transactions = transactions.with_open_aborted()
    _ensure_deduplication(piece)
    memory = _Memory(piece)
    for segment in piece.segments:
        with _opened(segment) as (read, size):
            plan = _SegmentPlan(segment, read, size, transactions, report, options)
            sent = send_entries(
                options.connect, piece.target, plan.name, plan.steps, memory.of(plan.name), timeout_s=options.timeout_s
            )
            report.stored += sent.stored
            report.known += sent.known
        if report.waits:
            break
    return report


class _Memory:
    """The offsets that the topic holds of each producer; read when the broker does not know a name, at most once."""

    def __init__(self, piece: BackfillPiece) -> None:
        self._piece = piece
        self._known: dict[str, int] | None = None

    def of(self, name: str) -> Callable[[], int]:
        """A function that returns the highest sequence id of this producer name in the topic; -1 without one."""

        def highest() -> int:
            if self._known is None:
                self._known = highest_sequence_ids(self._piece.options.connect, self._piece.target)
            return self._known.get(name, -1)

        return highest


def survey_transactions(segments: Sequence[str]) -> Transactions:
    """The transactions of the segments of one partition, in order."""
    survey = TransactionSurvey()
    for segment in segments:
        with _opened(segment) as (read, size):
            for item in LogFile(read, size, on_damage=lambda _: survey.damage()).batches():
                survey.add(item.batch, place_of(item, SequenceMode.OFFSET))
    return survey.result()


class _SegmentPlan:
    """The entries of one segment. `name`: the producer name that `magnetar kafka import` gives to this segment."""

    def __init__(
        self,
        segment: str,
        read: Callable[[int, int], bytes],
        size: int,
        transactions: Transactions | None,
        report: PartitionReport,
        options: BackfillOptions,
    ) -> None:
        self._segment, self._read, self._size = segment, read, size
        self._transactions, self._report, self._options = transactions, report, options
        self._aborted_before, self._damaged_before = report.aborted, report.damaged
        self.name = self._producer_name()

    def steps(self, resume_after: int, confirm: bool) -> Iterator[ImportStep]:
        """The entries behind `resume_after`, for one attempt. Raises: BackfillError."""
        report = self._report
        report.aborted, report.damaged, report.waits = self._aborted_before, self._damaged_before, False
        plan = ImportPlan(
            self.name,
            SequenceMode.OFFSET,
            time.time_ns() // 1_000_000,
            resume_after,
            confirm=confirm,
            on_damage=self._on_damage,
            transactions=self._transactions,
        )
        try:
            for step in plan.steps(LogFile(self._read, self._size, on_damage=self._on_damage)):
                report.aborted += step.aborted_messages
                report.waits = report.waits or step.waits
                if step.entry is not None:
                    yield step
        except ConverterError as error:
            raise BackfillError(f"{self._segment}: {error}") from error

    def _on_damage(self, damage: LogDamage) -> None:
        if not self._options.skip_damage:
            raise BackfillError(
                f"{self._segment}: damage at position {damage.position}: {damage.reason}. Everything before it is "
                "stored; --on-damage skip leaves it out and goes on"
            )
        self._report.damaged += 1

    def _producer_name(self) -> str:
        path = Path(self._segment).absolute()
        for item in LogFile(self._read, self._size, on_damage=lambda _: None).batches():
            return producer_name(f"{path.parent.name}/{path.name}", bytes(item.batch.buffer), SequenceMode.OFFSET)
        raise InputError(f"{self._segment}: no Kafka record batch in its {self._size} bytes")


def _ensure_deduplication(piece: BackfillPiece) -> None:
    """Ensure that the topic exists and deduplicates. Raises: DeduplicationError."""
    topic = TopicName.parse(piece.target)
    ensure_deduplication(
        piece.options.connect.admin(),
        topic,
        enable=piece.options.enable_deduplication,
        say=lambda _: None,
        remedies=_REMEDIES,
    )


class _opened:  # noqa: N801 - used like a function
    """The file as (read, size), closed at the end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> tuple[Callable[[int, int], bytes], int]:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror}") from error
        descriptor = self._descriptor
        return lambda position, length: os.pread(descriptor, length, position), os.fstat(descriptor).st_size

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
