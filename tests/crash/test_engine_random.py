"""Random histories: appends of all sizes to many ledgers, seals, deletions, checkpoints, full disks, crashes,
restarts, against a plain model of lists. Each seed is one history."""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial

import pytest

from magnetar.storage.errors import NoSuchEntryError, StorageFullError
from tests.crash.engine_scenario import Promise, check
from tests.storage.engine_for_tests import World, append, read_all, run_until_crash, settle
from tests.storage.records_for_tests import bodies_of, slab_of
from tests.twins.sim_files import SimulatedCrash

SEEDS = range(1000 if os.environ.get("MAGNETAR_CRASH_LONG") else 40)


class History:
    """The life of one process on a world; the promise continues with the next process."""

    def __init__(self, world: World, promise: Promise, chance: random.Random) -> None:
        self.world, self.promise, self.chance = world, promise, chance
        self.open: dict[int, object] = {}

    async def live(self, steps: int) -> None:
        self.storage = await self.world.open()
        for _ in range(steps):
            step = self.chance.choices(
                [
                    self.create,
                    self.add,
                    self.burst,
                    self.read,
                    self.seal,
                    self.delete,
                    self.checkpoint,
                    self.pause,
                    self.fill_up,
                ],
                [2, 8, 4, 6, 1, 1, 2, 2, 1],
            )[0]
            await step()
        if self.chance.random() < 0.5:
            await self.storage.close()
            self.world.disk.crashed = True

    def body(self) -> bytes:
        size = self.chance.choice([0, 1, 30, 300, 1000, 5000, 9000])
        return self.chance.randbytes(self.chance.randint(0, size))

    def writer(self):
        return self.chance.choice(list(self.open.values())) if self.open else None

    async def create(self) -> None:
        try:
            writer = await self.storage.ledgers.create()
        except StorageFullError:
            return
        assert writer.ledger_id > self.promise.greatest_id
        self.promise.greatest_id = writer.ledger_id
        self.promise.pushed[writer.ledger_id] = []
        self.promise.acked[writer.ledger_id] = 0
        self.open[writer.ledger_id] = writer

    async def add(self) -> None:
        if (writer := self.writer()) is None:
            return
        bodies = [self.body() for _ in range(self.chance.randint(1, 4))]
        pushed = self.promise.pushed[writer.ledger_id]
        pushed += bodies
        try:
            await append(writer, bodies)
            self.promise.acked[writer.ledger_id] = len(pushed)
        except StorageFullError:
            await self.give_up(writer)

    async def burst(self) -> None:
        """Start several appends to several ledgers at once; return perhaps before all of them are answered."""
        for _ in range(self.chance.randint(1, 6)):
            if (writer := self.writer()) is None:
                return
            bodies = [self.body()]
            pushed = self.promise.pushed[writer.ledger_id]
            pushed += bodies
            slab = slab_of(writer.ledger_id, writer.last_add_pushed + 1, bodies, writer.record_proof)
            writer.append(slab, partial(self.answered, writer.ledger_id, len(pushed)))
        await settle(self.chance.randint(0, 10))

    def answered(self, ledger_id: int, count: int, error: object) -> None:
        if error is None:
            self.promise.acked[ledger_id] = max(self.promise.acked[ledger_id], count)
        else:
            assert isinstance(error, StorageFullError)
            self.open.pop(ledger_id, None)

    async def give_up(self, writer) -> None:
        """Like a managed ledger: after a failed append the ledger is closed; further entries go to another ledger."""
        self.open.pop(writer.ledger_id, None)

    async def read(self) -> None:
        present = [k for k in self.promise.pushed if k not in self.promise.deleting]
        if not present:
            return
        ledger_id = self.chance.choice(present)
        last = self.promise.acked[ledger_id] - 1
        if last < 0:
            return
        first = self.chance.randint(0, last)
        try:
            slabs = await self.storage.ledgers.read(ledger_id, first, last, self.chance.choice([1, 500, 1 << 20]))
        except NoSuchEntryError:
            raise AssertionError(f"{ledger_id}:{first} of {last} is gone") from None
        found = bodies_of(slabs, first, last)
        assert found
        assert found == self.promise.pushed[ledger_id][first : first + len(found)]

    async def seal(self) -> None:
        if (writer := self.writer()) is None:
            return
        del self.open[writer.ledger_id]
        try:
            info = await writer.close()
        except StorageFullError:
            return
        assert info.entries >= self.promise.acked[writer.ledger_id]
        del self.promise.pushed[writer.ledger_id][info.entries :]
        self.promise.acked[writer.ledger_id] = info.entries
        self.promise.sealed.add(writer.ledger_id)

    async def delete(self) -> None:
        present = [k for k in self.promise.pushed if k not in self.promise.deleting]
        if len(present) > 2:
            ledger_id = self.chance.choice(present)
            self.open.pop(ledger_id, None)
            self.promise.deleting.add(ledger_id)
            try:
                await self.storage.ledgers.delete(ledger_id)
            except StorageFullError:
                return
            self.promise.deleted.add(ledger_id)

    async def checkpoint(self) -> None:
        waiting = asyncio.ensure_future(self.storage.checkpoint())
        while not waiting.done():
            self.world.scheduler.advance(10)
            await settle()

    async def pause(self) -> None:
        self.world.scheduler.advance(self.chance.choice([0.1, 1.1, 40]))
        await settle(5)

    async def fill_up(self) -> None:
        self.world.disk.full_at = self.world.disk.operations + self.chance.randint(0, 10)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_history(seed: int):
    chance = random.Random(seed)
    world, promise = World(), Promise()
    for _ in range(4):
        world.disk.crash_at = chance.choice([-1, chance.randint(5, 400)])
        outcome = run_until_crash(world.disk, History(world, promise, chance).live(chance.randint(5, 120)))
        assert outcome is None or isinstance(outcome, SimulatedCrash)
        world = world.after_crash(chance.choice(["nothing", "everything", "some"]), chance.randint(0, 10**6))
        run_until_crash(world.disk, check(world, promise))
        fix_ends(world, promise)


def fix_ends(world: World, promise: Promise) -> None:
    """Recover and close every ledger, and take the unanswered appends that recovery kept into the promise."""

    async def look() -> None:
        storage = await world.open()
        present = await storage.ledgers.list_ledgers()
        for ledger_id in list(promise.pushed):
            if ledger_id not in present:
                promise.deleting.add(ledger_id)
                promise.deleted.add(ledger_id)
                continue
            info = await storage.ledgers.open_recover(ledger_id)
            del promise.pushed[ledger_id][info.entries :]
            assert await read_all(storage.ledgers, ledger_id, info.last_entry_id) == promise.pushed[ledger_id]
            promise.acked[ledger_id] = info.entries
            promise.sealed.add(ledger_id)
        for ledger_id in present:
            promise.greatest_id = max(promise.greatest_id, ledger_id)
        await storage.close()

    run_until_crash(world.disk, look())
