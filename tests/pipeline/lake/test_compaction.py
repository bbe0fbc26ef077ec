import pyarrow.parquet as pq
import pytest

from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.lake.compaction import join_files, plan_groups, replace_group
from magnetar.pipeline.lake.data_file import DataFile
from magnetar.pipeline.lake.errors import CommitConflictError
from tests.pipeline.lake.lake_rows import SCHEMA, TOPIC, append


def file(start, size=10, topic=TOPIC, date="2026-11-21"):
    return DataFile(f"{topic[-1]}{date}{start}", topic, date, 1, size, start, start)


def starts(groups):
    return [[each.min_index for each in group] for group in groups]


def test_small_neighbours_are_joined_up_to_the_target():
    assert starts(plan_groups([file(n) for n in (4, 0, 1, 3, 2)], target_bytes=30)) == [[0, 1, 2], [3, 4]]


def test_large_files_stay_and_separate_runs():
    assert starts(plan_groups([file(0), file(1, 90), file(2), file(3)], target_bytes=100)) == [[2, 3]]


def test_topics_and_dates_stay_apart():
    files = [file(0), file(1, date="2026-11-22"), file(2, topic="b"), file(3, topic="b"), file(4, date=None)]
    assert starts(plan_groups(files, target_bytes=100)) == [[2, 3]]


def test_nothing_to_join():
    assert plan_groups([], target_bytes=100) == []
    assert plan_groups([file(0)], target_bytes=100) == []


@pytest.fixture
def table(tmp_path):
    table = open_table("parquet", str(tmp_path / "t"))
    for start in range(0, 30, 10):
        append(table, start, start + 10)
    return table


def joined(table, group):
    return join_files(table.place, group, table.prepare(SCHEMA), "joined", partition_column=table.partition_column)


def test_rows_and_their_order_stay(table):
    [group] = plan_groups(table.files(), target_bytes=1 << 20)
    [after] = joined(table, group)
    assert (after.rows, after.min_index, after.max_index, after.topic) == (30, 0, 29, TOPIC)
    assert pq.read_table(table.place.absolute(after.path))["__index"].to_pylist() == list(range(30))
    assert replace_group(table, group, [after])
    assert table.files() == [after]
    assert table.committed([TOPIC]) == {TOPIC: 30}


def test_an_append_that_comes_first_is_no_hindrance(table, monkeypatch):
    [group] = plan_groups(table.files(), target_bytes=1 << 20)
    added = joined(table, group)
    replace, times = type(table).replace, []

    def beaten_once(self, *arguments):
        times.append(1)
        if len(times) == 1:
            raise CommitConflictError("another commit came first")
        replace(self, *arguments)

    monkeypatch.setattr(type(table), "replace", beaten_once)
    assert replace_group(table, group, added)
    assert len(times) == 2


def test_of_two_compactions_one_wins_and_the_other_tidies_up(table):
    [group] = plan_groups(table.files(), target_bytes=1 << 20)
    added = joined(table, group)
    other = join_files(table.place, group, table.prepare(SCHEMA), "other", partition_column=table.partition_column)
    assert replace_group(table, group, added)
    assert not replace_group(table, group, other)
    paths = {each.path for each in table.place.list()}
    assert added[0].path in paths
    assert other[0].path not in paths
