import os

import pytest

from magnetar.pipeline.lake.table_files import TableFiles
from magnetar.pipeline.lake.vacuum import is_data_file, remove_staging, remove_unreferenced

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
    assert remove_unreferenced(place, {"data/a.parquet"}, OLD_S, dry_run=True) == ["__date=2026-11-21/b.parquet"]
    assert remove_unreferenced(place, {"data/a.parquet"}, OLD_S) == ["__date=2026-11-21/b.parquet"]
    left = {each.path for each in place.list()}
    assert "__date=2026-11-21/b.parquet" not in left
    assert {"data/a.parquet", "data/young.parquet", "data/c.crc", "other/d.parquet", "_magnetar/0.json"} <= left


def test_what_killed_jobs_left_between_their_phases(place):
    place.open_output("_staging/running/keys.arrow").close()
    assert remove_staging(place, OLD_S, dry_run=True) == ["_staging/run/keys.arrow"]
    assert remove_staging(place, OLD_S) == ["_staging/run/keys.arrow"]
    assert [each.path for each in place.list("_staging")] == ["_staging/running/keys.arrow"]


def test_names_of_data_files():
    assert is_data_file("__date=2026-11-21/x-0000.parquet")
    assert not is_data_file("metadata/x.parquet")
    assert not is_data_file("_delta_log/00000000000000000010.checkpoint.parquet")
