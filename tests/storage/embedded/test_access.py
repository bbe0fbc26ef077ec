"""Places of a data directory at which a start would fail."""

import errno
import os

import pytest

from magnetar.storage.embedded.access import obstacles
from magnetar.storage.embedded.store_version import encode_version


@pytest.fixture
def refused(monkeypatch):
    """Paths that the user may not write; the tests may run as root, for which the system refuses no path."""
    paths = set()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) not in paths and access(path, mode))
    return paths


def test_a_new_directory_and_a_store_of_this_user(tmp_path):
    assert obstacles(str(tmp_path / "a/b/data")) == []
    for name in ("metadata", "journal", "ledgers"):
        (tmp_path / name).mkdir()
    for name in ("VERSION", "LOCK"):
        (tmp_path / name).touch()
    assert obstacles(str(tmp_path)) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["LOCK", "VERSION", "journal", "ledgers", "metadata"]


def test_a_store_of_a_newer_format(tmp_path):
    """Before a return to an earlier version the check had no problem with a directory that the start refuses."""
    (tmp_path / "VERSION").write_bytes(encode_version(bytes(16), 2))
    assert obstacles(str(tmp_path)) == []
    (tmp_path / "VERSION").write_bytes(encode_version(bytes(16), 3))
    [text] = obstacles(str(tmp_path))
    assert text.startswith(f"{tmp_path}/VERSION has format version 3, this program reads up to version 2")


def test_a_version_that_is_no_file(tmp_path):
    (tmp_path / "VERSION").mkdir()
    assert obstacles(str(tmp_path)) == [f"{tmp_path}/VERSION: Is a directory"]


def test_no_directory(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    assert obstacles(str(tmp_path / "file")) == [f"{tmp_path}/file is no directory"]
    assert obstacles(str(tmp_path / "link")) == [f"{tmp_path}/link is a link to a missing directory"]


def test_a_directory_that_cannot_be_made(tmp_path, refused):
    refused.add(str(tmp_path))
    user = os.geteuid()
    assert obstacles(str(tmp_path / "data")) == [
        f"user {user} must have the right to read and write in {tmp_path}; a start makes {tmp_path}/data there"
    ]


def test_a_file_system_that_takes_no_directory():
    """The rights of /proc allow root all, and a start ends there."""
    if os.geteuid() != 0:
        pytest.skip("only root has the right to write in /proc")
    [text] = obstacles("/proc/x/data")
    assert text == "no directory can be made in /proc (No such file or directory); a start makes /proc/x/data there"


def test_a_full_file_system(tmp_path, monkeypatch):
    def full(*_arguments, **_more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "mkdir", full)
    [text] = obstacles(str(tmp_path / "data"))
    assert "(No space left on device)" in text


def test_a_trial_leaves_nothing(tmp_path):
    assert obstacles(str(tmp_path / "a" / "data")) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "metadata", "journal", "ledgers", "VERSION", "LOCK"])
def test_parts_of_another_user(tmp_path, refused, name):
    """A restore by root leaves such a directory to the broker's user."""
    for each in ("metadata", "journal", "ledgers"):
        (tmp_path / each).mkdir()
    for each in ("VERSION", "LOCK"):
        (tmp_path / each).touch()
    refused.add(str(tmp_path / name))
    [text] = obstacles(str(tmp_path))
    assert text.startswith(f"user {os.geteuid()} must have the right to read and write")
    assert text.endswith(str(tmp_path / name))
    (tmp_path / "lost+found").mkdir()
    refused.add(str(tmp_path / "lost+found"))
    assert obstacles(str(tmp_path)) == [text], "a file system has such a directory of root"
