"""A power loss at any time leaves complete images and complete restored directories, and none that a command has reported
is lost: the strict reading of POSIX, by which a name is durable when its folder is synced behind it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from magnetar.cli.backup import images as images_module
from magnetar.cli.backup import moments
from magnetar.cli.backup.images import restore_image, write_image
from tests.cli.backup.test_images import data_directory, image


class Machine:
    """Notes all that is synced, by inode: the content of a file, the names in a folder."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.appeared: list[tuple[str, list[str]]] = []
        """Name of each folder that got its last name, and the paths in it that were not durable then."""
        self._synced: dict[int, bytes | dict[str, int]] = {}
        self._fsync, rename = os.fsync, Path.rename
        for folder, _, files in os.walk(root):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                self._note(path)

        def fsync(descriptor: int) -> None:
            self._fsync(descriptor)
            self._note(f"/proc/self/fd/{descriptor}")

        def renamed(path: Path, target: Path) -> Path:
            self.appeared.append((path.name, self.lost(path)))
            return rename(path, target)

        patch.setattr(os, "fsync", fsync)
        patch.setattr(Path, "rename", renamed)

    def _note(self, path: str) -> None:
        self._synced[os.stat(path).st_ino] = content(Path(path))

    def lost(self, path: Path) -> list[str]:
        """The paths from this path down that a power loss would take or change."""
        found = [str(path)] if self._synced.get(path.stat().st_ino) != content(path) else []
        for below in sorted(path.iterdir()) if path.is_dir() else ():
            found += self.lost(below)
        return found

    def lost_on_the_way(self, path: Path) -> list[str]:
        """The folders above the path, up to the root, whose names for the next folder a power loss would take."""
        lost = []
        while path != self.root:
            names = self._synced.get(path.parent.stat().st_ino, {})
            if not isinstance(names, dict) or names.get(path.name) != path.stat().st_ino:
                lost.append(str(path))
            path = path.parent
        return lost


def content(path: Path) -> bytes | dict[str, int]:
    return path.read_bytes() if path.is_file() else {each.name: each.lstat().st_ino for each in path.iterdir()}


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(images_module, "verify_directory", lambda _path: None)
    monkeypatch.setattr("tests.cli.backup.test_images.JOURNAL_BYTES", 1 << 20)
    directory = data_directory(tmp_path / "data")
    for name in "12":
        (directory / "ledgers" / name).write_bytes(b"ledger " + name.encode())
    return directory


def is_durable(machine: Machine, path: Path) -> None:
    assert machine.lost(path) == []
    assert machine.lost_on_the_way(path) == []


@pytest.mark.parametrize("folder", ["images", "of/this/machine"])
def test_an_image_that_is_reported_is_durable(data, tmp_path, monkeypatch, folder):
    machine = Machine(tmp_path, monkeypatch)
    for number in (1, 2):
        (data / "ledgers" / "2").write_bytes(b"new" * number)
        (data / "ledgers" / str(number + 2)).write_bytes(b"more")
        taken = write_image(data, tmp_path / folder, lambda _bytes: None)
        is_durable(machine, Path(taken["image"]))
    assert [unsynced for _, unsynced in machine.appeared] == [[], []]


@pytest.mark.parametrize("place", ["restored", "of/this/machine"])
@pytest.mark.parametrize("there", [False, True])
def test_a_directory_that_is_reported_as_restored_is_durable(tmp_path, monkeypatch, place, there):
    source = image(tmp_path / "image")
    if there:
        (tmp_path / place).mkdir(parents=True)
    machine = Machine(tmp_path, monkeypatch)
    restore_image(source, tmp_path / place, lambda _bytes: None)
    is_durable(machine, tmp_path / place)
    assert [unsynced for _, unsynced in machine.appeared] == [[]]


def test_a_directory_of_a_moment_that_is_reported_is_durable(tmp_path, monkeypatch):
    before, behind = image(tmp_path / "before"), image(tmp_path / "behind")
    monkeypatch.setattr(moments, "_join", lambda *_: None)
    machine = Machine(tmp_path, monkeypatch)
    target = tmp_path / "of" / "this" / "machine"
    moments.restore_moment(((before, {}), (behind, {})), target, 1, lambda _bytes: None, lambda _path: None)
    is_durable(machine, target)
    assert machine.appeared[-1] == ("data", [])
