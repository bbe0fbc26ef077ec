"""Files of a split: dates, sizes, statistics, and the remains of a failed write."""

import errno
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magnetar.pipeline.lake.errors import SchemaDriftError, SinkFullError
from magnetar.pipeline.lake.local_output import BLOCK_BYTES
from magnetar.pipeline.lake.table_files import TableFiles
from magnetar.pipeline.lake.writer import MOST_OPEN, NO_DATE, SplitWriter, WriteOptions
from tests.pipeline.lake.lake_rows import SCHEMA, TOPIC, rows


@pytest.fixture
def place(tmp_path):
    return TableFiles(str(tmp_path / "t"))


def written(place, *batches, schema=SCHEMA, **options):
    with SplitWriter(place, "s", schema, topic=TOPIC, options=WriteOptions(**options)) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


def write_all(place, batches):
    with SplitWriter(place, "s", SCHEMA) as writer:
        for batch in batches:
            writer.write(batch)


def test_one_file(place):
    [file] = written(place, rows(0, 5), rows(5, 8))
    assert (file.path, file.rows, file.min_index, file.max_index) == ("__date=2026-11-21/s-0000.parquet", 8, 0, 7)
    assert file.date == "2026-11-21"
    table = pq.read_table(place.absolute(file.path), partitioning=None)
    assert table.equals(pa.Table.from_batches([rows(0, 5), rows(5, 8)]))
    assert file.bytes == place.list()[0].bytes
    assert file.max_time_us - file.min_time_us == 4_000, "each batch of rows begins at noon, one row a millisecond"


def test_no_rows_no_file(place):
    assert written(place, rows(0, 0)) == []
    assert place.list() == []


def test_a_file_per_date(place):
    files = written(place, rows(0, 3), rows(3, 6, day=1), rows(6, 9))
    assert [(f.date, f.rows, f.min_index, f.max_index) for f in files] == [
        ("2026-11-21", 6, 0, 8),
        ("2026-11-22", 3, 3, 5),
    ]


def test_a_batch_over_midnight_and_rows_without_a_time(place):
    times = rows(0, 4)["__brokerPublishTime"].to_pylist()
    times[2] = times[2].replace(day=22)
    times[3] = None
    batch = rows(0, 4, times=False, __brokerPublishTime=times, __publishTime=[None] * 4)
    files = written(place, batch)
    assert sorted((f.date or "", f.rows) for f in files) == [("", 1), ("2026-11-21", 2), ("2026-11-22", 1)]
    assert any(f"__date={NO_DATE}/" in f.path for f in files)


def test_publish_time_stands_in_for_the_brokers(place):
    [file] = written(place, rows(0, 3, times=False))
    assert file.date == "2026-11-21"


def test_row_groups_and_files_have_their_sizes(place):
    files = written(place, *(rows(n, n + 100) for n in range(0, 1000, 100)), row_group_bytes=8_000, file_bytes=12_000)
    assert len(files) > 1
    assert [f.min_index for f in files] == sorted(f.min_index for f in files)
    assert sum(f.rows for f in files) == 1000
    assert pq.ParquetFile(place.absolute(files[0].path)).num_row_groups > 1


def test_statistics_and_dictionaries_only_where_they_serve(place):
    [file] = written(place, rows(0, 100))
    group = pq.ParquetFile(place.absolute(file.path)).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert columns["__index"].statistics.max == 99
    assert columns["__topic"].dictionary_page_offset is not None
    assert not columns["value"].is_stats_set
    assert columns["value"].dictionary_page_offset is None


def test_a_failure_leaves_nothing(place):
    def broken():
        yield rows(0, 3)
        yield rows(3, 5, day=1)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_all(place, broken())
    assert place.list() == []


def test_a_column_of_another_type_names_itself(place):
    drifted = SCHEMA.set(0, pa.field("value", pa.float64()))
    with pytest.raises(SchemaDriftError, match="value"):
        written(place, rows(0, 1, schema=drifted, value=[1.5]))
    assert place.list() == []


class FullDisk:
    """A stream on a disk with room for so many bytes."""

    def __init__(self, sink, room):
        self.sink, self.room = sink, room

    closed = False

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.sink.write(data)

    def tell(self):
        return self.sink.tell()

    def flush(self):
        self.sink.flush()

    def close(self):
        self.sink.close()


@pytest.mark.parametrize("room", [0, 3_000])
def test_a_full_disk_is_named_and_nothing_is_left(place, monkeypatch, room):
    """Without room for the first row group, and without room for the footer."""
    opened = TableFiles.open_output
    monkeypatch.setattr(
        TableFiles, "open_output", lambda self, path: pa.PythonFile(FullDisk(opened(self, path), room), "w")
    )
    with pytest.raises(SinkFullError, match="make room and run the same command again"):
        written(place, *(rows(n, n + 100) for n in range(0, 1000, 100)), row_group_bytes=4_000)
    assert place.list() == []


def test_many_dates_keep_few_files_open(place, monkeypatch):
    """Without broker publish times, dates come from the producers' clocks, which may show any time."""
    most, opened = [], SplitWriter._begin

    def begin(self, date):
        found = opened(self, date)
        most.append(len(self._open))
        return found

    monkeypatch.setattr(SplitWriter, "_begin", begin)
    with SplitWriter(place, "x", SCHEMA) as writer:
        for number in range(3 * MOST_OPEN):
            writer.write(rows(number * 2, number * 2 + 2, day=number))
        files = writer.close()
    assert len(files) == 3 * MOST_OPEN
    assert max(most) == MOST_OPEN
    assert sum(each.rows for each in files) == 6 * MOST_OPEN


class FailingWriter:
    def __init__(self, writer):
        self.writer = writer

    def close(self):
        self.writer.close()
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_failed_write_leaves_no_open_file(place, monkeypatch):
    """The thread of an output ends with its file."""
    before = threading.active_count()
    writer = SplitWriter(place, "x", SCHEMA)
    writer.write(rows(0, 5))
    [opened] = writer._open.values()
    opened.sink.write(bytes(2 * BLOCK_BYTES))
    assert threading.active_count() > before
    monkeypatch.setattr(opened, "writer", FailingWriter(opened.writer))
    writer.abort()
    assert threading.active_count() == before
    assert place.list() == []
