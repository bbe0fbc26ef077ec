"""The engine on a simulated disk with inline threads and a clock moved by hand."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from magnetar.storage.embedded.engine import EmbeddedStorage, EngineEnvironment, EngineSettings, open_embedded
from magnetar.storage.embedded.lanes import InlineThreads
from magnetar.storage.embedded.space_limits import SpaceLimits
from magnetar.storage.errors import CorruptEntryError
from tests.storage.records_for_tests import bodies_of, slab_of
from tests.twins.lane_frame_writer import LaneFrameWriter
from tests.twins.pool_direct_reader import PoolDirectReader
from tests.twins.sim_files import SimDisk, SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from magnetar.storage.embedded.journal.busy_poll import Poll
    from magnetar.storage.embedded.journal.frame_writer import FrameWriter
    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.embedded.metadata.node_tree import NodeTree
    from magnetar.storage.interfaces import LedgerStore, LedgerWriter, MetadataStore
    from tests.twins.memory_metadata import MemoryMetadataStore

ROOT = "/data"

TINY = EngineSettings(
    journal_segment_bytes=20 << 10,
    journal_first_segment_bytes=12 << 10,
    journal_zeroed_bytes=12 << 10,
    journal_max_frame_bytes=4 << 10,
    checkpoint_bytes=1 << 30,
    checkpoint_interval_s=1e9,
    write_behind_bytes=1,
    unwritten_memory_bytes=4 << 10,
    cache_bytes=1 << 20,
    max_record_bytes=64 << 10,
    read_piece_bytes=4 << 10,
    metadata_log_bytes=96 << 10,
)
"""Few-frame segments, so that a short run rolls and recycles them; checkpoints only on request."""


class ManualClock:
    """A clock that only the test moves; ``jump`` sets the wall clock and leaves the elapsed time."""

    def __init__(self) -> None:
        self.time_s = 1_000_000.0
        self.set_by_s = 0.0

    def jump(self, seconds: float) -> None:
        """Set the wall clock ahead or back, as an operator may."""
        self.set_by_s += seconds

    def now_ms(self) -> int:
        return int((self.time_s + self.set_by_s) * 1000)

    def now_s(self) -> float:
        return self.time_s


class ManualTimer:
    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due, self.callback, self.cancelled = due, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class ManualScheduler:
    """Timers that fire in ``advance``."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.timers: list[ManualTimer] = []

    def call_later(self, delay: float, callback: Callable[[], object]) -> ManualTimer:
        timer = ManualTimer(self.clock.time_s + delay, callback)
        self.timers.append(timer)
        return timer

    def call_soon(self, callback: Callable[[], object]) -> object:
        return asyncio.get_running_loop().call_soon(callback)

    def advance(self, seconds: float) -> None:
        self.clock.time_s += seconds
        due = sorted((t for t in self.timers if t.due <= self.clock.time_s), key=lambda t: t.due)
        self.timers = [t for t in self.timers if t.due > self.clock.time_s]
        for timer in due:
            if not timer.cancelled:
                timer.callback()


class World:
    """A disk, and the means to open the engine on it. ``given``: a metadata store in place of the metadata on the disk."""

    def __init__(self, disk: SimDisk | None = None, given: MemoryMetadataStore | None = None) -> None:
        self.disk = disk or SimDisk()
        self.given = given
        self.metadata: MetadataStore
        """The metadata of the store that was opened last."""
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.entropy = random.Random(7).randbytes
        self.threads: Callable[[], Threads] = InlineThreads
        self.read_format_1: Callable[[str], NodeTree] = _no_format_1
        self.has_frame_writer = True
        """Whether the loop plans frames, as with the compiled writer; else the journal's thread does all of the work.
        """
        self.has_direct_reader = True
        """Whether read-ahead goes through the direct reader, as with the compiled reader; else through the pool."""
        self.frame_writer: Callable[[], FrameWriter] | None = None
        """Makes a frame writer in place of ``LaneFrameWriter`` over the world's threads."""
        self.poll: Poll | None = None
        """Stands for the poll of the loop."""

    async def open(self, settings: EngineSettings = TINY) -> EmbeddedStorage:
        if self.given is not None:
            self.given.before_write = lambda _path: self.disk.step("metadata")
        threads = self.threads()
        environment = EngineEnvironment(self.disk, self.clock, threads, self.scheduler, self.entropy, self.given)
        environment.read_format_1 = self.read_format_1
        self.turns = environment.turns
        if self.has_frame_writer:
            environment.frame_writer = self.frame_writer or (lambda: LaneFrameWriter(threads))
        environment.poll = lambda: self.poll
        if self.has_direct_reader:
            self.direct = PoolDirectReader(threads)
            environment.direct_reader = lambda: self.direct
        storage = await open_embedded(ROOT, settings, environment)
        self.metadata = storage.metadata
        return storage

    def after_crash(self, mode: str = "nothing", seed: int = 0) -> World:
        """The world that the next process finds."""
        after = World(self.disk.after_crash(mode, seed), None if self.given is None else self.given.snapshot())
        after.read_format_1 = self.read_format_1
        return after


def _no_format_1(path: str) -> NodeTree:
    raise AssertionError(f"{path} is no database on a simulated disk")


def limits_for_tests(
    *,
    free_bytes: Callable[[], int] = lambda: 1 << 40,
    held_off_bytes: int = 1 << 20,
    max_unwritten_bytes: int = 1 << 30,
    checkpoint_bytes: int = 1 << 20,
    reserve_bytes: int = 0,
) -> SpaceLimits:
    return SpaceLimits(
        free_bytes,
        held_off_bytes=held_off_bytes,
        max_unwritten_bytes=max_unwritten_bytes,
        checkpoint_bytes=checkpoint_bytes,
        reserve_bytes=reserve_bytes,
    )


async def settle(turns: int = 20) -> None:
    """Let the loop run all ready callbacks."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def append(writer: LedgerWriter, bodies: Sequence[bytes]) -> None:
    """Append one slab and wait for the disk; raises its error."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: BaseException | None) -> None:
        if future.done():
            return  # cancelled: the process is gone
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    writer.append(slab_of(writer.ledger_id, writer.last_add_pushed + 1, bodies, writer.record_proof), done)
    await future


async def read_all(ledgers: LedgerStore, ledger_id: int, last: int) -> list[bytes]:
    """All entry bodies 0..last."""
    found: list[bytes] = []
    while len(found) <= last:
        slabs = await ledgers.read(ledger_id, len(found), last, 1 << 20)
        found += bodies_of(slabs, len(found), last)
    return found


async def found_entries(ledgers: LedgerStore) -> dict[int, list[bytes | None]]:
    """The entry bodies of every ledger, None for a damaged entry. The call recovers each ledger."""
    found: dict[int, list[bytes | None]] = {}
    for ledger_id in await ledgers.list_ledgers():
        info = await ledgers.open_recover(ledger_id)
        entries = found[ledger_id] = []
        while len(entries) <= info.last_entry_id:
            try:
                slabs = await ledgers.read(ledger_id, len(entries), info.last_entry_id, 1)
                entries += bodies_of(slabs[:1], len(entries), len(entries))
            except CorruptEntryError as error:
                entries += [None] * (error.position.entry_id + 1 - len(entries))
    return found


def run_until_crash(disk: SimDisk, main: Coroutine[Any, Any, Any]) -> BaseException | None:
    """Run ``main`` on a loop of its own until it ends or the disk crashes. Returns the crash that ended it, None when
    it finished.

    Errors other than the crash are raised.
    """
    loop = asyncio.new_event_loop()
    problems: list[BaseException] = []

    def on_problem(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, SimulatedCrash):
            problems.append(error)
            if not isinstance(error, Exception):
                loop.stop()  # the test's time limit, raised at any place: end the run

    loop.set_exception_handler(on_problem)
    disk.on_crash = loop.stop
    task = loop.create_task(main)

    living = True

    def ended(_task: asyncio.Task[Any]) -> None:
        if living:
            loop.stop()

    task.add_done_callback(ended)
    try:
        loop.run_forever()
        living = False
        outcome: BaseException | None = None
        if task.done():
            outcome = task.exception()
        disk.on_crash = lambda: None
        while asyncio.all_tasks(loop):
            for left in asyncio.all_tasks(loop):
                left.cancel()  # tasks started by cancelled tasks, too
            loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
    except SimulatedCrash as crash:
        outcome = crash
    finally:
        loop.close()
    if problems:
        raise problems[0]
    if outcome is not None and not isinstance(outcome, SimulatedCrash):
        raise outcome
    return outcome or (SimulatedCrash() if disk.crashed else None)
