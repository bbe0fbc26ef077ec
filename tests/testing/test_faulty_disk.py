"""The disk with switches, over a real disk."""

import errno

import pytest

from magnetar.storage.embedded.files import FileSystem, RealFiles
from magnetar.testing.faulty_disk import DiskSwitches, FaultyFile, FaultyFiles
from magnetar.testing.kit import FaultyClock
from magnetar.testing.snapshots import SnapshotError, Snapshots


@pytest.fixture
def disk(tmp_path):
    switches = DiskSwitches()
    files = FaultyFiles(RealFiles(), switches)
    file = files.open(str(tmp_path / "f"), create=True)
    yield switches, files, file
    file.close()


def test_without_a_fault_it_is_the_disk(disk, tmp_path):
    _, files, file = disk
    file.write([b"abc"], 0, durable=True)
    file.sync()
    assert (file.read(3, 0), file.size()) == (b"abc", 3)
    assert files.free_bytes(str(tmp_path)) > 0
    assert files.list_dir(str(tmp_path)) == ["f"]


def test_a_full_disk_takes_nothing_more(disk, tmp_path):
    switches, files, file = disk
    switches.full = True
    for write in (lambda: file.write([b"x"], 0), lambda: file.allocate(10), lambda: file.write_past_cache([b"x"], 0)):
        with pytest.raises(OSError) as failed:
            write()
        assert failed.value.errno == errno.ENOSPC
    assert (files.free_bytes(str(tmp_path)), files.used_part(str(tmp_path))) == (0, 1.0)
    switches.reset()
    file.write([b"x"], 0)


def test_a_failing_sync_fails_durable_writes_too(disk, tmp_path):
    switches, files, file = disk
    switches.sync_fails = True
    for sync in (file.sync, lambda: file.write([b"x"], 0, durable=True), lambda: files.sync_dir(str(tmp_path))):
        with pytest.raises(OSError) as failed:
            sync()
        assert failed.value.errno == errno.EIO
    assert file.size() == 0


def test_every_call_of_the_door_is_there():
    assert {n for n in vars(FileSystem) if not n.startswith("_")} <= set(vars(FaultyFiles))
    assert {n for n in dir(RealFiles().__class__) if not n.startswith("_")} <= set(vars(FaultyFiles))
    assert set(vars(FaultyFile)) >= {"read", "write", "write_past_cache", "sync", "truncate", "allocate", "size"}


def test_a_clock_ahead_is_ahead_on_the_wall_alone():
    class Clock:
        def now_ms(self):
            return 1000

        def now_s(self):
            return 5.0

    clock = FaultyClock(Clock())
    clock.ahead_ms = 500
    assert (clock.now_ms(), clock.now_s()) == (1500, 5.0)


def test_snapshots_of_a_directory(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "a").write_text("1")
    snapshots = Snapshots(str(data))
    assert data.is_symlink()
    (snapshots.live / "LOCK").write_text("pid")
    snapshots.take("s")
    (data / "a").write_text("2")
    before = snapshots.restore("s")
    assert ((data / "a").read_text(), (before / "a").read_text()) == ("1", "2")
    assert not (data / "LOCK").exists()
    assert Snapshots(str(data)).live == snapshots.live
    assert snapshots.names() == ["s"]
    for name in ("..", ".x", "a/b", ""):
        with pytest.raises(SnapshotError):
            snapshots.take(name)
    snapshots.drop("s")
    with pytest.raises(SnapshotError, match="none"):
        snapshots.restore("s")
