"""A backup or a restore is killed at each step: no incomplete image, no incomplete directory, and the next run succeeds."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from magnetar.cli.backup import images as module
from magnetar.cli.backup.images import images, restore_image, write_image

STEPS = {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree", "os.truncate"}
KILLED = 9


def data_directory(path: Path) -> Path:
    for name in ("journal", "metadata", "ledgers"):
        (path / name).mkdir(parents=True)
        for number in range(3):
            (path / name / f"{number}").write_bytes(name.encode() * (number + 1))
    (path / "VERSION").write_bytes(b"1\n")
    (path / "LOCK").write_bytes(b"")
    return path


def content(path: Path) -> dict[str, bytes]:
    files = {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}
    files.pop("LOCK", None)
    return files


def killed_at(step: int, work) -> bool:
    """Do the work in a process of its own, which ends at that step; return whether it came so far."""
    child = os.fork()
    if child == 0:
        left = step

        def count(event: str, _arguments: object) -> None:
            nonlocal left
            if event in STEPS:
                left -= 1
                if left < 0:
                    os._exit(KILLED)

        sys.addaudithook(count)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


@pytest.fixture(autouse=True)
def unverified(monkeypatch):
    """The directories of these tests hold no store."""
    monkeypatch.setattr(module, "verify_directory", lambda _directory: None)


def test_a_backup_that_is_killed_leaves_complete_images_only(tmp_path):
    data, folder = data_directory(tmp_path / "data"), tmp_path / "images"
    first = Path(write_image(data, folder, lambda _bytes: None)["image"])
    step = 0
    while killed_at(step, lambda: write_image(data, folder, lambda _bytes: None)):
        complete = {image for image, _ in images(folder)}
        following = Path(write_image(data, folder, lambda _bytes: None)["image"])
        assert {image for image, _ in images(folder)} == complete | {following}
        for image in complete | {following}:
            assert content(image / "data") == content(data)
        for left in set(folder.iterdir()) - {first}:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        step += 1
    assert step > 10


def test_a_restore_that_is_killed_leaves_nothing_or_all(tmp_path):
    data, folder, target = data_directory(tmp_path / "data"), tmp_path / "images", tmp_path / "target"
    image = Path(write_image(data, folder, lambda _bytes: None)["image"])
    step = 0
    while killed_at(step, lambda: restore_image(image, target, lambda _bytes: None)):
        if target.exists() and content(target):
            assert content(target) == content(data)
            for each in sorted(target.rglob("*"), reverse=True):
                each.rmdir() if each.is_dir() else each.unlink()
        step += 1
    assert step > 10
    assert content(target) == content(data)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "images", "target"]
