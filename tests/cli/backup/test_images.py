"""Images: a journal of any size goes through a few MiB, and a place that cannot be replaced is refused."""

import os
import tracemalloc
from contextlib import ExitStack
from pathlib import Path

import pytest

from magnetar.cli.backup.images import _locked, remove_abandoned, restore_image, take
from magnetar.cli.backup.moments import restore_moment
from magnetar.cli.errors import ConflictError

JOURNAL_BYTES = 64 << 20
END_BYTES = 300_000
MOST_BYTES = 16 << 20


def data_directory(path):
    """A stopped broker's, with a large journal."""
    for name in ("journal", "metadata", "ledgers"):
        (path / name).mkdir(parents=True)
    (path / "VERSION").write_bytes(b"1\n")
    (path / "LOCK").write_bytes(b"")
    with (path / "journal" / "1.journal").open("wb") as file:
        file.write(bytes(JOURNAL_BYTES - END_BYTES) + b"end" * (END_BYTES // 3))
    return path


def test_a_large_journal_is_copied_in_pieces_without_its_free_parts(tmp_path):
    data = data_directory(tmp_path / "data")
    tracemalloc.start()
    try:
        with ExitStack() as stack:
            taken = take(data, tmp_path / "image", {}, stack)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES
    assert taken.copied["VERSION"] == 2
    assert END_BYTES <= taken.copied["journal/1.journal"] < MOST_BYTES
    copied = tmp_path / "image" / "journal" / "1.journal"
    assert copied.stat().st_size == JOURNAL_BYTES
    assert copied.stat().st_blocks * 512 < MOST_BYTES
    assert copied.stat().st_mode & 0o077 == 0
    assert copied.read_bytes() == (data / "journal" / "1.journal").read_bytes()


def test_a_mount_point_is_refused_before_anything_is_copied(tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == target)
    data = data_directory(tmp_path / "image" / "data")
    for restore in (
        lambda: restore_image(data.parent, target, lambda _bytes: None),
        lambda: restore_moment(((data.parent, {}), (tmp_path / "behind", {})), target, 1, lambda _bytes: None),
    ):
        with pytest.raises(ConflictError, match="a mount point"):
            restore()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image", "target"]


def test_unfinished_images_of_killed_backups_are_removed(tmp_path):
    for name in (".partial-1", ".partial-2", ".partial-3", "20261122T030405.678Z"):
        (tmp_path / name / "data").mkdir(parents=True)
        os.utime(tmp_path / name, (1, 1))
    os.utime(tmp_path / ".partial-3")
    at_work = _locked(tmp_path / ".partial-2")
    remove_abandoned(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {".partial-2", ".partial-3", "20261122T030405.678Z"}
    os.close(at_work)
    remove_abandoned(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {".partial-3", "20261122T030405.678Z"}
