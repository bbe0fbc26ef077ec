"""Replay: the messages of a topic range, or the rows of a table, into a topic.

Each source topic partition is one task that sends in the order of the log, so messages with one key keep their order.
With an id the replay is exactly once: its ranges are written down before anything is sent (`ReplayState`), every task
sends under the producer name `<id>-<source partition>` with its row numbers as sequence ids, and the target's
deduplication drops stored messages. The same command goes on after a stop.

Payloads, keys, ordering keys, properties and event times are copied; publish times are those of the replay. All
versions of a source topic's schema are registered with the target, and each copy names its version there.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.errors import DataLossError, NoSuchTopicError
from magnetar.pipeline.jobs.export import file_slug
from magnetar.pipeline.jobs.reading import RowReader, RowSettings, plan_tasks, readable, stored_logs, wanted_spans
from magnetar.pipeline.jobs.replay_schemas import COLUMN, copy_schemas, with_versions
from magnetar.pipeline.lake.data_file import DataFile, IndexSpan
from magnetar.pipeline.lake.errors import NotATableError
from magnetar.pipeline.lake.table_files import sync_path
from magnetar.pipeline.log_range import MADE_ANEW
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.options import TopicSelection
from magnetar.pipeline.sink.options import SinkOptions
from magnetar.pipeline.sink.task import Place, send_rows
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.lake.committer import Committer
    from magnetar.pipeline.lake.table_files import TableFiles
    from magnetar.pipeline.log_range import LogRange
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.planning import ReadRange
    from magnetar.pipeline.progress import Progress

COLUMNS = ("value", "__key", "__orderingKey", "__messageProperties", "__eventTime")
_BATCH_ROWS = 4096


@dataclass(frozen=True, slots=True)
class ReplayPiece:
    """The work of one task: the ranges of one topic partition in order, or files of a table in order; pickles."""

    ranges: tuple[ReadRange, ...]
    rows: RowSettings | None
    files: tuple[DataFile, ...]
    place: TableFiles | None
    sink: SinkOptions
    task: int
    producer: str | None
    versions: Mapping[bytes, bytes] | None = None
    """The target's version of each schema version of the source; None without a schema."""


def replay_piece(piece: ReplayPiece) -> dict[str, int]:
    """Send the rows of one task; everything is stored on return. Raises: ClientError, PipelineError, ValueError."""
    reports = send_rows(_batches(piece), piece.sink, Place(piece.task, piece.producer, 0))
    return {"stored": sum(each.stored for each in reports), "known": sum(each.known for each in reports)}


def _batches(piece: ReplayPiece) -> Iterator[pa.RecordBatch]:
    if piece.rows is not None:
        reader = RowReader(piece.rows)
        for each in piece.ranges:
            for batch in reader.batches(each):
                yield batch if piece.versions is None else with_versions(batch, piece.versions)
        return
    assert piece.place is not None
    for file in piece.files:
        with piece.place.open_input(file.path) as source, pq.ParquetFile(source) as parquet:
            names = [name for name in parquet.schema_arrow.names if name not in {"__topic", "__partition"}]
            yield from parquet.iter_batches(_BATCH_ROWS, columns=names)


class ReplayState:
    """The ranges of a replay with an id, written before its first message; later runs read them from here.

    A row's number is its sequence id, so every run must have the same rows in the same order. `identity` holds each
    option that determines the rows or their order: a run with another identity is refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def pinned(self, identity: Mapping[str, str], decide: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The stored decision of the first run; the first run calls `decide` and stores the result durably.

        Raises: OptionError for a run with another identity or a file that is no state of a replay, OSError.
        """
        if self._path.exists():
            return self._known(identity)
        decision = decide()
        draft = self._path.with_suffix(".tmp")
        with draft.open("w", encoding="utf-8") as file:
            json.dump({"identity": identity, **decision}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        sync_path(str(self._path.absolute().parent))
        return decision

    def _known(self, identity: Mapping[str, str]) -> dict[str, Any]:
        try:
            known: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            before: dict[str, str] = known.pop("identity")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OptionError(f"{self._path} is no state of a replay: give another --state") from error
        for name in sorted(before.keys() | identity.keys()):
            if before.get(name) != identity.get(name):
                raise OptionError(
                    f"{self._path} belongs to a replay with another {name} ({before.get(name)}, now "
                    f"{identity.get(name)}): use the options of the first run, or another --id and --state"
                )
        return known


def producer_name(replay_id: str, source: str) -> str:
    """The name under which a source partition is replayed: the same in every run."""
    return f"{replay_id}-{file_slug(source)}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def sink_options(
    connection: Mapping[str, str], target: str, replay_id: str | None, more: Mapping[str, str]
) -> SinkOptions:
    """The options of the sink for this target. Raises: OptionError."""
    given = {**connection, "topic": target, **more}
    if replay_id is not None:
        given |= {"guarantee": "exactly-once", "sinkId": replay_id}
    return SinkOptions.parse(given, streaming=False)


def replay_topics(
    options: SourceOptions,
    sink: SinkOptions,
    runner: Runner,
    progress: Progress,
    *,
    replay_id: str | None = None,
    state: ReplayState | None = None,
) -> dict[str, Any]:
    """Replay the selected topics. Raises: PipelineError, ClientError, OptionError."""
    logs = stored_logs(options)
    if state is None:
        spans = wanted_spans(options, logs)
    else:
        decision = state.pinned(_rows_of_source(options) | _rows_of_sink(sink), lambda: _decide(options, logs))
        spans = [IndexSpan(*each) for each in decision["ranges"]]
        _check_logs(spans, logs, decision["ledgers"])
        # Rows that are gone would move the numbers of those behind them.
        options = replace(options, fail_on_data_loss=True)
    plain = RowSettings(readable(options), COLUMNS)
    typed, versioned = replace(plain, columns=(*COLUMNS, COLUMN)), replace(sink, keep_schema_versions=True)
    schemas: dict[str, dict[bytes, bytes]] = {}
    if sink.register_schema and sink.topic is not None:
        source, target = Catalog(options.connect.admin()), Catalog(sink.connect.admin())
        schemas = copy_schemas(source, target, [span.topic for span in spans], sink.topic)
    pieces: list[ReplayPiece] = []
    weights: list[float] = []
    for span in spans:
        tasks = plan_tasks([span], logs, options, 1)
        ranges = tuple(each for task in tasks for each in task)
        name = producer_name(replay_id, span.topic) if replay_id is not None else None
        versions = schemas.get(str(TopicName.parse(span.topic).base))
        rows, to = (plain, sink) if versions is None else (typed, versioned)
        pieces.append(ReplayPiece(ranges, rows, (), None, to, len(pieces), name, versions))
        weights.append(sum(each.weight_bytes for each in ranges))
    return _run(pieces, weights, runner, progress)


_SOURCE_ROWS = ("selection", "starting", "ending", "read_compacted", "on_corrupt", "on_encrypted", "decryption_keys")
_SINK_ROWS = ("topic", "routing", "batch_messages", "value_mode", "record_name", "kafka_style", "register_schema")


def _rows_of_source(options: SourceOptions) -> dict[str, str]:
    """The options that determine the rows and their order."""
    return {f"source {name}": str(getattr(options, name)) for name in _SOURCE_ROWS}


def _rows_of_sink(sink: SinkOptions) -> dict[str, str]:
    """The options that determine the content of the rows and the partition of each row."""
    found = {f"sink {name}": str(getattr(sink, name)) for name in _SINK_ROWS}
    if sink.topic is not None:
        catalog = Catalog(sink.connect.admin())
        topics = catalog.partitions(TopicSelection((sink.topic,)), missing_ok=True)
        found["number of partitions"] = f"{len(topics)} from {topics[0]} on"
    return found


def _decide(options: SourceOptions, logs: Mapping[str, LogRange]) -> dict[str, Any]:
    """Raises: OptionError for rows whose numbers do not last."""
    if options.read_compacted:
        raise OptionError(
            "readCompacted gives other rows after each compaction, so the numbers of rows do not last: replay without "
            "it, or without an id"
        )
    chosen = wanted_spans(options, logs)
    return {
        "ranges": [[span.topic, span.start, span.end] for span in chosen],
        "ledgers": {span.topic: logs[span.topic].last.ledger_id for span in chosen},
    }


def _check_logs(spans: Iterable[IndexSpan], logs: Mapping[str, LogRange], ledgers: Mapping[str, int]) -> None:
    """Raises: NoSuchTopicError, DataLossError for a topic that was made anew since."""
    for span in spans:
        if span.topic not in logs:
            raise NoSuchTopicError(span.topic)
        if logs[span.topic].is_another_than(span.end, ledgers.get(span.topic)):
            raise DataLossError(span.topic, span.start, span.end, MADE_ANEW)


def replay_table(
    table: Committer,
    sink: SinkOptions,
    runner: Runner,
    progress: Progress,
    *,
    replay_id: str | None = None,
    state: ReplayState | None = None,
) -> dict[str, Any]:
    """Replay the rows of a table, those of each topic partition in the order of their indexes.

    With an id the files of the table are those of the first run: later exports are not sent, and a table whose
    files were joined meanwhile is refused, because its rows have another order.
    Raises: PipelineError, ClientError, OptionError.
    """
    stored = {file.path: file for file in table.files()}
    if state is not None:
        decision = state.pinned(_rows_of_sink(sink) | {"table": table.place.uri}, lambda: {"files": sorted(stored)})
        if gone := [path for path in decision["files"] if path not in stored]:
            raise OptionError(
                f"{table.place.uri} has lost {len(gone)} files since this replay began (join-files?), {gone[0]} among "
                "them: its rows have another order now, so the replay cannot go on"
            )
        stored = {path: stored[path] for path in decision["files"]}
    by_topic: dict[str, list[DataFile]] = {}
    for file in sorted(stored.values(), key=lambda each: (each.topic, each.min_index, each.path)):
        by_topic.setdefault(file.topic, []).append(file)
    if not by_topic:
        raise NotATableError(f"{table.place.uri} holds no data files")
    pieces: list[ReplayPiece] = []
    weights: list[float] = []
    for topic, files in by_topic.items():
        name = producer_name(replay_id, topic) if replay_id is not None else None
        pieces.append(ReplayPiece((), None, tuple(files), table.place, sink, len(pieces), name))
        weights.append(float(sum(each.bytes for each in files)))
    return _run(pieces, weights, runner, progress)


def _run(pieces: list[ReplayPiece], weights: Iterable[float], runner: Runner, progress: Progress) -> dict[str, Any]:
    weights = list(weights)
    progress.begin(sum(weights))
    results = runner.map(replay_piece, pieces, progress, weights)
    report = {name: sum(each[name] for each in results) for name in ("stored", "known")}
    return {"partitions": len(pieces), **report}
