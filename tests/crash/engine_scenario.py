"""A run of all operations of the engine on its files, with a record of its promises and their check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.errors import NoSuchLedgerError
from tests.storage.engine_for_tests import World, append, read_all, settle
from tests.storage.records_for_tests import slab_of

if TYPE_CHECKING:
    from magnetar.storage.embedded.engine import EmbeddedStorage
    from magnetar.storage.interfaces import LedgerWriter


class Promise:
    """The appends, seals and deletions of a run, and which of them the engine has acknowledged."""

    def __init__(self) -> None:
        self.pushed: dict[int, list[bytes]] = {}
        self.acked: dict[int, int] = {}
        """Ledger -> number of acknowledged entries."""
        self.sealed: set[int] = set()
        self.deleting: set[int] = set()
        self.deleted: set[int] = set()
        self.greatest_id = -1


class Scenario:
    """Appends to several ledgers, seals, rolls, checkpoints, recycles segments, deletes, closes."""

    def __init__(self, world: World, promise: Promise, rounds: int = 3) -> None:
        self.world, self.promise, self.rounds = world, promise, rounds
        self.storage: EmbeddedStorage | None = None

    async def run(self) -> None:
        self.storage = storage = await self.world.open()
        first = await self.create()
        second = await self.create()
        for number in range(self.rounds):
            await self.append(first, [b"first-%d-%d" % (number, k) for k in range(3)])
            self.append_nowait(second, [b"s" * 700, b"second-%d" % number])
            self.append_nowait(first, [b"burst-%d" % number])
            await self.append(second, [b"x" * 1500])
            if number == 0:
                await self.checkpoint()
        await self.seal(first)
        third = await self.create()
        await self.append(third, [b"third" * 300] * 2)
        await self.checkpoint()
        await self.append(third, [b"after"])
        await self.delete(first.ledger_id)
        for number in range(self.rounds):
            await self.append(third, [b"t%d" % number * 500])
            await self.append(second, [b"late-%d" % number])
        await self.checkpoint()
        await self.append(second, [b"last"])
        self.append_nowait(third, [b"unanswered"])
        await storage.close()
        if storage.health.problem is None:
            self.promise.acked[third.ledger_id] = len(self.promise.pushed[third.ledger_id])

    async def create(self) -> LedgerWriter:
        assert self.storage is not None
        writer = await self.storage.ledgers.create()
        assert writer.ledger_id > self.promise.greatest_id
        self.promise.greatest_id = writer.ledger_id
        self.promise.pushed[writer.ledger_id] = []
        self.promise.acked[writer.ledger_id] = 0
        return writer

    async def append(self, writer: LedgerWriter, bodies: list[bytes]) -> None:
        self.promise.pushed[writer.ledger_id] += bodies
        await append(writer, bodies)
        self.promise.acked[writer.ledger_id] = len(self.promise.pushed[writer.ledger_id])

    def append_nowait(self, writer: LedgerWriter, bodies: list[bytes]) -> None:
        ledger_id = writer.ledger_id
        self.promise.pushed[ledger_id] += bodies
        count = len(self.promise.pushed[ledger_id])

        def done(error: BaseException | None) -> None:
            if error is None:
                self.promise.acked[ledger_id] = max(count, self.promise.acked[ledger_id])

        writer.append(slab_of(ledger_id, writer.last_add_pushed + 1, bodies, writer.record_proof), done)

    async def checkpoint(self) -> None:
        assert self.storage is not None
        await self.storage.checkpoint()

    async def seal(self, writer: LedgerWriter) -> None:
        info = await writer.close()
        assert info.entries == len(self.promise.pushed[writer.ledger_id])
        self.promise.sealed.add(writer.ledger_id)

    async def delete(self, ledger_id: int) -> None:
        assert self.storage is not None
        self.promise.deleting.add(ledger_id)
        await self.storage.ledgers.delete(ledger_id)
        self.promise.deleted.add(ledger_id)


async def check(world: World, promise: Promise, *, go_on: bool = True) -> None:
    """Open the store and compare it with the promise; with ``go_on`` also append to a new ledger, reopen and compare."""
    storage = await world.open()
    await _check_open(storage, promise)
    if go_on:
        writer = await storage.ledgers.create()
        assert writer.ledger_id > promise.greatest_id
        await append(writer, [b"new life", b"y" * 2000])
        await settle()
        await storage.close()
        storage = await world.open()
        assert storage.recovery.frames == 0
        await _check_open(storage, promise)
        assert await read_all(storage.ledgers, writer.ledger_id, 1) == [b"new life", b"y" * 2000]
    await storage.close()


async def _check_open(storage: EmbeddedStorage, promise: Promise) -> None:
    report = storage.recovery
    assert not report.damaged_entries, report
    assert not report.damaged_files, report
    assert not report.missing_frames, report
    assert not report.set_aside, report
    present = set(await storage.ledgers.list_ledgers())
    for ledger_id, pushed in promise.pushed.items():
        if ledger_id not in present:
            gone = ledger_id in promise.deleting or (ledger_id == promise.greatest_id and not promise.acked[ledger_id])
            assert gone, f"ledger {ledger_id} is lost"
            continue
        assert ledger_id not in promise.deleted, f"ledger {ledger_id} came back"
        info = await storage.ledgers.open_recover(ledger_id)
        assert promise.acked[ledger_id] <= info.entries <= len(pushed), f"{info} of {promise.acked[ledger_id]}"
        if ledger_id in promise.sealed:
            assert info.entries == len(pushed)
        assert await read_all(storage.ledgers, ledger_id, info.last_entry_id) == pushed[: info.entries]
    for ledger_id in promise.deleted:
        try:
            await storage.ledgers.open_recover(ledger_id)
        except NoSuchLedgerError:
            continue
        raise AssertionError(f"deleted ledger {ledger_id} is open")
