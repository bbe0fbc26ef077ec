"""Making segments: the bytes on the device when a segment is ready, and the remains when there is no room."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from magnetar.storage.embedded.file_header import JOURNAL_MAGIC, FileHeader
from magnetar.storage.embedded.files import FileSystem, RealFiles
from magnetar.storage.embedded.journal.segments import Segment, SegmentPool
from magnetar.storage.embedded.journal.writer import Journal
from magnetar.storage.embedded.layout import Layout
from tests.storage.engine_for_tests import ManualClock, limits_for_tests
from tests.twins.sim_files import SimDisk

if TYPE_CHECKING:
    from magnetar.storage.embedded.space_limits import SpaceLimits

STORE = b"s" * 16
ZEROED = 64 << 10
PAGE = 4096
LARGE = 3 << 20


def pool_on(files: FileSystem, root: str, limits: SpaceLimits | None = None) -> SegmentPool:
    layout = Layout(root)
    files.make_dir(layout.journal)
    return SegmentPool(
        files,
        layout,
        STORE,
        first_bytes=ZEROED,
        segment_bytes=LARGE,
        zeroed_bytes=ZEROED,
        next_segment_id=1,
        limits=limits or limits_for_tests(),
    )


@pytest.mark.parametrize("real", [True, False], ids=["real", "simulated"])
@pytest.mark.parametrize(("size", "in_haste"), [(ZEROED, True), (LARGE, True), (LARGE, False), (ZEROED, False)])
def test_a_prepared_segment_is_a_header_and_zeros(tmp_path, real, size, in_haste):
    pool = pool_on(RealFiles() if real else SimDisk(), str(tmp_path))
    segment = pool.prepare(size, in_haste=in_haste)
    data = segment.file.read(size + 1, 0)
    header = FileHeader(JOURNAL_MAGIC, STORE, segment.segment_id).pack()
    assert data[: len(header)] == header
    assert data[len(header) :] == bytes(size - len(header))


@pytest.mark.parametrize("in_haste", [True, False])
def test_a_prepared_segment_survives_a_crash_whole(in_haste):
    disk = SimDisk()
    pool_on(disk, "/data").prepare(LARGE, in_haste=in_haste)
    after = disk.after_crash("nothing")
    assert [len(after.content(path)) for path in after.paths()] == [LARGE]


@pytest.mark.parametrize(("in_haste", "kind"), [(True, "allocate"), (False, "write")])
def test_only_a_large_segment_in_haste_is_not_zeroed(in_haste, kind):
    disk = SimDisk()
    pool_on(disk, "/data").prepare(LARGE, in_haste=in_haste)
    assert next(step for step in disk.log if step in {"allocate", "write"}) == kind
    disk.log.clear()
    pool_on(disk, "/data2").prepare(ZEROED, in_haste=in_haste)
    assert "allocate" not in disk.log


@pytest.mark.parametrize("in_haste", [True, False])
def test_without_room_no_file_is_left(in_haste):
    disk = SimDisk()
    pool = pool_on(disk, "/data")
    disk.capacity_bytes = LARGE - 1
    with pytest.raises(OSError, match="No space"):
        pool.prepare(LARGE, in_haste=in_haste)
    assert disk.paths() == []


def test_zeros_reach_the_device_in_steps():
    """A journal that syncs meanwhile waits for one step at most."""
    disk = SimDisk()
    pool_on(disk, "/data").prepare(LARGE)
    writes = [step for step in disk.log if step in {"write", "sync"}]
    assert writes == ["write", "sync", "write", "sync", "write", "write", "sync"]


@pytest.mark.parametrize("real", [True, False], ids=["real", "simulated"])
def test_allocate_grows_and_never_shrinks(tmp_path, real):
    files: FileSystem = RealFiles() if real else SimDisk()
    files.make_dir(str(tmp_path))
    file = files.open(str(tmp_path / "f"), create=True)
    file.write([b"abc"], 0)
    file.allocate(10)
    assert file.read(20, 0) == b"abc" + bytes(7)
    file.allocate(2)
    assert file.size() == 10


@pytest.mark.parametrize(
    ("last", "free", "size"),
    [(0, 1 << 40, ZEROED), (1 << 20, 1 << 40, LARGE), (1 << 20, 5 << 20, 5 << 18), (1, 9, ZEROED)],
)
def test_a_segment_takes_a_quarter_of_the_free_space_at_most(last, free, size):
    pool = pool_on(SimDisk(), "/data", limits_for_tests(free_bytes=lambda: free))
    assert pool.grown(last) == size


@pytest.mark.parametrize(("waiting", "is_allowed"), [(1000, True), (1001, False)])
def test_no_spare_goes_into_use_while_waiting_bytes_have_no_space(waiting, is_allowed):
    """The loop and the journal's thread look before they take: between the two another thread may measure."""
    limits = limits_for_tests(free_bytes=lambda: 1 << 30)
    pool = pool_on(SimDisk(), "/data", limits)
    journal = Journal(pool, STORE, ManualClock(), bytes, next_sequence=0, next_generation=1, max_frame_bytes=LARGE)
    assert not journal.has_free_segment()
    spare = pool.prepare(ZEROED)
    pool.give_back(spare)
    limits.waiting_bytes, limits.free_bytes = lambda: waiting, 1000
    assert pool.allows_spare() == journal.has_free_segment() == is_allowed
    assert pool.take(PAGE, 0) is spare
    limits = limits_for_tests(free_bytes=lambda: 1000)
    limits.waiting_bytes = lambda: waiting
    with contextlib.nullcontext() if is_allowed else pytest.raises(OSError, match="wait for ledger files"):
        pool_on(SimDisk(), "/data", limits).check_spare()


def test_a_look_for_a_spare_bears_that_the_journal_takes_spares_meanwhile():
    class Taken(Segment):
        @property
        def size_bytes(self) -> int:  # type: ignore[override]
            pool.spares.clear()
            return PAGE

    pool = pool_on(SimDisk(), "/data")
    spare = pool.prepare(ZEROED)
    taken = Taken.__new__(Taken)
    pool.spares.extend([taken, spare])
    assert pool.has_spare(PAGE)
