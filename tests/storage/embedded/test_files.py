"""The operating system's files: names of folders survive a power loss."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from magnetar.storage.embedded.files import RealFiles


@pytest.fixture
def synced(monkeypatch):
    """Folders that were synced, with the names in them at that time."""
    found, fsync = [], os.fsync

    def noted(descriptor):
        fsync(descriptor)
        folder = Path(f"/proc/self/fd/{descriptor}").readlink()
        found.append((folder, sorted(path.name for path in folder.iterdir())))

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_the_names_of_new_folders_are_durable(tmp_path, synced):
    """The receipts of a broker's first minutes were lost with the name of its data directory."""
    (tmp_path / "disk").mkdir()
    RealFiles().make_dir(str(tmp_path / "disk" / "of" / "data"))
    assert synced[-2:] == [(tmp_path / "disk", ["of"]), (tmp_path / "disk" / "of", ["data"])]
    (tmp_path / "disk" / "of" / "data" / "LOCK").touch()
    del synced[:]
    RealFiles().make_dir(str(tmp_path / "disk" / "of" / "data"))
    assert synced == []


@pytest.mark.parametrize("place", ["data", "disk/data", "of/the/data"])
def test_the_names_of_folders_are_durable_that_an_earlier_attempt_could_not_sync(tmp_path, synced, monkeypatch, place):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(RealFiles, "sync_dir", Mock(side_effect=OSError(24, "Too many open files")))
        with pytest.raises(OSError, match="many open files"):
            RealFiles().make_dir(str(tmp_path / place))
    assert (tmp_path / place).is_dir()
    RealFiles().make_dir(str(tmp_path / place))
    names = [tmp_path / place, *(tmp_path / place).parents]
    for name in names[: names.index(tmp_path)]:
        is_synced = any(folder == name.parent and name.name in there for folder, there in synced)
        assert is_synced or name.name == "disk"


def test_a_name_that_the_caller_may_not_see_is_not_missing(tmp_path, monkeypatch):
    assert not RealFiles().exists(str(tmp_path / "a"))
    (tmp_path / "a").touch()
    assert RealFiles().exists(str(tmp_path / "a"))
    assert not RealFiles().exists(str(tmp_path / "a" / "b"))
    monkeypatch.setattr(os, "lstat", Mock(side_effect=PermissionError(13, "Permission denied", "journal")))
    with pytest.raises(PermissionError, match="journal"):
        RealFiles().exists("journal")


def test_a_folder_above_that_cannot_be_read_is_no_error(tmp_path, monkeypatch):
    listed = os.listdir

    def refused(path):
        if Path(path) == tmp_path:
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "listdir", refused)
    RealFiles().make_dir(str(tmp_path / "data"))
    assert (tmp_path / "data").is_dir()


def test_a_relative_folder_too(tmp_path, synced, monkeypatch):
    monkeypatch.chdir(tmp_path)
    RealFiles().make_dir("data")
    assert synced == [(tmp_path, ["data"])]
    RealFiles().make_dir("data/")
    assert synced == [(tmp_path, ["data"])] * 2, "an empty folder may be that of an attempt that was cut off"


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    for place in ("file", "file/data"):
        with pytest.raises(OSError, match="file"):
            RealFiles().make_dir(str(tmp_path / place))


def test_the_error_of_a_read_names_the_file(tmp_path, monkeypatch):
    path = str(tmp_path / "damaged")
    opened = RealFiles().open(path, create=True)
    monkeypatch.setattr(os, "pread", Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO))))
    with pytest.raises(OSError, match=path):
        opened.read(10, 0)
    opened.close()


def test_a_file_has_one_identity_by_every_name_and_a_replaced_file_another(tmp_path):
    files, path = RealFiles(), str(tmp_path / "file")
    assert files.identity(path) is None
    assert files.identity(f"{path}/below") is None
    file = files.open(path, create=True)
    (tmp_path / "link").symlink_to(path)
    assert file.identity() == files.identity(path) == files.identity(str(tmp_path / "link"))
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / "other").replace(path)
    assert files.identity(path) not in {None, file.identity()}
    file.close()
