"""From record batches to the Parquet files of one split: one open file per date, large row groups, durable at the end.

    <prefix>-<number>.parquet, in  <partition column>=YYYY-MM-DD/  when the table has such a column

Only columns with repeated values are dictionary encoded, and only columns that readers prune by have statistics: on
payloads both have a measurable cost.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from magnetar.pipeline.lake.data_file import DataFile
from magnetar.pipeline.lake.schema import conform
from magnetar.pipeline.lake.table_files import raising_full

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.pipeline.lake.table_files import TableFiles

DATE_COLUMN: Final = "__date"
"""The partition column of Delta tables, and of Parquet tables of format 1: UTC date of the broker publish time."""
PUBLISH_DATE: Final = "publish_date"
"""The partition column of Parquet tables. Libraries that read a directory pass over names that begin with "_"."""
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
_INDEX, _TIME, _FALLBACK_TIME = "__index", "__brokerPublishTime", "__publishTime"
_DICTIONARY = ("__topic", "__producerName", "__schemaVersion", "__replicatedFrom")
_STATISTICS = ("__topic", _INDEX, _TIME, _FALLBACK_TIME, "__eventTime", "__key", "__entryId", "__ledgerId")
_DAY_US = 86_400_000_000
_PAGE_BYTES = 1 << 20
"""Small enough that a page stays in the caches of a core from its encoding to the copy for the disk."""
MOST_OPEN: Final = 16
"""The most files (dates) open at a time: without broker publish time the producer's clock gives the date, and that
clock may be wrong by any amount."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How files are written.

    compression, level: a codec of Parquet, and its level.
    row_group_bytes:    of record batches in memory; a writer holds about this much per open date.
    file_bytes:         a file is closed, and the next file begun, once it has this size.
    """

    compression: str = "zstd"
    level: int | None = 1
    row_group_bytes: int = 32 << 20
    file_bytes: int = 512 << 20


DEFAULT_WRITE: Final = WriteOptions()


@dataclass(slots=True)
class _OpenFile:
    """A file in progress, and the facts about its rows."""

    path: str
    date: str | None
    sink: pa.NativeFile
    writer: pq.ParquetWriter
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_bytes: int = 0
    rows: int = 0
    min_index: int = -1
    max_index: int = -1
    min_time_us: int | None = None
    max_time_us: int | None = None


class SplitWriter:
    """Writes the rows of one split; use it as a context manager: leaving it with an exception removes its files.

    Args: prefix: of the file names, unique to the split and the attempt.
          schema: of the table; batches are conformed to it.
          partition_column: files stand in directories of their date with this name; None for no such directories.
    """

    def __init__(
        self,
        place: TableFiles,
        prefix: str,
        schema: pa.Schema,
        *,
        topic: str = "",
        partition_column: str | None = DATE_COLUMN,
        options: WriteOptions = DEFAULT_WRITE,
    ) -> None:
        self._place = place
        self._prefix = prefix
        self._schema = schema
        self._topic = topic
        self._partition_column = partition_column
        self._options = options
        self._open: dict[str | None, _OpenFile] = {}
        self._done: list[DataFile] = []
        self._paths: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Raises: SchemaDriftError, SinkFullError, OSError."""
        if batch.num_rows == 0:
            return
        for date, part, times in _by_date(batch):
            each = self._open.get(date) or self._begin(date)
            _note(each, part, times)
            each.pending.append(conform(part, self._schema))
            each.pending_bytes += part.nbytes
            if each.pending_bytes >= self._options.row_group_bytes:
                self._flush(each)
                if each.sink.tell() >= self._options.file_bytes:
                    self._end(each)

    def close(self) -> list[DataFile]:
        """The files, all of them durable. Raises: SinkFullError, OSError."""
        for each in list(self._open.values()):
            self._end(each)
        return sorted(self._done, key=lambda done: (done.min_index, done.path))

    def abort(self) -> None:
        """Remove every file of this writer; safe to call at any time."""
        for each in self._open.values():
            for close in (each.writer.close, each.sink.close):
                with contextlib.suppress(OSError):  # the disk is full, or the file is gone: it is removed below
                    close()
        self._open.clear()
        for path in self._paths:
            self._place.remove(path)
        self._done.clear()

    def _begin(self, date: str | None) -> _OpenFile:
        if len(self._open) >= MOST_OPEN:
            self._end(next(iter(self._open.values())))
        name = f"{self._prefix}-{len(self._paths):04d}.parquet"
        column = self._partition_column
        path = f"{column}={date or NO_DATE}/{name}" if column is not None else f"data/{name}"
        self._paths.append(path)
        sink = self._place.open_output(path)
        names = set(self._schema.names)
        with raising_full(self._place.absolute(path)):
            writer = pq.ParquetWriter(
                sink,
                self._schema,
                compression=self._options.compression,
                compression_level=self._options.level,
                use_dictionary=[name for name in _DICTIONARY if name in names],
                write_statistics=[name for name in _STATISTICS if name in names],
                data_page_size=_PAGE_BYTES,
            )
        self._open[date] = _OpenFile(path, date, sink, writer)
        return self._open[date]

    def _flush(self, each: _OpenFile) -> None:
        if not each.pending:
            return
        table = pa.Table.from_batches(each.pending, self._schema)
        with raising_full(self._place.absolute(each.path)):
            each.writer.write_table(table, row_group_size=table.num_rows)
        each.pending, each.pending_bytes = [], 0

    def _end(self, each: _OpenFile) -> None:
        self._flush(each)
        with raising_full(self._place.absolute(each.path)):
            each.writer.close()
            size = each.sink.tell()
            each.sink.close()
            self._place.sync(each.path)
        del self._open[each.date]
        self._done.append(
            DataFile(
                each.path,
                self._topic,
                each.date,
                each.rows,
                size,
                each.min_index,
                each.max_index,
                each.min_time_us,
                each.max_time_us,
            )
        )


def _times(batch: pa.RecordBatch) -> pa.Array | None:
    """Broker publish time, else publish time, as int64 microseconds; None when the batch has neither column."""
    names = batch.schema.names
    columns = [batch.column(name).cast(pa.int64()) for name in (_TIME, _FALLBACK_TIME) if name in names]
    if not columns:
        return None
    return columns[0] if len(columns) == 1 or columns[0].null_count == 0 else pc.coalesce(*columns)


def _by_date(
    batch: pa.RecordBatch,
) -> Iterator[tuple[str | None, pa.RecordBatch, tuple[int, int] | None]]:
    """Each date, its rows in order, and their lowest and highest time; nearly always all rows have the same date."""
    times = _times(batch)
    limits = None if times is None else _limits(times)
    if times is None or limits is None:
        yield None, batch, None
        return
    first, last = limits[0] // _DAY_US, limits[1] // _DAY_US
    if first == last and times.null_count == 0:
        yield _iso(first), batch, limits
        return
    none = np.iinfo(np.int64).min
    days = np.where(times.is_valid(), times.fill_null(0).to_numpy(zero_copy_only=False) // _DAY_US, none)
    for day in np.unique(days):
        wanted = pa.array(days == day)
        yield (None if day == none else _iso(int(day))), batch.filter(wanted), _limits(times.filter(wanted))


def _iso(day: int) -> str:
    return (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()


def _note(each: _OpenFile, part: pa.RecordBatch, time: tuple[int, int] | None) -> None:
    """Extend the statistics of the file's rows."""
    each.rows += part.num_rows
    index = _limits(part.column(_INDEX)) if _INDEX in part.schema.names else None
    if index is not None:
        each.min_index = index[0] if each.min_index < 0 else min(each.min_index, index[0])
        each.max_index = max(each.max_index, index[1])
    if time is not None:
        each.min_time_us = time[0] if each.min_time_us is None else min(each.min_time_us, time[0])
        each.max_time_us = time[1] if each.max_time_us is None else max(each.max_time_us, time[1])


def _limits(column: pa.Array) -> tuple[int, int] | None:
    """The lowest and highest value; None when every value is null."""
    found = pc.min_max(column).as_py()
    return None if found["min"] is None else (found["min"], found["max"])
