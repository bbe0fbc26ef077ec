"""Random work on a managed ledger over the embedded engine, with a record of its promises and their check."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import TYPE_CHECKING

from magnetar.storage.errors import StorageFullError
from magnetar.storage.managed.cursors.store import cursor_path
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.managed_ledger import AppendState, ManagedLedger, ManagedLedgerConfig
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedCursorInfo
from magnetar.storage.managed.orphaned_ledgers import ManagedLedgerReferences, sweep_orphans
from magnetar.storage.position import EARLIEST, Position
from tests.storage.engine_for_tests import World, settle
from tests.storage.managed_for_tests import NAME, read_all, run_of

if TYPE_CHECKING:
    from magnetar.storage.embedded.engine import EmbeddedStorage
    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.managed.managed_ledger import AppendResult

CONFIG = ManagedLedgerConfig(
    max_entries_per_ledger=7,
    min_rollover_ms=0,
    cursor_save_acks=5,
    cursor_max_entries_per_ledger=4,
    cursor_inline_bytes=64,
    cursor_chunk_bytes=48,
)
CURSORS = ("a", "b")


class CursorPromise:
    """Bounds of a cursor's acknowledgements after a restart."""

    def __init__(self) -> None:
        self.at_least: set[Position] = set()
        self.at_most: set[Position] = set()


class Promise:
    def __init__(self) -> None:
        self.tried: list[bytes] = []
        """Bodies in the order of their appends."""
        self.kept: dict[Position, bytes] = {}
        """Entries whose append was confirmed."""
        self.cursors: dict[str, CursorPromise] = {}


class Work:
    """Appends, acks, flushes, seeks, rolls, trims, restarts; each step chosen by the seed."""

    config = CONFIG

    def __init__(self, world: World, promise: Promise, seed: int) -> None:
        self.world, self.promise = world, promise
        self.chance = random.Random(seed)
        self.may_fail = False
        self.times_full = 0
        self.refused: list[tuple[World, Promise]] = []
        """For each start refused because the disk was full: the disk after a power loss at that moment, and the
        promises.
        """
        self.storage: EmbeddedStorage
        self.is_open = False
        self.factory: ManagedLedgerFactory
        self.ledger: ManagedLedger

    async def run(self, steps: int) -> None:
        await self.start()
        for name in CURSORS:
            if name not in self.ledger.cursors:
                self.promise.cursors.setdefault(name, CursorPromise())
                try:
                    await self.ledger.open_cursor(name, "earliest")
                except StorageFullError:
                    assert self.may_fail
                    await self.ledger.open_cursor(name, "earliest")  # there is room by then
        for _ in range(steps):
            try:
                await self.step()
            except StorageFullError:
                self.times_full += 1
            await self.resume()
        await self.close()

    async def resume(self) -> None:
        """Resume the managed ledger after a failed append, as a topic does."""
        if self.ledger.state is AppendState.WRITE_FAILED:
            await settle()
            assert not self.ledger.pending_appends
            self.ledger.ready_to_create_new_ledger()

    async def start(self) -> None:
        """Open the store; where a full disk refuses the start, open again: the disk has room by then."""
        try:
            await self.open()
        except StorageFullError:
            assert self.may_fail
            self.refused.append((self.world.after_crash("nothing"), copy.deepcopy(self.promise)))
            if self.is_open:  # the store is open, the managed ledger is not
                await self.storage.close()
            await self.open()

    async def open(self) -> None:
        self.is_open = False
        self.storage = await self.world.open()
        self.is_open = True
        self.factory = ManagedLedgerFactory(
            self.storage.ledgers, self.world.metadata, self.world.clock, self.world.scheduler
        )
        self.ledger = await self.factory.open(NAME, self.config)

    async def close(self) -> None:
        acked = {name: self.acked(name) for name in self.ledger.cursors if name in CURSORS}
        savers = {name: self.ledger.cursors[name]._saver for name in acked}
        await self.factory.close()
        for name, positions in acked.items():
            if not savers[name].is_dirty:  # a full disk leaves acknowledgements unsaved
                self.promise.cursors[name].at_least = positions
        await self.storage.close()

    async def step(self) -> None:
        kind = self.chance.choices(
            ["append", "ack", "flush", "seek", "roll", "second", "checkpoint", "restart"], [8, 8, 3, 1, 1, 2, 2, 1]
        )[0]
        if kind == "append":
            await self.append(self.chance.randint(1, 9), wait=self.chance.random() < 0.7)
        elif kind == "ack":
            self.ack()
            await settle(self.chance.randint(0, 3))
        elif kind == "flush":
            await self.flush(self.chance.choice(CURSORS))
        elif kind == "seek":
            await self.seek(self.chance.choice(CURSORS))
        elif kind == "roll":
            await self.ledger.roll()
        elif kind == "second":
            self.world.scheduler.advance(1.5)
            await settle()
        elif kind == "checkpoint":
            if not self.may_fail:  # on a full disk a checkpoint waits for its next try
                await self.storage.checkpoint()
        else:
            await self.close()
            await self.start()

    async def append(self, count: int, *, wait: bool) -> None:
        bodies = [b"body %d" % (len(self.promise.tried) + k) for k in range(count)]
        self.promise.tried += bodies
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(result: AppendResult) -> None:
            assert result.error is None or self.ledger.state is not AppendState.OPEN or self.may_fail
            for piece in result.pieces:
                for k in range(piece.start, piece.end):
                    position = Position(piece.ledger_id, piece.first_entry_id + k - piece.start)
                    self.promise.kept[position] = bodies[k]
            self.times_full += isinstance(result.error, StorageFullError)
            if not future.done():
                future.set_result(None)

        self.ledger.append(run_of(bodies), done)
        if wait:
            await future

    def ack(self) -> None:
        name = self.chance.choice(CURSORS)
        cursor = self.ledger.cursors[name]
        existing = [position for position in self.promise.kept if self.ledger.is_valid(position)]
        if not existing:
            return
        if self.chance.random() < 0.3:
            position = self.chance.choice(existing)
            chosen = [known for known in existing if known <= position]
            self.promise.cursors[name].at_most.update(chosen)
            cursor.ack_cumulative(position)
        else:
            chosen = self.chance.sample(existing, min(len(existing), self.chance.randint(1, 12)))
            self.promise.cursors[name].at_most.update(chosen)
            cursor.ack_many(chosen)

    def acked(self, name: str) -> set[Position]:
        cursor = self.ledger.cursors[name]
        return {position for position in self.promise.cursors[name].at_most if cursor.is_deleted(position)}

    async def flush(self, name: str) -> None:
        promise = self.promise.cursors[name]
        acked = self.acked(name)
        await self.ledger.cursors[name].flush()
        promise.at_least |= acked

    async def seek(self, name: str) -> None:
        existing = [position for position in self.promise.kept if self.ledger.is_valid(position)]
        if not existing:
            return
        target = self.chance.choice(existing)
        promise = self.promise.cursors[name]
        before = {known for known in self.promise.kept if known < target}
        promise.at_least &= before
        promise.at_most |= before
        await self.ledger.cursors[name].reset(target)
        promise.at_least = set(before)
        promise.at_most = set(before)


async def check(world: World, promise: Promise) -> None:
    """Open the remaining files and compare the store with the promises; then the store must still work."""
    work = Work(world, promise, 0)
    await work.open()
    ledger = work.ledger
    await check_orphans(work)
    found = await read_all(ledger.new_read_cursor(EARLIEST))
    bodies = [body for _, body, _ in found]
    order = {body: number for number, body in enumerate(promise.tried)}
    places = [order[body] for body in bodies]
    assert places == sorted(set(places)), "order kept, nothing twice"
    indexes = [index for _, _, index in found]
    assert not indexes or indexes == list(range(indexes[0], indexes[0] + len(indexes))), "index continuous"
    held = {position: body for position, body, _ in found}
    lost = {position for position in promise.kept if position not in held}
    for position, body in promise.kept.items():
        assert position in lost or held[position] == body
    for name, cursor_promise in promise.cursors.items():
        cursor = ledger.cursors.get(name)
        if cursor is None:
            assert not cursor_promise.at_least, f"cursor {name} is gone"
            assert not lost or name not in promise.cursors
            continue
        check_cursor(cursor, cursor_promise, set(promise.kept), held, lost)
    next_index = ledger.stats().last_index + 1
    await work.append(3, wait=True)
    again = await read_all(ledger.new_read_cursor(ledger.last_confirmed.previous().previous()))
    assert [index for _, _, index in again] == [next_index, next_index + 1, next_index + 2]
    await work.close()


async def check_orphans(work: Work) -> None:
    """After the sweep every ledger has an owner, and every owned ledger exists."""
    ledgers, metadata = work.storage.ledgers, work.world.metadata
    newest = work.storage.recovery.newest_ledger_id
    await sweep_orphans(ledgers, metadata, [ManagedLedgerReferences(metadata)], newest)
    named = {slot.ledger_id for slot in work.ledger.ledgers}
    for name in CURSORS:
        record = await metadata.get(cursor_path(NAME, name))
        if record is not None:
            named.add(ManagedCursorInfo.FromString(record[0]).cursorsLedgerId)
    assert set(await ledgers.list_ledgers()) == named - {-1}


def check_cursor(
    cursor: ManagedCursor,
    promise: CursorPromise,
    kept: set[Position],
    held: dict[Position, bytes],
    lost: set[Position],
) -> None:
    acked = {position for position in held if cursor.is_deleted(position)}
    assert promise.at_least & set(held) <= acked, "a flushed ack came back"
    assert acked & kept <= promise.at_most, "an entry is skipped"
    assert lost <= promise.at_most, "an entry is lost"
    assert cursor.backlog_entries == len(held) - len(acked)
    promise.at_most = acked | (promise.at_most - set(held))
    promise.at_least = set(promise.at_most)
