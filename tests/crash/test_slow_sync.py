"""Every sync takes a second: a receipt waits for its sync and for nothing else; order and promises hold."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.storage.embedded.engine import EngineEnvironment, open_embedded
from magnetar.storage.embedded.lanes import InlineThreads
from tests.crash.engine_scenario import Promise, Scenario, check
from tests.storage.engine_for_tests import ROOT, TINY, World, read_all, run_until_crash, settle
from tests.storage.records_for_tests import slab_of
from tests.twins.lane_frame_writer import LaneFrameWriter
from tests.twins.memory_metadata import MemoryMetadataStore
from tests.twins.pool_direct_reader import PoolDirectReader

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from magnetar.storage.embedded.engine import EmbeddedStorage
    from magnetar.storage.embedded.ledger_store import EmbeddedLedgerWriter

SYNC_S = 1.0
LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))


class SlowLane:
    """A lane whose batches take a second of the manual clock each: the work of a batch runs at the end of that second."""

    def __init__(self, world: SlowWorld, work: Callable[..., Any], done: Callable[..., None], most: int) -> None:
        self._world, self._work, self._done, self._most = world, work, done, most
        self._pending: list[tuple[Any, int]] = []
        self._busy = False
        self.batches: list[int] = []

    def submit(self, item: Any, size: int = 0) -> None:
        self._pending.append((item, size))
        self._start()

    def _start(self) -> None:
        if self._busy or not self._pending:
            return
        self._busy = True
        batch, size = [], 0
        while self._pending and (not batch or size < self._most):
            item, item_size = self._pending.pop(0)
            batch.append(item)
            size += item_size
        self.batches.append(len(batch))
        self._world.scheduler.call_later(SYNC_S, lambda: self._end(batch))

    def _end(self, batch: list[Any]) -> None:
        result, error = None, None
        try:
            result = self._work(batch)
        except Exception as caught:
            error = caught
        self._busy = False
        self._start()
        self._done(batch, result, error)

    async def wait_idle(self) -> None:
        while self._busy or self._pending:  # noqa: ASYNC110 - time is moved by the test, turn by turn
            await asyncio.sleep(0)

    close = wait_idle


class SlowThreads(InlineThreads):
    """The journal is slow, and so are checkpoints; reading is not."""

    def __init__(self, world: SlowWorld) -> None:
        self._world = world
        self.lanes: dict[str, SlowLane] = {}

    def lane(self, name, work, done, max_batch_bytes=1 << 62):
        self.lanes[name] = SlowLane(self._world, work, done, max_batch_bytes)
        return self.lanes[name]


class SlowWorld(World):
    """A world whose store opens on ``SlowThreads``, unless ``slow`` is false."""

    slow = True

    async def open(self, settings=TINY) -> EmbeddedStorage:
        if not self.slow:
            return await super().open(settings)
        self.given = MemoryMetadataStore()
        self.slow_threads = SlowThreads(self)
        environment = EngineEnvironment(
            self.disk, self.clock, self.slow_threads, self.scheduler, self.entropy, self.given
        )
        if self.has_frame_writer:
            environment.frame_writer = lambda: LaneFrameWriter(self.slow_threads)
        environment.direct_reader = lambda: PoolDirectReader(self.slow_threads)
        return await open_embedded(ROOT, settings, environment)


def push(writer: EmbeddedLedgerWriter, answers: list[int], number: int, body: bytes = b"x") -> None:
    slab = slab_of(writer.ledger_id, writer.last_add_pushed + 1, [body], writer.record_proof)
    writer.append(slab, lambda error: answers.append(number if error is None else -1))


async def test_no_receipt_before_the_sync_and_all_that_waited_share_the_next_one():
    world = SlowWorld()
    storage = await world.open()
    writers = [await storage.ledgers.create() for _ in range(3)]
    answers: list[int] = []
    push(writers[0], answers, 0)
    for number in range(1, 60):
        push(writers[number % 3], answers, number)
    await settle()
    for _ in range(9):
        world.scheduler.advance(SYNC_S / 10)
        await settle()
        assert answers == [], "receipts wait for the disk"
    world.scheduler.advance(SYNC_S / 5)
    await settle()
    assert answers == [0]
    world.scheduler.advance(SYNC_S)
    await settle()
    assert answers == list(range(60)), "one more sync for all the others, in order"
    await meanwhile(world, storage.close())


async def test_confirmed_entries_are_read_and_deleted_while_a_sync_hangs():
    world = SlowWorld()
    storage = await world.open()
    first, second = await storage.ledgers.create(), await storage.ledgers.create()
    answers: list[int] = []
    push(first, answers, 1, b"there")
    await settle()
    world.scheduler.advance(SYNC_S)
    await settle()
    assert answers == [1]
    push(second, answers, 2)
    await settle()
    assert await read_all(storage.ledgers, first.ledger_id, 0) == [b"there"]
    assert answers == [1], "the other one still hangs"
    world.scheduler.advance(SYNC_S)
    await settle()
    assert answers == [1, 2]
    await meanwhile(world, storage.close())


async def test_a_stop_waits_for_work_under_way():
    world = SlowWorld()
    storage = await world.open()
    writer = await storage.ledgers.create()
    answers: list[int] = []
    for number in range(5):
        push(writer, answers, number)
    await meanwhile(world, storage.close())
    assert answers == list(range(5))
    world.slow = False
    storage = await world.open()
    assert storage.recovery.frames == 0
    assert len(await read_all(storage.ledgers, writer.ledger_id, 4)) == 5
    await meanwhile(world, storage.close())


async def meanwhile(world: SlowWorld, work: Coroutine[Any, Any, None]) -> None:
    """Move time until the work is done."""
    waiting = asyncio.ensure_future(work)
    while not waiting.done():
        await settle(3)
        world.scheduler.advance(SYNC_S / 2)
    await waiting


def operations() -> int:
    world, promise = SlowWorld(), Promise()
    assert run_until_crash(world.disk, meanwhile(world, Scenario(world, promise).run())) is None
    return world.disk.operations


OPERATIONS = operations()


@pytest.mark.parametrize("operation", range(0, OPERATIONS, 1 if LONG else 9))
def test_a_crash_while_syncs_are_slow(operation: int):
    world, promise = SlowWorld(), Promise()
    world.disk.crash_at = operation
    run_until_crash(world.disk, meanwhile(world, Scenario(world, promise).run()))
    for mode, seed in (("nothing", 0), ("everything", 0), ("some", operation), ("some", operation + 1)):
        after = world.after_crash(mode, seed)
        assert run_until_crash(after.disk, check(after, promise)) is None


def test_the_matrix_is_not_empty():
    assert OPERATIONS > 100
