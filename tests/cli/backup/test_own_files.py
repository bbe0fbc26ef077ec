"""A backup reads only files that belong to the data directory, with any foreign files beside them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from magnetar.cli.backup import own_files
from magnetar.cli.backup.freezing import broker_of
from magnetar.cli.backup.images import parse_manifest, take
from magnetar.cli.errors import ConflictError, DeniedError, NotFoundError


@pytest.fixture
def data_dir(tmp_path):
    root = tmp_path / "data"
    for name in ("journal", "metadata", "ledgers"):
        (root / name).mkdir(parents=True)
        (root / name / "1").write_bytes(name.encode())
    for name in ("VERSION", "LOCK"):
        (root / name).write_bytes(b"")
    return root


def taken(data_dir):
    with ExitStack() as stack:
        return take(data_dir, data_dir.parent / "image", {}, stack)


def test_everything_is_taken(data_dir):
    found = taken(data_dir)
    assert found.copied == {"VERSION": 0, "journal/1": 7, "metadata/1": 8}
    assert list(found.ledgers) == ["1"]
    assert (data_dir.parent / "image" / "journal" / "1").read_bytes() == b"journal"


@pytest.mark.parametrize("name", ["LOCK", "VERSION", "journal/2", "metadata/2", "ledgers/2"])
def test_a_link_is_not_followed(data_dir, name):
    secret = data_dir.parent / "secret"
    secret.write_bytes(b"of another user")
    (data_dir / name).unlink(missing_ok=True)
    (data_dir / name).symlink_to(secret)
    with pytest.raises((DeniedError, OSError)):
        taken(data_dir)
    assert not any(b"another" in path.read_bytes() for path in (data_dir.parent / "image").rglob("2"))


@pytest.mark.parametrize("name", ["VERSION", "journal/2", "ledgers/2"])
def test_a_fifo_is_refused_and_holds_nothing_up(data_dir, name):
    (data_dir / name).unlink(missing_ok=True)
    os.mkfifo(data_dir / name)
    with pytest.raises(DeniedError, match="no regular file"):
        taken(data_dir)


def test_a_file_or_a_folder_of_another_user_is_refused(data_dir, monkeypatch):
    with own_files.open_folder(data_dir, "journal") as folder:
        folder._owner += 1
        with pytest.raises(DeniedError, match="another user"):
            folder.open("1")
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: os.stat_result((*real(fd)[:4], real(fd).st_uid + 1, *real(fd)[5:])))
    with pytest.raises(DeniedError, match="another user"), own_files.open_folder(data_dir, "journal"):
        pass


def test_a_journal_on_another_disk_of_the_same_user_is_read(data_dir):
    (data_dir / "journal").rename(data_dir.parent / "elsewhere")
    (data_dir / "journal").symlink_to(data_dir.parent / "elsewhere")
    assert taken(data_dir).copied["journal/1"] == 7


def test_a_process_that_has_not_opened_the_lock_is_not_stopped(data_dir):
    """The directory's user can write any text into LOCK, also while holding the lock."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as foreign:
        with (data_dir / "LOCK").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(str(foreign.pid))
            lock.flush()
            with pytest.raises(ConflictError, match="has not opened it"):
                broker_of(data_dir)
            lock.seek(0)
            lock.truncate()
            lock.write(str(os.getpid()))
            lock.flush()
            assert broker_of(data_dir) == os.getpid()
            lock.seek(0)
            lock.truncate()
            lock.write("\N{SUPERSCRIPT TWO}")
            lock.flush()
            with pytest.raises(ConflictError, match="is not here"):
                broker_of(data_dir)
        foreign.communicate(b"\n")
    assert broker_of(data_dir) is None


def test_no_data_directory(tmp_path):
    with pytest.raises(NotFoundError):
        broker_of(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b"\xff",
        b'{"format":1}',
        b'{"format":1,"moment_ms":"x"}',
        b'{"format":1,"moment_ms":true,"ledgers":{}}',
        b'{"format":1,"moment_ms":-1,"ledgers":{}}',
        b'{"format":1,"moment_ms":253402300800000,"ledgers":{}}',
        b'{"format":1,"moment_ms":1,"ledgers":{},"new_bytes":[]}',
    ],
)
def test_invalid_manifests(data):
    assert parse_manifest(data) is None


def test_another_directory_is_refused_with_the_option(tmp_path):
    with pytest.raises(NotFoundError, match="no LOCK; name the broker's with --data-dir"):
        broker_of(tmp_path)


def test_a_restored_directory_that_no_broker_has_used_is_named_so(data_dir):
    """The error called the directory, which `restore` had made, no data directory."""
    (data_dir / "LOCK").unlink()
    with pytest.raises(NotFoundError, match=r"no broker has used .* yet"):
        broker_of(data_dir)
