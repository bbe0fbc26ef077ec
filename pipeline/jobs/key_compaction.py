"""Key compaction into a table: of each key the newest message, without tombstones.

    phase 1  tasks read keys and indexes alone, and keep the highest index of each key of their stretch
    merge    the driver joins these, topic partition by topic partition: its memory holds each key of one partition once
    phase 2  tasks read the ranges again and write only the rows whose index is kept
    commit   one commit of all files, up to the index where the log ended when the job began

The phases exchange Arrow files below `_staging` in the table's directory; they are removed at the end. The broker is
not involved in any of it. The table is a snapshot: a further run makes a table of its own.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.pipeline.decode.decoder import BATCH_BYTES
from magnetar.pipeline.errors import PipelineError
from magnetar.pipeline.jobs.export import NEEDED, SplitResult, file_slug
from magnetar.pipeline.jobs.reading import (
    RowReader,
    RowReport,
    RowSettings,
    ensure_same_logs,
    plan_tasks,
    readable,
    stored_logs,
    wanted_spans,
)
from magnetar.pipeline.jobs.typed_values import choose_values
from magnetar.pipeline.lake.data_file import Append
from magnetar.pipeline.lake.table_files import TableFiles, raising_full
from magnetar.pipeline.lake.vacuum import STAGING
from magnetar.pipeline.lake.writer import DEFAULT_WRITE, SplitWriter, WriteOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.lake.committer import Committer
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.planning import ReadRange
    from magnetar.pipeline.progress import Progress
    from magnetar.pipeline.reading.settings import ReadSettings

_KEY_COLUMNS = ("__key", "__index", "__nullValue", "__size")
_KEYS = pa.schema([("key", pa.binary()), ("index", pa.int64()), ("tombstone", pa.bool_())])
_KEPT = pa.schema([("index", pa.int64())])


class NotEmptyError(PipelineError):
    """The table holds rows already; a compaction makes a table of its own."""


@dataclass(frozen=True, slots=True)
class KeyPiece:
    """Phase 1 of one task; pickles. `target`: the staging file, without its number."""

    ranges: tuple[ReadRange, ...]
    rows: RowSettings
    place: TableFiles
    target: str
    keep_without_key: bool


@dataclass(frozen=True, slots=True)
class KeptPiece:
    """Phase 2 of one task; pickles. `kept`: topic partition -> staging file of the indexes that stay."""

    ranges: tuple[ReadRange, ...]
    rows: RowSettings
    place: TableFiles
    schema: pa.Schema
    partition_column: str | None
    run: str
    kept: dict[str, str]
    write: WriteOptions = DEFAULT_WRITE


def newest_keys(piece: KeyPiece) -> list[tuple[str, str]]:
    """(topic partition, staging file) of each range: the newest index of each key. Raises: SinkFullError, ..."""
    reader, found = RowReader(piece.rows), []
    for number, each in enumerate(piece.ranges):
        parts = [_keys_of(batch, keep_without_key=piece.keep_without_key) for batch in reader.batches(each)]
        path = f"{piece.target}-{number:05d}.arrow"
        write_arrow(piece.place, path, newest(pa.concat_tables(parts) if parts else _KEYS.empty_table()))
        found.append((each.topic, path))
    return found


def _keys_of(batch: pa.RecordBatch, *, keep_without_key: bool) -> pa.Table:
    keys, indexes = batch.column("__key"), batch.column("__index")
    empty = pc.or_(batch.column("__nullValue"), pc.equal(batch.column("__size"), 0))
    table = pa.Table.from_arrays([keys, indexes, pc.and_(empty, keys.is_valid())], schema=_KEYS)
    if not keep_without_key:
        return table.filter(pc.is_valid(table["key"]))
    # A message without a key gets a key of its own, which no escaped key equals.
    alone = pc.binary_join_element_wise(b"\0\1", table["index"].cast(pa.string()).cast(pa.binary()), b"")
    return table.set_column(0, _KEYS.field(0), pc.coalesce(_escaped(table["key"]), alone.cast(pa.binary())))


def _escaped(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Different keys for different keys; a key that begins with a zero byte begins with two."""
    zero = pc.fill_null(pc.starts_with(keys, b"\0"), False)
    return pc.if_else(zero, pc.binary_join_element_wise(b"\0", keys, b""), keys)


def newest(table: pa.Table) -> pa.Table:
    """The row with the highest index of each key."""
    if not table.num_rows:
        return table
    highest = table.group_by("key").aggregate([("index", "max")])
    indexes = np.sort(highest["index_max"].to_numpy())
    return table.filter(pa.array(is_in(table["index"].to_numpy(), indexes)))


def is_in(values: NDArray[np.int64], kept: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which values are among `kept`, which is sorted."""
    if not len(kept):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(kept, values), len(kept) - 1)
    found: NDArray[np.bool_] = kept[at] == values
    return found


def write_kept(piece: KeptPiece) -> SplitResult:
    """Write the rows that stay; nothing is committed. Raises: SinkFullError, ...; no data file is left then."""
    reader = RowReader(piece.rows)
    result = SplitResult(report=reader.report)
    writers: dict[str, SplitWriter] = {}
    try:
        for each in piece.ranges:
            kept = read_arrow(piece.place, piece.kept[each.topic])["index"].to_numpy()
            writer = writers.get(each.topic)
            if writer is None:
                prefix = f"{file_slug(each.topic)}-{each.start:015d}-{piece.run}-{uuid.uuid4().hex[:6]}"
                writer = writers[each.topic] = SplitWriter(
                    piece.place,
                    prefix,
                    piece.schema,
                    topic=each.topic,
                    partition_column=piece.partition_column,
                    options=piece.write,
                )
            for batch in reader.batches(each):
                writer.write(batch.filter(pa.array(is_in(batch.column("__index").to_numpy(), kept))))
        for writer in writers.values():
            result.files += writer.close()
    except BaseException:
        for writer in writers.values():
            writer.abort()
        raise
    return result


def compact_topics(
    options: SourceOptions,
    table: Committer,
    runner: Runner,
    progress: Progress,
    *,
    keep_without_key: bool = False,
) -> dict[str, Any]:
    """Compact the selected topics into a new table.

    Raises: NotEmptyError, PipelineError, ClientError. Nothing is committed then.
    """
    logs = stored_logs(options)
    spans = wanted_spans(options, logs)
    if table.committed(logs) or table.files():
        raise NotEmptyError(f"{table.place.uri} holds a table already: compact into a new one, and remove the old one")
    settings = readable(options)
    tasks = plan_tasks(spans, logs, options, runner.cores)
    weights = [sum(each.weight_bytes for each in ranges) for ranges in tasks]
    progress.begin(2 * sum(weights))
    run = uuid.uuid4().hex[:8]
    place = table.place
    try:
        keys = RowSettings(settings, _KEY_COLUMNS)
        first = [
            KeyPiece(tuple(ranges), keys, place, f"{STAGING}/{run}/keys-{number:06d}", keep_without_key)
            for number, ranges in enumerate(tasks)
        ]
        found = [each for result in runner.map(newest_keys, first, progress, weights) for each in result]
        kept, counts = _merge(place, found, run)
        rows = _row_settings(options, settings, choose_values(options, logs))
        schema = table.prepare(RowReader(rows).decoder().schema)
        partition_column = table.partition_column
        second = [KeptPiece(tuple(ranges), rows, place, schema, partition_column, run, kept) for ranges in tasks]
        results = runner.map(write_kept, second, progress, weights)
        files = tuple(file for result in results for file in result.files)
        left_out = RowReport()
        for result in results:
            left_out.extend(result.report)
        ledgers = {span.topic: logs[span.topic].last.ledger_id for span in spans}
        ensure_same_logs(options, spans, ledgers)
        table.commit(Append(tuple(spans), files, schema, quarantined=left_out.messages, ledgers=ledgers))
    finally:
        for each in place.list(f"{STAGING}/{run}"):
            place.remove(each.path)
    return {
        "rows": sum(file.rows for file in files),
        "keys": counts,
        "messages": sum(span.end - span.start for span in spans),
        "files": len(files),
        "findings": bool(left_out.messages),
    }


def _merge(place: TableFiles, found: list[tuple[str, str]], run: str) -> tuple[dict[str, str], int]:
    """Topic partition -> staging file of the indexes that stay, and the number of keys with tombstones."""
    kept, keys = {}, 0
    for number, topic in enumerate(dict.fromkeys(topic for topic, _ in found)):
        whole = _KEYS.empty_table()
        for of_topic, path in found:
            if of_topic == topic:
                whole = newest(pa.concat_tables([whole, read_arrow(place, path)]))
        keys += whole.num_rows
        alive = whole.filter(pc.invert(pc.fill_null(whole["tombstone"], False)))
        kept[topic] = f"{STAGING}/{run}/kept-{number:06d}.arrow"
        indexes = pa.array(np.sort(alive["index"].to_numpy()), pa.int64())
        write_arrow(place, kept[topic], pa.Table.from_arrays([indexes], schema=_KEPT))
    return kept, keys


def _row_settings(options: SourceOptions, settings: ReadSettings, value: Any) -> RowSettings:
    wanted = tuple(dict.fromkeys((*options.columns, *NEEDED))) if options.columns else None
    return RowSettings(settings, wanted, value=value, batch_bytes=options.batch_bytes or BATCH_BYTES)


def write_arrow(place: TableFiles, path: str, table: pa.Table) -> None:
    """A staging file. Raises: SinkFullError, OSError."""
    with (
        raising_full(place.absolute(path)),
        place.open_output(path) as sink,
        pa.ipc.new_file(sink, table.schema) as out,
    ):
        out.write_table(table)


def read_arrow(place: TableFiles, path: str) -> pa.Table:
    with place.open_input(path) as source:
        return pa.ipc.open_file(source).read_all()


def as_text(report: dict[str, Any]) -> str:
    """One line."""
    return f"{report['rows']} rows of {report['keys']} keys kept out of {report['messages']} indexes"
