"""The promises of every table, over each format: each index once, under repetitions, overlaps and interruptions."""

import collections
import json
import random
import sqlite3
import threading

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sqlalchemy.exc import OperationalError

from magnetar.pipeline.lake.committer import FORMATS, open_table
from magnetar.pipeline.lake.data_file import Append, IndexSpan
from magnetar.pipeline.lake.errors import CommitConflictError, NotATableError, SchemaDriftError, SinkFullError
from magnetar.pipeline.needed_packages import MissingError
from magnetar.pipeline.option_table import OptionError
from tests.pipeline.lake.lake_rows import SCHEMA, TOPIC, append, rows, write

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:pyiceberg")


@pytest.fixture(params=FORMATS)
def format_name(request):
    return request.param


@pytest.fixture
def opened(format_name, tmp_path):
    """Open the table again, as another process does."""
    return lambda: open_table(format_name, str(tmp_path / "orders"))


def read_native(format_name, table):
    """All rows, by the library that users read the format with."""
    if format_name == "delta":
        from deltalake import DeltaTable

        return DeltaTable(table.place.uri).to_pyarrow_table()
    if format_name == "iceberg":
        return table._existing().scan().to_arrow()
    paths = [table.place.absolute(each.path) for each in table.files()]
    return ds.dataset(paths, schema=table.schema(), format="parquet").to_table()


def indexes(format_name, table, topic=TOPIC):
    found = read_native(format_name, table)
    return sorted(
        i for i, t in zip(found["__index"].to_pylist(), found["__topic"].to_pylist(), strict=True) if t == topic
    )


def test_commits_follow_each_other(opened, format_name):
    table = opened()
    assert table.committed([TOPIC]) == {}
    assert table.files() == []
    append(table, 100, 110)
    append(opened(), 110, 120)
    assert opened().committed([TOPIC, "absent"]) == {TOPIC: 120}
    assert indexes(format_name, opened()) == list(range(100, 120))
    files = opened().files()
    assert sorted((f.min_index, f.max_index, f.rows, f.topic) for f in files) == [
        (100, 109, 10, TOPIC),
        (110, 119, 10, TOPIC),
    ]
    assert {f.date for f in files} == {"2026-11-21"}


@pytest.mark.parametrize(("start", "end"), [(100, 110), (105, 115), (90, 100), (111, 120)])
def test_ranges_that_do_not_follow_are_refused(opened, format_name, start, end):
    append(opened(), 100, 110)
    with pytest.raises(CommitConflictError, match="110"):
        append(opened(), start, end, prefix="again")
    assert indexes(format_name, opened()) == list(range(100, 110))


def test_lost_indexes_are_a_part_of_the_commit(opened, format_name):
    append(opened(), 0, 10)
    append(opened(), 15, 20, lost=[IndexSpan(TOPIC, 10, 15)])
    assert opened().committed([TOPIC]) == {TOPIC: 20}
    assert indexes(format_name, opened()) == [*range(10), *range(15, 20)]


def test_topics_have_positions_of_their_own(opened, format_name):
    other = f"{TOPIC}-partition-1"
    table = opened()
    append(table, 0, 5)
    append(table, 7, 9, topic=other)
    append(table, 5, 6)
    assert opened().committed([TOPIC, other]) == {TOPIC: 6, other: 9}
    assert indexes(format_name, opened(), other) == [7, 8]


def test_a_commit_of_several_topics_is_whole_or_nothing(opened, format_name):
    other = f"{TOPIC}-partition-1"
    table = opened()
    append(table, 0, 5)
    schema = table.prepare(SCHEMA)
    files = write(table, schema, rows(3, 6), prefix="x") + write(table, schema, rows(0, 2, topic=other), prefix="y")
    both = Append((IndexSpan(other, 0, 2), IndexSpan(TOPIC, 3, 6)), tuple(files), schema)
    with pytest.raises(CommitConflictError):
        table.commit(both)
    assert opened().committed([TOPIC, other]) == {TOPIC: 5}
    assert indexes(format_name, opened(), other) == []


def test_the_newest_ledger_stands_beside_the_position(opened):
    table = opened()
    schema = table.prepare(SCHEMA)
    assert table.ledgers([TOPIC]) == {}
    for start, ledger_id in ((0, 7), (5, 9)):
        table.commit(Append((IndexSpan(TOPIC, start, start + 5),), (), schema, ledgers={TOPIC: ledger_id}))
    assert opened().ledgers([TOPIC, "absent"]) == {TOPIC: 9}


def test_a_log_that_was_made_anew_begins_again(opened, format_name):
    append(opened(), 0, 10)
    table = opened()
    files = write(table, table.prepare(SCHEMA), rows(0, 4), prefix="anew")
    commit = Append((IndexSpan(TOPIC, 0, 4),), tuple(files), table.prepare(SCHEMA), anew={TOPIC: 10})
    table.commit(commit)
    assert opened().committed([TOPIC]) == {TOPIC: 4}
    assert indexes(format_name, opened()) == sorted([*range(10), *range(4)])
    with pytest.raises(CommitConflictError):
        opened().commit(commit)


@pytest.mark.parametrize(("library", "name"), [("delta", "50%25"), ("iceberg", "a#b"), ("iceberg", "a?b")])
def test_paths_that_a_library_mistakes_are_refused(tmp_path, library, name):
    with pytest.raises(NotATableError, match="takes no local path with"):
        open_table(library, str(tmp_path / name))


@pytest.mark.parametrize("uri", ["file:/lake/a%20b", "file:///lake/a%20b", "FILE://localhost/lake/a%20b/", "/lake/a b"])
def test_urls_are_decoded_and_paths_are_not(uri):
    place = open_table("parquet", uri).place
    assert (place.uri, place.is_local) == ("/lake/a b", True)
    assert open_table("parquet", "/lake/a%20b").place.uri == "/lake/a%20b"
    with pytest.raises(NotATableError, match="three slashes"):
        open_table("parquet", "file://lake/a")


@pytest.mark.parametrize("call", ["load_catalog", "create_namespace", "create_table_transaction"])
def test_a_catalog_without_room_is_a_full_disk(tmp_path, monkeypatch, call):
    from pyiceberg.catalog.sql import SqlCatalog

    from magnetar.pipeline.lake import iceberg

    def full(*_arguments, **_more):
        raise OperationalError("CREATE TABLE", {}, sqlite3.OperationalError("database or disk is full"))

    monkeypatch.setattr(iceberg if call == "load_catalog" else SqlCatalog, call, full)
    with pytest.raises(SinkFullError):
        open_table("iceberg", str(tmp_path / "t")).prepare(SCHEMA)


def test_a_range_without_rows_moves_on(opened, format_name):
    """Markers and compacted messages have indexes and no rows."""
    append(opened(), 0, 5)
    table = opened()
    table.commit(Append((IndexSpan(TOPIC, 5, 9),), (), table.prepare(SCHEMA)))
    assert opened().committed([TOPIC]) == {TOPIC: 9}
    assert indexes(format_name, opened()) == list(range(5))


def test_two_commits_from_one_version(opened):
    """The second commit fails even when its table was read before the first commit."""
    append(opened(), 0, 5)
    first, second = opened(), opened()
    schema = first.prepare(SCHEMA)
    files = [write(t, schema, rows(5, 8), prefix=p) for t, p in ((first, "a"), (second, "b"))]
    second.committed([TOPIC])
    first.commit(Append((IndexSpan(TOPIC, 5, 8),), tuple(files[0]), schema))
    with pytest.raises(CommitConflictError):
        second.commit(Append((IndexSpan(TOPIC, 5, 8),), tuple(files[1]), schema))


def test_many_jobs_at_once_give_each_index_once(opened, format_name):
    """Four exporters of one topic; each plans from the table's position, loses races, and plans again."""
    end = 40
    append(opened(), 0, 1)
    conflicts = collections.Counter()

    def job(name):
        chance = random.Random(name)
        while True:
            table = opened()
            start = table.committed([TOPIC])[TOPIC]
            if start >= end:
                return
            try:
                append(table, start, min(end, start + chance.randint(1, 9)), prefix=f"{name}-{start}-{chance.random()}")
            except CommitConflictError:
                conflicts[name] += 1

    threads = [threading.Thread(target=job, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert indexes(format_name, opened()) == list(range(end))
    assert opened().committed([TOPIC]) == {TOPIC: end}


def test_columns_are_added_and_never_dropped(opened, format_name):
    append(opened(), 0, 2)
    grown = SCHEMA.append(pa.field("amount", pa.int32()))
    append(opened(), 2, 4, schema=grown, amount=[7, 8])
    append(opened(), 4, 5)  # an older job, without the column
    found = read_native(format_name, opened()).sort_by("__index")
    assert found["amount"].to_pylist() == [None, None, 7, 8, None]


def test_wider_types(opened, format_name):
    narrow = SCHEMA.append(pa.field("amount", pa.int32()))
    append(opened(), 0, 2, schema=narrow, amount=[1, 2])
    wide = SCHEMA.append(pa.field("amount", pa.int64()))
    if format_name == "delta":
        with pytest.raises(SchemaDriftError, match="amount"):
            append(opened(), 2, 3, schema=wide, amount=[1 << 40])
        return
    append(opened(), 2, 3, schema=wide, amount=[1 << 40])
    assert sorted(read_native(format_name, opened())["amount"].to_pylist()) == [1, 2, 1 << 40]


def test_types_that_do_not_go_together(opened):
    append(opened(), 0, 2, schema=SCHEMA.append(pa.field("amount", pa.int32())), amount=[1, 2])
    with pytest.raises(SchemaDriftError, match=r"amount.*int32.*string"):
        opened().prepare(SCHEMA.append(pa.field("amount", pa.string())))


def test_rows_without_a_broker_publish_time(opened, format_name):
    append(opened(), 0, 3, times=False)
    assert indexes(format_name, opened()) == [0, 1, 2]
    assert [each.date for each in opened().files()] == [None if format_name == "iceberg" else "2026-11-21"]


def test_files_are_exchanged_and_the_position_stays(opened, format_name):
    for start in range(0, 30, 10):
        append(opened(), start, start + 10)
    table = opened()
    old = sorted(table.files(), key=lambda each: each.min_index)[:2]
    added = write(table, table.prepare(SCHEMA), rows(0, 20), prefix="compacted")
    table.replace(old, added)
    assert indexes(format_name, opened()) == list(range(30))
    assert len(opened().files()) == 2
    with pytest.raises(CommitConflictError):
        opened().replace(old, added)
    append(opened(), 30, 31)
    assert opened().committed([TOPIC]) == {TOPIC: 31}


def test_vacuum_removes_unreferenced_files(opened, format_name):
    append(opened(), 0, 10)
    table = opened()
    left_behind = write(table, table.prepare(SCHEMA), rows(10, 12), prefix="killed")[0].path
    assert opened().vacuum(3600) == [], "a running job may commit it yet"
    assert opened().vacuum(0, dry_run=True) == [left_behind]
    assert opened().vacuum(0) == [left_behind]
    assert left_behind not in {each.path for each in table.place.list()}
    assert indexes(format_name, opened()) == list(range(10))


def test_vacuum_keeps_replaced_files_for_readers_of_an_older_version(opened, format_name):
    append(opened(), 0, 10)
    table = opened()
    old = table.files()
    table.replace(old, write(table, table.prepare(SCHEMA), rows(0, 10), prefix="compacted"))
    assert opened().vacuum(3600) == []
    assert opened().vacuum(0) == [old[0].path]
    assert indexes(format_name, opened()) == list(range(10))


def test_a_long_log_of_commits(opened, format_name):
    table = opened()
    commits = 104 if format_name == "delta" else 12  # deltalake writes a checkpoint every hundred commits
    for start in range(commits):
        append(table, start, start + 1)
    assert opened().committed([TOPIC]) == {TOPIC: commits}
    assert indexes(format_name, opened()) == list(range(commits))


def test_spark_style_readers_take_the_directories(opened, format_name):
    """Parquet and Delta files stand in hive-style directories; Iceberg keeps the date in its metadata."""
    [file] = append(opened(), 0, 3)
    folders = {"iceberg": "data/", "delta": "__date=2026-11-21/", "parquet": "publish_date=2026-11-21/"}
    assert file.path.startswith(folders[format_name])
    assert pq.read_schema(opened().place.absolute(file.path)).names == SCHEMA.names


def test_libraries_read_the_directory_of_a_parquet_table(tmp_path):
    """By default pyarrow and pandas pass over all directories whose names begin with an underline."""
    append(open_table("parquet", str(tmp_path / "orders")), 0, 3)
    found = pq.read_table(tmp_path / "orders")
    assert (found.num_rows, "publish_date" in found.column_names) == (3, True)
    assert len(pd.read_parquet(tmp_path / "orders")) == 3


def test_formats_that_are_not_known(tmp_path):
    with pytest.raises(NotATableError, match="parquet, delta, iceberg"):
        open_table("hudi", str(tmp_path))


def test_a_format_whose_library_is_absent(tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, "delta", ("magnetar.pipeline.lake.no_such_module", "X", "delta"))
    with pytest.raises(MissingError, match=r"magnetar\[delta\]"):
        open_table("delta", str(tmp_path))


@pytest.mark.parametrize("other", FORMATS)
def test_a_folder_holds_a_table_of_one_format(opened, format_name, tmp_path, other):
    append(opened(), 0, 3)
    if other == format_name:
        assert open_table(other, str(tmp_path / "orders")).committed([TOPIC]) == {TOPIC: 3}
    else:
        with pytest.raises(OptionError, match=f"format {format_name}: give --format {format_name}, or another folder"):
            open_table(other, str(tmp_path / "orders"))


def test_commits_name_their_content(opened, format_name, tmp_path):
    append(opened(), 0, 3)
    if format_name == "parquet":
        manifest = json.loads((tmp_path / "orders/_magnetar/00000000000000000000.json").read_text())
        assert manifest["spans"] == [[TOPIC, 0, 3]]
    elif format_name == "delta":
        from deltalake import DeltaTable

        assert json.loads(DeltaTable(str(tmp_path / "orders")).history(1)[0]["magnetar.spans"]) == [[TOPIC, 0, 3]]
    else:
        summary = opened()._existing().current_snapshot().summary
        assert json.loads(summary["magnetar.spans"]) == [[TOPIC, 0, 3]]
