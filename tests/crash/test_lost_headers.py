"""A device that loses the header page of a journal segment, or tears it: acknowledged frames stay, a crash raises no alarm.

A recycled segment then begins with the header of its former use, and frames of that use follow the new frames.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from magnetar.storage.embedded.verify.command import verify_store
from tests.storage.engine_for_tests import ROOT, TINY, World, append, read_all, run_until_crash, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.twins.sim_files import SimDisk

PAGE = 4096
RECYCLING = replace(
    TINY,
    journal_first_segment_bytes=24 << 10,
    journal_segment_bytes=24 << 10,
    journal_zeroed_bytes=24 << 10,
    journal_max_frame_bytes=16 << 10,
)
"""Five pages of frames in each segment."""
USES = 6


class LosesHeader:
    """Loses the first ``lost_bytes`` of the ``number``-th write (from 0) that takes a segment into use."""

    def __init__(self, number: int, lost_bytes: int) -> None:
        self.number, self.lost_bytes = number, lost_bytes
        self.seen = 0
        self.path = ""

    def on_write(self, disk: SimDisk, path: str, data: bytes, offset: int) -> Callable[[], None]:
        if "/journal/0" not in path or offset or len(data) <= PAGE or not any(data[PAGE:]):
            return lambda: None
        self.seen += 1
        if self.seen != self.number + 1:
            return lambda: None
        before = disk.content(path)[: min(len(data), self.lost_bytes)]
        self.path = path
        return lambda: disk.overwrite(path, 0, before)


class Run:
    """The life of a process that recycles its journal segments, with the acknowledged entries."""

    def __init__(self) -> None:
        self.world = World()
        self.acked: list[bytes] = []

    async def live(self, frames: int, *, checkpoint_every: int = 7) -> None:
        storage = await self.world.open(RECYCLING)
        writer = await storage.ledgers.create()
        for number in range(frames):
            body = b"%d." % number * (700 if number % 4 == 1 else 5)
            await append(writer, [body])
            self.acked.append(body)
            if number % checkpoint_every == checkpoint_every - 1:
                await storage.checkpoint()
        for _ in range(2):
            self.world.scheduler.advance(1.5)
            await settle()


def played(number: int, lost_bytes: int, frames: int) -> tuple[Run, LosesHeader]:
    run = Run()
    device = LosesHeader(number, lost_bytes)
    run.world.disk.bad_writes = device
    run_until_crash(run.world.disk, run.live(frames))
    run.world.disk.bad_writes = None
    return run, device


def started(world: World) -> tuple[list[bytes], list[str]]:
    """Entries of the ledger after the next start, and the reports of that start."""
    found: list[bytes] = []
    told: list[str] = []

    async def main() -> None:
        storage = await world.open(RECYCLING)
        report = storage.recovery
        told.extend(error.detail for error in report.damaged_files)
        told.extend(map(str, [*report.damaged_entries, *report.missing_frames]))
        info = await storage.ledgers.open_recover(0)
        found.extend(await read_all(storage.ledgers, 0, info.last_entry_id))
        await storage.close()

    run_until_crash(world.disk, main())
    return found, told


@pytest.mark.parametrize("files", ["nothing", "everything"])
@pytest.mark.parametrize("frames", [8, 15, 21, 26])
@pytest.mark.parametrize("number", range(USES))
def test_a_lost_header_hides_no_acknowledged_frame(number: int, frames: int, files: str):
    run, device = played(number, PAGE, frames)
    if not device.path:
        return  # so few frames take fewer segments into use
    after = run.world.after_crash(files)
    findings = verify_store(ROOT, files=after.disk.copy(), clock=after.clock).findings
    found, told = started(after)
    assert found == run.acked
    noticed = any(finding.file == device.path for finding in findings)
    assert noticed == any("header" in detail for detail in told)


@pytest.mark.parametrize("number", range(USES))
def test_a_lost_header_and_first_frame_cost_no_other_frame(number: int):
    """One lost write had both header and first frame: the next frame shows that the segment is in use."""
    run, _ = played(number, 1 << 20, 26)
    found, told = started(run.world.after_crash("everything"))
    assert found == run.acked, told


class NotesFirstWrite:
    """Remembers the last write that took a segment into use."""

    def __init__(self, acked: list[bytes]) -> None:
        self._acked = acked
        self.path, self.before, self.data = "", b"", b""
        self.acked_before = -1

    def on_write(self, disk: SimDisk, path: str, data: bytes, offset: int) -> Callable[[], None]:
        if "/journal/0" in path and not offset and any(data[PAGE:]):
            self.path, self.before, self.data = path, disk.content(path), data
            self.acked_before = len(self._acked)
        return lambda: None


@pytest.mark.parametrize("torn", [40, 100, 512, PAGE - 512])
@pytest.mark.parametrize("frames", range(1, 27, 2))
@pytest.mark.parametrize("keeps_begin", [True, False])
def test_a_torn_header_of_a_frame_that_was_never_acknowledged_raises_no_alarm(
    frames: int, torn: int, keeps_begin: bool
):
    """Power is lost while a segment is taken into use: of the first write either only the first bytes arrive, or only
    the others.
    """
    run = Run()
    device = NotesFirstWrite(run.acked)
    run.world.disk.bad_writes = device
    run_until_crash(run.world.disk, run.live(frames))
    if device.acked_before != len(run.acked) - 1:
        return  # the last frame did not take a segment into use
    after = run.world.after_crash("nothing")
    data, before = device.data, device.before
    begin, rest = (data, before) if keeps_begin else (before, data + before[len(data) :])
    after.disk.put(device.path, begin[:torn] + rest[torn:])
    found, told = started(after)
    assert found[: len(run.acked) - 1] == run.acked[:-1]
    assert told == []
