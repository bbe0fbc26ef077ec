"""The operating system's files: names of folders survive a power loss."""

from __future__ import annotations

import os
from pathlib import Path

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
    assert synced == [(tmp_path / "disk", ["of"]), (tmp_path / "disk" / "of", ["data"])]
    RealFiles().make_dir(str(tmp_path / "disk" / "of" / "data"))
    assert len(synced) == 2


def test_a_relative_folder_too(tmp_path, synced, monkeypatch):
    monkeypatch.chdir(tmp_path)
    RealFiles().make_dir("data")
    assert synced == [(tmp_path, ["data"])]


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    for place in ("file", "file/data"):
        with pytest.raises(OSError, match="file"):
            RealFiles().make_dir(str(tmp_path / place))
