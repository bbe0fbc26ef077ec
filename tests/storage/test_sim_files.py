"""The simulated disk loses the writes that a real disk may lose, and no synced write."""

from __future__ import annotations

import pytest

from tests.twins.sim_files import SECTOR_BYTES, SimDisk, SimulatedCrash


def made() -> SimDisk:
    disk = SimDisk()
    disk.make_dir("/d")
    return disk


def test_unsynced_bytes_may_be_lost():
    disk = made()
    file = disk.open("/d/f", create=True)
    file.write([b"a" * 2000], 0)
    assert disk.after_crash("nothing").paths() == []
    disk.sync_dir("/d")
    assert disk.after_crash("nothing").content("/d/f") == b""
    assert disk.after_crash("everything").content("/d/f") == b"a" * 2000
    file.sync()
    file.write([b"b" * 10], 0)
    assert disk.after_crash("nothing").content("/d/f") == b"a" * 2000


def test_some_sectors_survive_and_some_are_torn():
    disk = made()
    file = disk.open("/d/f", create=True)
    disk.sync_dir("/d")
    size = 40 * SECTOR_BYTES
    file.write([b"a" * size], 0, durable=True)
    file.write([b"b" * size], 0)
    seen = {disk.after_crash("some", seed).content("/d/f") for seed in range(20)}
    assert len(seen) == 20
    for data in seen:
        assert len(data) == size
        assert set(data) == set(b"ab")
    assert disk.after_crash("some", 3).content("/d/f") == disk.after_crash("some", 3).content("/d/f")
    torn = [
        data
        for data in seen
        for start in range(0, size, SECTOR_BYTES)
        if len(set(data[start : start + SECTOR_BYTES])) == 2
    ]
    assert torn


def test_renames_and_removals_need_the_folder_synced():
    disk = made()
    disk.open("/d/old", create=True).sync()
    disk.sync_dir("/d")
    disk.rename("/d/old", "/d/new")
    assert disk.paths() == ["/d/new"]
    assert disk.after_crash("nothing").paths() == ["/d/old"]
    disk.sync_dir("/d")
    assert disk.after_crash("nothing").paths() == ["/d/new"]
    disk.remove("/d/new")
    assert disk.after_crash("nothing").paths() == ["/d/new"]
    assert disk.after_crash("everything").paths() == []


def test_it_crashes_at_the_numbered_operation_and_stays_crashed():
    disk = made()
    disk.crash_at = 2
    file = disk.open("/d/f", create=True)
    file.write([b"x"], 0)
    with pytest.raises(SimulatedCrash):
        file.write([b"y"], 0, durable=True)
    for attempt in (lambda: file.read(1, 0), lambda: disk.list_dir("/d"), file.sync):
        with pytest.raises(SimulatedCrash):
            attempt()
    assert disk.log == ["create", "write", "write"]


def test_no_space_half_way():
    disk = made()
    file = disk.open("/d/f", create=True)
    disk.full_at = disk.operations
    with pytest.raises(OSError, match="No space"):
        file.write([b"0123456789"], 0)
    assert disk.content("/d/f") == b"01234"
    file.write([b"0123456789"], 0)
    disk.capacity_bytes = 12
    with pytest.raises(OSError, match="No space"):
        file.write([b"abcdef"], 8)
    assert disk.content("/d/f") == b"01234567abcd"
    file.write([b"ABCD"], 0)
    assert disk.free_bytes("/d") == 0


def test_a_failed_sync_forgets_the_pages():
    disk = made()
    file = disk.open("/d/f", create=True)
    disk.sync_dir("/d")
    file.write([b"x"], 0)
    disk.fail_sync_at = disk.operations
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    for seed in range(10):
        assert disk.after_crash("some", seed).content("/d/f") == b""
