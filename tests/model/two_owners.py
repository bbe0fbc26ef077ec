"""Random histories of two owners of one managed ledger, on a service whose requests and answers travel slowly, get lost
or arrive late: the cursors keep every acknowledgement that was reported as stored.

``python -m tests.model.two_owners FIRST COUNT`` plays more of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys

import structlog

from magnetar.storage.errors import StorageError, StorageUnavailableError
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.managed.managed_ledger import ManagedLedgerConfig
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.model.virtual_loop import LoopClock, VirtualLoop
from tests.storage.managed_for_tests import NAME, append
from tests.twins.memory_ledgers import MemoryLedgerStore
from tests.twins.memory_metadata import MemoryMetadataStore

__all__ = ["ViolationError", "play"]

CONFIG = ManagedLedgerConfig(
    max_entries_per_ledger=6,
    min_rollover_ms=0,
    retention_time_ms=-1,
    retention_size_bytes=-1,
    entry_timestamp=False,
    cursor_max_entries_per_ledger=2,
    cursor_save_interval_ms=300,
)
CURSORS = ("s", "t")
ANSWER_S = 3.0
"""A caller without an answer gives up after this time."""


class ViolationError(AssertionError):
    """The history broke a promise; the text has its seed and its last steps."""


class Wire:
    """The way of one owner to the service. Requests of one kind arrive in their order, late requests after others."""

    def __init__(self, history: History, name: str) -> None:
        self.name = name
        self.cut = False
        """The owner is killed: no further request arrives."""
        self.silent_until_s = 0.0
        self.history, self._chance = history, history.chance
        self._due_s = 0.0

    async def call(self, operation, *, lossy=True):
        """The result of ``operation()`` at the service, or StorageUnavailableError after ``ANSWER_S``."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        fate = self._chance.choice(("request", "answer", "late")) if lossy and self._lost() else ""
        delay_s = self._chance.choice((0.0, 0.001, 0.01, 0.2)) * self._chance.random()
        self._due_s = max(self._due_s, loop.time() + delay_s, self.silent_until_s)
        due_s = self._due_s + (self._chance.uniform(0.0, 2 * ANSWER_S) if fate == "late" else 0.0)

        async def arrive():
            await asyncio.sleep(due_s - loop.time())
            if self.cut or fate == "request":
                return
            outcome = await asyncio.gather(operation(), return_exceptions=True)
            if fate != "answer":
                await asyncio.sleep(self._chance.choice((0.0, 0.001, 0.2)) * self._chance.random())
                if not answer.done() and not self.cut:
                    answer.set_result(outcome[0])

        self.history.keep(arrive())
        try:
            async with asyncio.timeout(ANSWER_S + max(0.0, self.silent_until_s - loop.time())):
                found = await answer
        except TimeoutError:
            raise StorageUnavailableError("no answer") from None
        if isinstance(found, BaseException):
            raise found
        return found

    def _lost(self) -> bool:
        return self._chance.random() < self.history.losses


class WiredMetadata:
    """One owner's view of the metadata."""

    def __init__(self, wire: Wire, service: MemoryMetadataStore) -> None:
        self._wire, self._service = wire, service

    async def get(self, path):
        return await self._wire.call(lambda: self._service.get(path), lossy=False)

    async def children(self, path):
        return await self._wire.call(lambda: self._service.children(path), lossy=False)

    async def put(self, path, *arguments):
        async def put():
            version = await self._service.put(path, *arguments)
            if path == ledger_list_path(NAME):
                self._wire.history.owner = self._wire
            return version

        return await self._wire.call(put)

    async def delete(self, path, *arguments):
        return await self._wire.call(lambda: self._service.delete(path, *arguments))


class WiredWriter:
    """One owner's writer of a ledger."""

    def __init__(self, wire: Wire, writer) -> None:
        self.ledger_id, self.record_proof = writer.ledger_id, writer.record_proof
        self.last_add_pushed = self.last_add_confirmed = -1
        self._wire, self._writer = wire, writer
        self._failure = None

    @property
    def length_bytes(self):
        return self._writer.length_bytes

    @property
    def failure(self):
        return self._failure or self._writer.failure

    def append(self, slab, done):
        self.last_add_pushed = slab.last_entry_id
        self._wire.history.keep(self._append(slab, done))

    async def _append(self, slab, done):
        confirmed = asyncio.get_running_loop().create_future()

        async def add():
            if self._failure is None:
                self._writer.append(slab, confirmed.set_result)
                self._failure = await confirmed
            return self._failure

        try:
            error = await self._wire.call(add, lossy=False)
        except StorageError as unavailable:
            error = self._failure = unavailable
        if error is None:
            self.last_add_confirmed = slab.last_entry_id
        else:
            self.last_add_pushed = self.last_add_confirmed
        done(error)

    async def close(self):
        return await self._wire.call(self._writer.close)


class WiredLedgers:
    """One owner's view of the ledgers."""

    def __init__(self, wire: Wire, service: MemoryLedgerStore, history: History) -> None:
        self.max_record_bytes = service.max_record_bytes
        self._wire, self._service, self.history = wire, service, history

    async def create(self, properties=None):
        if self.history.few_bookies:
            raise StorageUnavailableError("not enough bookies")
        return WiredWriter(self._wire, await self._wire.call(lambda: self._service.create(properties)))

    def read_cached(self, *_arguments):
        return None

    async def read(self, *arguments):
        return await self._wire.call(lambda: self._service.read(*arguments), lossy=False)

    async def open_recover(self, ledger_id):
        return await self._wire.call(lambda: self._service.open_recover(ledger_id), lossy=False)

    async def delete(self, ledger_id):
        await self._wire.call(lambda: self._service.delete(ledger_id))


class History:
    """Two owners open, use, lose and close the managed ledger, until ``over``."""

    def __init__(self, seed: int) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.losses = self.chance.choice((0.0, 0.02, 0.2))
        self.few_bookies = False
        self.metadata, self.ledgers = MemoryMetadataStore(), MemoryLedgerStore()
        self.clock = LoopClock(asyncio.get_running_loop())
        self.positions = []
        self.stored = {name: set() for name in CURSORS}
        """Acknowledgements whose save was reported."""
        self.acknowledged = {name: set() for name in CURSORS}
        """Everything that any owner acknowledged."""
        self.owner = None
        """The owner that has changed the ledger list last."""
        self.over = False
        self._steps = []
        self._kept = set()

    def fail(self, text):
        raise ViolationError(f"seed {self.seed}: {text}\n" + "\n".join(self._steps[-40:]))

    def note(self, text):
        self._steps.append(f"{asyncio.get_running_loop().time():9.4f} {text}")

    def keep(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    def factory(self, wire):
        ledgers = WiredLedgers(wire, self.ledgers, self)
        loop = asyncio.get_running_loop()
        return ManagedLedgerFactory(ledgers, WiredMetadata(wire, self.metadata), self.clock, loop, PulsarLayout())

    async def run(self) -> int:
        """Play the history; return the number of acknowledgements that were reported as stored."""
        losses, self.losses = self.losses, 0.0
        ledger = await self.factory(Wire(self, "first")).open(NAME, CONFIG)
        self.positions = await append(ledger, [b"x"] * 12)
        for name in CURSORS:
            await ledger.open_cursor(name, "earliest")
        await ledger.close()
        self.losses = losses
        owners = [self.own(f"owner {number}") for number in range(2)]
        try:
            async with asyncio.timeout(300):
                await asyncio.gather(self.disturb(), *owners)
        except TimeoutError:
            self.fail("an owner does not come to its end")
        self.losses, self.few_bookies = 0.0, False
        await asyncio.sleep(3 * ANSWER_S)
        await self.open_checked(Wire(self, "last"))
        return sum(map(len, self.stored.values()))

    async def disturb(self) -> None:
        for _ in range(self.chance.randrange(1, 5)):
            await asyncio.sleep(self.chance.uniform(0, 3))
            self.few_bookies = not self.few_bookies
        self.few_bookies = False
        await asyncio.sleep(self.chance.uniform(0, 5))
        self.over = True

    async def own(self, name) -> None:
        while not self.over:
            await asyncio.sleep(self.chance.uniform(0, 2))
            wire = Wire(self, name)
            with contextlib.suppress(StorageError):
                await self.use(wire, await self.open_checked(wire))

    async def open_checked(self, wire):
        """Open the managed ledger: each acknowledgement that was reported before is there, and no other."""
        before = {name: set(found) for name, found in self.stored.items()}
        ledger = await self.factory(wire).open(NAME, CONFIG)
        self.note(f"{wire.name} has opened")
        for name in CURSORS:
            cursor = ledger.cursors.get(name)
            if cursor is None:
                self.fail(f"cursor {name} is gone")
            found = {position for position in self.positions if cursor.is_deleted(position)}
            if before[name] - found:
                self.fail(f"{wire.name}: {name} lost {sorted(before[name] - found)}")
            if found - self.acknowledged[name]:
                self.fail(f"{wire.name}: {name} skips {sorted(found - self.acknowledged[name])}")
        return ledger

    async def use(self, wire, ledger) -> None:
        steps = [self.acknowledge] * 6 + [self.change_properties, self.append, self.pause, self.add_and_delete]
        for _ in range(self.chance.randrange(1, 12)):
            if self.owner is not wire:
                steps = [*steps, self.delete_log, self.delete_cursor]
            step = self.chance.choice(steps)
            self.note(f"{wire.name} {step.__name__}")
            with contextlib.suppress(StorageError):
                await step(wire, ledger)
            await asyncio.sleep(self.chance.choice((0.0, 0.01, 1.0)) * self.chance.random())
            if ledger.state.name == "CLOSED":
                return
        wire.cut = self.chance.random() < 0.3
        self.note(f"{wire.name} {'is killed' if wire.cut else 'closes'}")
        await ledger.close()

    async def acknowledge(self, wire, ledger) -> None:
        name = self.chance.choice(CURSORS)
        cursor = ledger.cursors[name]
        known = [position for position in self.positions if ledger.is_valid(position)]
        chosen = self.chance.sample(known, self.chance.randrange(1, 4))
        self.acknowledged[name].update(chosen)
        cursor.ack_many(chosen)
        if self.chance.random() < 0.8:
            await cursor.flush()
            self.note(f"{wire.name} has stored {chosen} of {name}")
            self.stored[name].update(chosen)

    async def change_properties(self, _wire, ledger) -> None:
        value = str(self.chance.random())
        if self.chance.random() < 0.5:
            await ledger.set_property("a", value)
        else:
            await ledger.cursors["s"].set_cursor_properties({"a": value})

    async def append(self, _wire, ledger) -> None:
        ledger.ready_to_create_new_ledger()
        self.positions += await append(ledger, [b"x"] * self.chance.randrange(1, 4))

    async def pause(self, wire, _ledger) -> None:
        wire.silent_until_s = asyncio.get_running_loop().time() + self.chance.uniform(0, 6)

    async def add_and_delete(self, wire, ledger) -> None:
        await ledger.open_cursor(wire.name, "earliest")
        await ledger.delete_cursor(wire.name)

    async def delete_log(self, wire, ledger) -> None:
        """The owner does not know that another owner has opened the log."""
        await ledger.delete()
        self.fail(f"{wire.name}, a former owner, has deleted the log")

    async def delete_cursor(self, wire, ledger) -> None:
        await ledger.delete_cursor("s")
        self.fail(f"{wire.name}, a former owner, has deleted a cursor")


def play(seed: int) -> int:
    """Play one history; return the number of its stored acknowledgements. Raises ViolationError."""
    loop = VirtualLoop()

    async def main() -> int:
        return await History(seed).run()

    with structlog.testing.capture_logs():
        try:
            return loop.run_until_complete(main())
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=100))
            loop.close()


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    print(sum(play(seed) for seed in range(first, first + count)), "acknowledgements held")
