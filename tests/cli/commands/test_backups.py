"""Folders and times of the command line; tests/blackbox/test_backup.py makes images and restores them."""

import pytest

from magnetar.cli.commands.backups import _milliseconds
from magnetar.cli.errors import CommandLineError
from magnetar.cli.main import main


def test_the_images_of_a_folder_that_does_not_exist(tmp_path, capsys):
    """A check of backups passed where the disk of the images was not mounted."""
    assert main(["backup", "--list", str(tmp_path / "none")]) == 66
    assert capsys.readouterr().err == f"magnetar backup: error: there is no folder {tmp_path}/none\n"


def test_the_images_of_an_empty_folder(tmp_path, capsys):
    assert main(["backup", "--list", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"no images in {tmp_path}\n"


@pytest.mark.parametrize(
    ("text", "ms"), [("1", 1), ("1970-01-01T00:00:01.5Z", 1500), ("2040-01-01T00:00:00.001+00:00", 2_208_988_800_001)]
)
def test_times(text, ms):
    assert _milliseconds("--at", text) == ms


@pytest.mark.parametrize("text", ["x", "2026-01-02", "9" * 19, "9" * 5000, "²"])
def test_texts_that_are_no_time(text):
    with pytest.raises(CommandLineError, match="--at"):
        _milliseconds("--at", text)


@pytest.mark.parametrize("command", [["backup", ""], ["backup", "x", "--data-dir", ""], ["restore", "x", ""]])
def test_an_empty_path_is_refused(command, tmp_path, monkeypatch, capsys):
    """The text of an unset variable of a shell made the working directory the folder of the images."""
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    assert "the path is empty" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
