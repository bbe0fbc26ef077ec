"""Only files that are old, and that nothing needs, are removed."""

import os
import time

import pytest

from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.lake.table_files import TableFiles
from magnetar.pipeline.lake.vacuum import is_data_file, remove_staging, remove_unreferenced
from tests.pipeline.lake.lake_rows import SCHEMA, append, rows, write

OLD_S = 10_000


@pytest.fixture
def place(tmp_path):
    """One old file of every kind, and a young data file."""
    place = TableFiles(str(tmp_path / "t"))
    for path in (
        *("data/a.parquet", "__date=2026-11-21/b.parquet", "data/c.crc", "other/d.parquet"),
        *("_magnetar/0.json", "_staging/run/keys.arrow", "data/.e.parquet"),
    ):
        place.open_output(path).close()
        os.utime(place.absolute(path), (1_000_000, 1_000_000))
    place.open_output("data/young.parquet").close()
    return place


def test_only_old_data_files_that_nothing_needs(place):
    assert remove_unreferenced(place, lambda: {"data/a.parquet"}, OLD_S, dry_run=True) == [
        "__date=2026-11-21/b.parquet"
    ]
    assert remove_unreferenced(place, lambda: {"data/a.parquet"}, OLD_S) == ["__date=2026-11-21/b.parquet"]
    left = {each.path for each in place.list()}
    assert "__date=2026-11-21/b.parquet" not in left
    assert {"data/a.parquet", "data/young.parquet", "data/c.crc", "other/d.parquet", "_magnetar/0.json"} <= left


def test_a_file_that_is_committed_meanwhile_stays(place, monkeypatch):
    committed = set()
    listed = TableFiles.list

    def commits(self, *arguments):
        found = listed(self, *arguments)
        committed.add("data/a.parquet")
        return found

    monkeypatch.setattr(TableFiles, "list", commits)
    assert "data/a.parquet" not in remove_unreferenced(place, lambda: committed, OLD_S)


def test_hours_are_never_rounded_down(tmp_path):
    table = open_table("delta", str(tmp_path / "t"))
    append(table, 0, 5)
    orphan = next(iter(write(table, table.prepare(SCHEMA), rows(5, 8), prefix="orphan"))).path
    aged = time.time() - 5400
    os.utime(table.place.absolute(orphan), (aged, aged))
    assert table.vacuum(1.9 * 3600) == []
    assert table.vacuum(3600) == [orphan]


def test_remains_of_jobs_killed_between_their_phases(place):
    place.open_output("_staging/running/keys.arrow").close()
    assert remove_staging(place, OLD_S, dry_run=True) == ["_staging/run/keys.arrow"]
    assert remove_staging(place, OLD_S) == ["_staging/run/keys.arrow"]
    assert [each.path for each in place.list("_staging")] == ["_staging/running/keys.arrow"]


def test_names_of_data_files():
    assert is_data_file("__date=2026-11-21/x-0000.parquet")
    assert not is_data_file("metadata/x.parquet")
    assert not is_data_file("_delta_log/00000000000000000010.checkpoint.parquet")
