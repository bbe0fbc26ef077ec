"""Random histories of a log with two would-be owners on simulated bookies, and the invariants of each history.

Each owner acts as a broker does with a topic: read the list of ledgers, recover the last ledger, create a new ledger,
put it on the list by compare-and-set, append to it, and begin again after an error. An owner gets no notice of another
owner. Meanwhile bookies crash, hang, refuse and come back, owners are suspended, cut off from bookies, killed and
replaced, and the metadata service is slow, away, or loses answers. All chance comes from the seed.

The checks (reference: the invariants of a BookKeeper ledger):

- every acknowledged entry is found at its position at the end, with its own payload, and no position has two;
- acknowledgements of a ledger come in order and only once;
- an entry was on its ack quorum of the write set in the stored metadata when it was acknowledged;
- nothing is acknowledged that a recovery completed before leaves out; a closed ledger does not change;
- with the faults over, an owner can write again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import structlog

from magnetar.bookkeeper.errors import BookKeeperError
from magnetar.bookkeeper.metadata.metadata_format import decode_metadata
from magnetar.bookkeeper.options import LedgerOptions
from tests.bookkeeper.sim_cluster import SimCluster
from tests.model.virtual_loop import VirtualLoop
from tests.twins.damaged_answers import noticeable

__all__ = ["ViolationError", "play"]

QUORUMS = [(3, 3, 2), (3, 3, 2), (3, 2, 2), (3, 3, 3), (2, 2, 1), (4, 3, 2), (1, 1, 1)]
LOG = "log"
OPTIONS = {
    "add_timeout_s": 2.0,
    "add_quorum_timeout_s": 20.0,
    "close_timeout_s": 5.0,
    "read_timeout_s": 2.0,
    "recovery_timeout_s": 20.0,
    "connect_timeout_s": 2.0,
    "quarantine_s": 5.0,
}


class ViolationError(AssertionError):
    """An invariant does not hold; the message names the seed."""


class History:
    def __init__(self, seed: int, *, watches: bool, damaging: bool = False) -> None:
        self.seed = seed
        self.faults = [*FAULTS, *[History.damage_answers] * 4] if damaging else FAULTS
        self.chance = random.Random(seed)
        self.quorums = LedgerOptions(*self.chance.choice(QUORUMS))
        bookies = self.quorums.ensemble_size + self.chance.choice([0, 0, 1, 2])
        self.cluster = SimCluster(bookies, seed)
        self.cluster.network.latency_s = self.chance.choice([(0.0002, 0.002), (0.0005, 0.02), (0.0001, 0.1)])
        self.cluster.service.reports_changes = watches  # a watch is no proof of a change
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.next_payload = 0
        self.over = False
        self.owners: list[asyncio.Task] = []
        self.notes: list[str] = []
        self.first_violation: ViolationError | None = None

    def fail(self, what: str) -> None:
        error = ViolationError(f"seed {self.seed}: {what}\n" + "\n".join(self.notes[-40:]))
        self.first_violation = self.first_violation or error  # an error raised in a callback does not reach the caller
        raise error

    def note(self, what: str) -> None:
        self.notes.append(f"{asyncio.get_running_loop().time():9.4f} {what}")

    # owners

    async def own(self, client, name: str) -> None:
        """Act as an owner process until the test kills the process or the history ends."""
        while not self.over:
            try:
                await self.term(client, name)
            except BookKeeperError as error:
                self.note(f"{name}: {type(error).__name__}")
                if asyncio.current_task().cancelling():
                    return  # killed, and failed while it ended
                await asyncio.sleep(self.chance.uniform(0.01, 1.0))

    async def term(self, client, name: str) -> None:
        """Become the owner of the log, and write until the ownership ends."""
        ledgers, version = await client.store.get_list(LOG)
        if ledgers:
            last = await client.client.recover(ledgers[-1])
            self.recovered(ledgers[-1], last.metadata)
        writer = await client.client.create(self.quorums)
        await client.store.put_list(LOG, (*ledgers, writer.ledger_id), version)
        self.note(f"{name}: owns {writer.ledger_id}")
        if self.chance.random() < 0.3:
            await asyncio.sleep(self.chance.uniform(0, 3))
        try:
            for _ in range(self.chance.randrange(1, 30)):
                if self.over:
                    break
                run = [self.payload() for _ in range(self.chance.choice([1, 1, 2, 5]))]
                first = writer.append_nowait(run, self.done(writer, writer.last_add_pushed + 1, run))
                assert first + len(run) - 1 == writer.last_add_pushed
                if self.chance.random() < 0.7:
                    await asyncio.sleep(self.chance.choice([0, 0, 0.001, 0.05, 0.5]))
        finally:
            if self.chance.random() < 0.7:
                await writer.close()
            elif self.chance.random() < 0.5:
                await asyncio.sleep(1)

    def payload(self) -> bytes:
        self.next_payload += 1
        return b"p%d" % self.next_payload

    def done(self, writer, first, run):
        def confirmed(error) -> None:
            if error is not None:
                return
            for index, payload in enumerate(run):
                where = (writer.ledger_id, first + index)
                if where in self.acknowledged:
                    self.fail(f"{where} was acknowledged twice")
                if first + index and (writer.ledger_id, first + index - 1) not in self.acknowledged:
                    self.fail(f"{where} was acknowledged before the entry before it")
                self.acknowledged[where] = payload
                self.on_quorum(where)

        return confirmed

    def on_quorum(self, where) -> None:
        ledger_id, entry_id = where
        metadata = decode_metadata(ledger_id, self.cluster.service.newest(ledger_id)[0])
        holding = [b for b in metadata.write_set(entry_id) if self.cluster.network.bookies[b].holds(*where)]
        if len(holding) < metadata.ack_quorum:
            self.fail(f"{where} was acknowledged and is on {holding} of {metadata.write_set(entry_id)} only")
        if metadata.is_closed and metadata.last_entry_id < entry_id:
            self.fail(f"{where} was acknowledged in a ledger closed at {metadata.last_entry_id}")

    def recovered(self, ledger_id, metadata) -> None:
        for known, entry_id in self.acknowledged:
            if known == ledger_id and entry_id > metadata.last_entry_id:
                self.fail(f"recovery of {ledger_id} ends at {metadata.last_entry_id}, {entry_id} was acknowledged")

    # faults

    async def disturb(self) -> None:
        """Cause faults one after the other; some of them last."""
        for _ in range(self.chance.randrange(1, 12)):
            await asyncio.sleep(self.chance.choice([0.001, 0.01, 0.1, 1.0, 3.0]) * self.chance.random())
            fault = self.chance.choice(self.faults)
            self.note(fault.__name__)
            await fault(self)

    async def take_over_and_forget(self) -> None:
        """An owner is suspended, perhaps with an empty ledger; the other takes over; no bookie remembers the fence."""
        client = self.any_client()
        client.party.pause()
        await asyncio.sleep(self.chance.uniform(0.5, 10))
        await self.forget_fences()
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        client.party.resume()

    def any_bookie(self):
        return self.chance.choice(self.cluster.bookies)

    def any_client(self):
        return self.chance.choice(self.cluster.clients[-2:])

    async def crash_bookies(self) -> None:
        count = self.chance.choice([1, 1, 1, 2, len(self.cluster.bookies)])
        crashed = self.chance.sample(self.cluster.bookies, min(count, len(self.cluster.bookies)))
        for bookie in crashed:
            bookie.crash()
        await self.some_time(seen=True)
        for bookie in crashed:
            bookie.start()
        self.cluster.refresh()

    async def hang_bookie(self) -> None:
        bookie = self.any_bookie()
        bookie.suspend()
        await self.some_time()
        bookie.go_on()

    async def make_read_only(self) -> None:
        bookie = self.any_bookie()
        bookie.read_only = True
        await self.some_time(seen=True)
        bookie.read_only = False
        self.cluster.refresh()

    async def reset_connections(self) -> None:
        for link in list(self.any_bookie().links):
            link.cut()

    async def damage_answers(self) -> None:
        one_in = self.chance.choice([2, 10, 50])
        bookie = self.any_bookie()
        bookie.damage = lambda frame: frame if self.chance.randrange(one_in) else noticeable(self.chance, frame)
        await self.some_time()
        bookie.damage = lambda frame: frame

    async def part(self) -> None:
        client = self.any_client()
        for bookie in self.chance.sample(self.cluster.bookies, self.chance.randint(1, len(self.cluster.bookies))):
            self.cluster.network.part(client.party, bookie)
        await self.some_time()
        self.cluster.network.heal()

    async def suspend_owner(self) -> None:
        client = self.any_client()
        client.party.pause()
        await self.some_time()
        client.party.resume()

    async def kill_owner(self) -> None:
        index = self.chance.randrange(2)
        task = self.owners[index]
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        dead = self.cluster.clients[index]
        dead.party.resume()
        await dead.client.close()
        self.cluster.clients[index] = self.start_owner(index)

    async def lose_metadata(self) -> None:
        self.cluster.service.up = False
        await self.some_time()
        self.cluster.service.up = True

    async def lose_answers(self) -> None:
        self.cluster.service.lost_answers = self.chance.choice([0.1, 0.5])
        await self.some_time()
        self.cluster.service.lost_answers = 0.0

    async def forget_fences(self) -> None:
        """All bookies crash and start again at the same time."""
        for bookie in self.cluster.bookies:
            bookie.crash()
            bookie.start()

    async def some_time(self, *, seen: bool = False) -> None:
        if seen and self.chance.random() < 0.7:
            self.cluster.refresh()
        await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.3, 3.0, 12.0]) * self.chance.random())

    # the whole

    def start_owner(self, index: int):
        client = self.cluster.join(f"owner-{index}-{self.next_payload}", **OPTIONS)
        self.cluster.clients.remove(client)
        task = asyncio.get_running_loop().create_task(self.own(client, client.party.name))
        if index < len(self.owners):
            self.owners[index] = task
        else:
            self.owners.append(task)
        return client

    async def run(self) -> int:
        """Play the history; return the number of acknowledged entries. Raises ViolationError."""
        for index in range(2):
            self.cluster.clients.append(self.start_owner(index))
        disturbing = [asyncio.get_running_loop().create_task(self.disturb()) for _ in range(2)]
        await asyncio.gather(*disturbing)
        await asyncio.sleep(self.chance.uniform(0, 2))
        await self.settle()
        found = await self.read_all()
        for where, payload in self.acknowledged.items():
            if found.get(where) != payload:
                self.fail(f"{where} was acknowledged with {payload}, found {found.get(where)}")
        payloads = list(found.values())
        if len(set(payloads)) != len(payloads):
            self.fail("a payload stands at two positions")
        if self.cluster.service.violations:
            self.fail(self.cluster.service.violations[0])
        await self.write_again()
        await self.cluster.close()
        return len(self.acknowledged)

    async def settle(self) -> None:
        """End all faults and all owners."""
        for bookie in self.cluster.bookies:
            bookie.go_on()
            bookie.start()
            bookie.read_only = False
            bookie.damage = lambda frame: frame
        self.cluster.network.heal()
        self.cluster.service.up, self.cluster.service.lost_answers = True, 0.0
        for client in self.cluster.clients:
            client.party.resume()
        self.cluster.refresh()
        self.over = True
        _, late = await asyncio.wait(self.owners, timeout=300)
        if late:
            self.fail("an owner does not come to an end after the faults")
        for owner in self.owners:
            if not owner.cancelled() and owner.exception() is not None:
                raise owner.exception()

    async def read_all(self) -> dict[tuple[int, int], bytes]:
        fresh = self.cluster.join("reader", **OPTIONS)
        ledgers, _ = await fresh.store.get_list(LOG)
        found = {}
        for ledger_id in ledgers:
            reader = await fresh.client.open(ledger_id)
            async for entry in reader.entries():
                found[ledger_id, entry.entry_id] = bytes(entry.payload)
        return found

    async def write_again(self) -> None:
        writer = await self.cluster.join("last", **OPTIONS).client.create(self.quorums)
        await writer.append(b"at peace")
        await writer.close()


FAULTS = [
    History.crash_bookies,
    History.crash_bookies,
    History.hang_bookie,
    History.make_read_only,
    History.reset_connections,
    History.part,
    History.suspend_owner,
    History.suspend_owner,
    History.kill_owner,
    History.lose_metadata,
    History.lose_answers,
    History.forget_fences,
    History.take_over_and_forget,
]


def play(seed: int, *, watches: bool = False, damaging: bool = False, notes: list[str] | None = None) -> int:
    """Play one history; return the number of its acknowledged entries. ``notes`` gets its events. Raises
    ViolationError.
    """
    loop = VirtualLoop()
    try:
        with structlog.testing.capture_logs() as logs:
            history = None

            async def main() -> int:
                nonlocal history
                history = History(seed, watches=watches, damaging=damaging)
                history.notes = history.notes if notes is None else notes
                return await history.run()

            try:
                acknowledged = loop.run_until_complete(main())
            finally:
                if history is not None and history.first_violation is not None:
                    raise history.first_violation
        for record in logs:
            if record["log_level"] == "error":
                history.fail(f"logged as a bug: {record}")
        if loop.problems:
            history.fail(f"the loop complains: {loop.problems[0]}")
        return acknowledged
    finally:
        end(loop)


def end(loop: VirtualLoop) -> None:
    """Cancel the remaining tasks of the history, which may have failed in its middle."""
    for _ in range(10):
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=100))
    loop.close()
