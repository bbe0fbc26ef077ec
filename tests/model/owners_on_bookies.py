"""Random histories of a managed ledger whose owners change, over simulated bookies: the client of BookKeeper, the stores
and the managed layer together, as in the brokers of a cluster.

Two processes open the log, publish, acknowledge, read, trim, roll and close at the same time, without notice of each
other. A process lives on when it loses the log, and the log returns to a process that remembers its ledgers. Meanwhile
bookies crash, hang, refuse and come back, requests to the metadata service are slow or get no answer, and processes are
suspended, cut off or killed.

The checks:

- an entry whose append was reported is at its position with its bytes, unless all cursors have acknowledged the entry;
- a position has one content for ever, a content has one position, and the broker indexes have no gap;
- each cursor keeps the acknowledgements whose save was reported, and has no others;
- with the faults over, each process reads the whole log and appends to it.

``python -m tests.model.owners_on_bookies FIRST COUNT`` plays more of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from functools import partial

import structlog

from magnetar.bookkeeper.errors import MetadataUnavailableError
from magnetar.storage.bookkeeper.ledger_store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.storage.entry_cache import EntryCache
from magnetar.storage.errors import StorageError, StorageUnavailableError
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.managed_ledger import AppendState, ManagedLedgerConfig
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from magnetar.storage.zookeeper.zookeeper_metadata import ZooKeeperMetadataStore
from tests.bookkeeper import histories
from tests.bookkeeper.histories import ViolationError
from tests.bookkeeper.sim_cluster import SimCluster
from tests.model.two_owners import ANSWER_S, CURSORS, Wire
from tests.model.virtual_loop import LoopClock, VirtualLoop
from tests.storage.managed_for_tests import NAME, append, everything, message, run_of
from tests.twins.sim_zookeeper import SimSession, SimZooKeeper

__all__ = ["ViolationError", "play"]

QUORUMS = [(3, 3, 2), (3, 3, 2), (3, 2, 2), (2, 2, 2), (2, 2, 1)]
CLIENT = histories.OPTIONS | {"add_quorum_timeout_s": 10.0, "recovery_timeout_s": 10.0}
_LATE_S = 300.0
"""The longest time that an owner takes for its end after the faults."""


class Process:
    """A broker: its client of BookKeeper, its stores, its way to the metadata."""

    def __init__(self, history: History, name: str) -> None:
        self.name = name
        self.doomed = False
        """Whether the history kills the process behind the present step."""
        self.wire = Wire(history, name)
        self.client = history.cluster.join(name, **CLIENT)
        self.on_answer = lambda: None
        """Called with each answer about metadata, before its caller goes on."""
        self._ask_ledgers = self.client.store._ask
        self.client.store._ask = self.ask_ledgers
        self.store = BookKeeperLedgerStore(
            self.client.client, history.settings, EntryCache(history.chance.choice((1 << 20, 2000)))
        )
        self.factory = ManagedLedgerFactory(
            self.store,
            ZooKeeperMetadataStore(SimSession(history.metadata, partial(self.ask, lossy=False), self.ask)),
            LoopClock(asyncio.get_running_loop()),
            asyncio.get_running_loop(),
            PulsarLayout(),
            lambda: history.cluster.service.up and self.store.has_bookies(),
            None,
            self.store.give_up_creation,
        )

    async def ask(self, request, *, lossy=True):
        async def arrive():
            return request()

        try:
            return await self.wire.call(arrive, lossy=lossy)
        except StorageUnavailableError as error:
            raise MetadataUnavailableError("/") from error
        finally:
            self.on_answer()

    async def ask_ledgers(self, operation):
        try:
            return await self._ask_ledgers(operation)
        finally:
            self.on_answer()

    def kill(self) -> None:
        self.wire.cut = True
        self.client.party.pause()


class History(histories.History):
    """The faults are those of the histories of ledgers."""

    def __init__(self, seed: int) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.losses = self.chance.choice((0.0, 0.02, 0.2))
        quorums = self.chance.choice(QUORUMS)
        self.cluster = SimCluster(quorums[0] + self.chance.choice((0, 0, 1)), seed)
        self.cluster.network.latency_s = self.chance.choice([(0.0002, 0.002), (0.0005, 0.02), (0.0001, 0.1)])
        self.cluster.service.reports_changes = self.chance.random() < 0.5
        self.settings = BookKeeperSettings(*quorums, max_record_bytes=64 << 10, new_ledger_wait_s=2.0)
        self.metadata = SimZooKeeper()
        self.keeps_all = self.chance.random() < 0.5
        """Whether the log keeps all entries; else it drops ledgers that all cursors have acknowledged."""
        self.config = ManagedLedgerConfig(
            max_entries_per_ledger=self.chance.choice((5, 10, 30)),
            min_rollover_ms=0,
            max_rollover_ms=self.chance.choice((0, 0, 3000)),
            retention_time_ms=-1 if self.keeps_all else 0,
            retention_size_bytes=-1 if self.keeps_all else 0,
            entry_timestamp=False,
            cursor_max_entries_per_ledger=self.chance.choice((2, 10)),
            cursor_save_interval_ms=300,
        )
        self.longest_pause_s = self.chance.choice((6.0, 6.0, 60.0))
        """The longest silence of the metadata service; in the longest an owner waits on."""
        self.eager = self.chance.choice((0.0, 0.2, 0.5))
        """The share of the answers about metadata behind which an owner publishes, a few turns of the loop later."""
        self.bursts = self.chance.random() < 0.6
        """Whether owners publish in bursts; else single entries, so that a full ledger often finds no waiting entry."""
        self.receipts: dict[Position, bytes] = {}
        """The entries whose append was reported."""
        self.seen: dict[Position, bytes] = {}
        """The entries that were reported or read."""
        self.at: dict[bytes, Position] = {}
        self.stored = {name: set() for name in CURSORS}
        """Acknowledgements whose save was reported."""
        self.acknowledged = {name: set() for name in CURSORS}
        """Everything that any owner acknowledged."""
        self.over = self.ending = False
        self.end = None
        """The end of the log that an owner has reported."""
        self.processes: list[Process] = []
        self.next_payload = 0
        self.notes: list[str] = []
        self.first_violation = None
        self._kept = set()

    def keep(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        return task

    def any_client(self):
        return self.chance.choice(self.processes).client

    # the whole

    async def run(self) -> int:
        """Play the history; return the number of receipts."""
        losses, self.losses = self.losses, 0.0
        first = await Process(self, "first").factory.open(NAME, self.config)
        for name in CURSORS:
            await first.open_cursor(name, "earliest")
        await first.close()
        self.losses = losses
        self.processes = [Process(self, f"p{number}") for number in range(2)]
        owners = [self.keep(self.own(number)) for number in range(2)]
        await asyncio.gather(*(self.keep(self.disturb()) for _ in range(2)))
        self.end_faults()
        done, late = await asyncio.wait(owners, timeout=_LATE_S)
        if late:
            self.fail("an owner does not come to its end")
        for task in done:
            task.result()
        await asyncio.sleep(4 * ANSWER_S)
        for process in (*self.processes, *self.processes, Process(self, "last")):
            await self.last_look(process)
        return len(self.receipts)

    def end_faults(self) -> None:
        self.note("faults end")
        self.over, self.losses = True, 0.0
        for bookie in self.cluster.bookies:
            bookie.go_on()
            bookie.start()
            bookie.read_only = False
        self.cluster.network.heal()
        self.cluster.service.up, self.cluster.service.lost_answers = True, 0.0
        for process in self.processes:
            if not process.wire.cut:
                process.client.party.resume()
        self.cluster.refresh()

    async def last_look(self, process) -> None:
        async with asyncio.timeout(_LATE_S):
            ledger = await self.open_checked(process)
            await self.read(process, ledger, whole=True)
            if not self.ending:
                ledger.ready_to_create_new_ledger()
                body = self.body()
                (position,) = await append(ledger, [body])
                self.reported(position, body)
                await self.read(process, ledger, whole=True)
            await ledger.close()

    async def own(self, number) -> None:
        while not self.over:
            await asyncio.sleep(self.chance.uniform(0, 2))
            process = self.processes[number]
            with contextlib.suppress(StorageError):
                await self.use(process, await self.open_checked(process))
            if process.wire.cut:
                self.processes[number] = Process(self, f"p{number}-{self.next_payload}")

    async def open_checked(self, process):
        """Open the log: each acknowledgement that was reported before is there, and no other."""
        before = {name: set(found) for name, found in self.stored.items()}
        ledger = await process.factory.open(NAME, self.config)
        self.note(f"{process.name} has opened {[(s.ledger_id, s.entries, s.closed_at_ms) for s in ledger.ledgers]}")
        known = [position for position in self.seen if ledger.is_valid(position)]
        for name in CURSORS:
            cursor = ledger.cursors.get(name)
            if cursor is None:
                self.fail(f"cursor {name} is gone")
            found = {position for position in known if cursor.is_deleted(position)}
            if before[name].intersection(known) - found:
                self.fail(f"{process.name}: {name} lost {sorted(before[name].intersection(known) - found)}")
            if found - self.acknowledged[name]:
                self.fail(f"{process.name}: {name} skips {sorted(found - self.acknowledged[name])}")
        return ledger

    # entries

    def body(self) -> bytes:
        self.next_payload += 1
        return message(b"m%d" % self.next_payload)

    def reported(self, position, body) -> None:
        if position in self.receipts:
            self.fail(f"{position} was reported twice")
        if self.end is not None and position > self.end:
            self.fail(f"{position} was reported behind the end {self.end}")
        self.saw(position, body)
        self.receipts[position] = body

    def saw(self, position, body) -> None:
        if self.seen.setdefault(position, body) != body:
            self.fail(f"{position} has {body}, it had {self.seen[position]}")
        if self.at.setdefault(body, position) != position:
            self.fail(f"{body} is at {self.at[body]} and at {position}")

    async def read(self, process, ledger, *, whole=False) -> None:
        found = await everything(ledger)
        for position, body, _ in found:
            self.saw(position, body)
        positions = [position for position, _, _ in found]
        if positions != sorted(positions):
            self.fail(f"{process.name} read {positions}")
        indexes = [index for _, _, index in found]
        if self.keeps_all and indexes != list(range(len(indexes))):
            self.fail(f"{process.name} read the indexes {list(zip(positions, indexes, strict=True))}")
        if whole:
            lost = self.needed().difference(positions)
            if lost:
                self.fail(f"{process.name} does not find {sorted(lost)}")

    def needed(self) -> set[Position]:
        """The reported entries that some cursor has not acknowledged."""
        return {p for p in self.receipts if any(p not in self.acknowledged[name] for name in CURSORS)}

    # an owner

    async def use(self, process, ledger) -> None:
        steps = [self.publish] * (8 if self.bursts else 40) + [self.acknowledge] * 4 + [self.look] * 2
        steps += [self.pause, self.roll, self.trim, self.change_property, self.add_and_delete]
        steps += [self.chance.choice((self.look, self.ensure_ledger, self.truncate, self.terminate))]
        running = []
        process.on_answer = partial(self.answered, process, ledger)
        for _ in range(self.chance.randrange(1, 25 if self.bursts else 80)):
            step = self.chance.choice(steps)
            self.note(f"{process.name} {step.__name__}")
            running.append(self.keep(self.take(step, process, ledger)))
            if self.chance.random() < 0.4:
                await running[-1]
            await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.001, 0.01, 1.0)) * self.chance.random())
            if self.longest_pause_s > 6 and not self.over:
                await asyncio.sleep(self.chance.choice((0.0, 0.0, 10.0)) * self.chance.random())
            if process.doomed or (ledger.state is AppendState.FENCED and self.chance.random() < 0.5):
                break
        process.on_answer = lambda: None
        await self.leave(process, ledger, running)

    async def leave(self, process, ledger, running) -> None:
        """Close the log, or kill the process before or in the close."""
        fate = self.chance.random()
        if fate < 0.2 or process.doomed:
            self.note(f"{process.name} is killed")
            process.kill()
            return
        self.note(f"{process.name} closes")
        closing = self.keep(ledger.close())
        if fate < 0.3:
            await asyncio.sleep(self.chance.random())
            self.note(f"{process.name} is killed while it closes")
            process.kill()
            return
        await closing
        self.note(f"{process.name} has closed")
        _, late = await asyncio.wait(running, timeout=_LATE_S)
        if late:
            self.fail(f"{late} do not end behind the close")

    async def take(self, step, process, ledger) -> None:
        try:
            await step(process, ledger)
        except StorageError as error:
            self.note(f"{process.name} {step.__name__}: {type(error).__name__} {error}")

    def answered(self, process, ledger) -> None:
        if self.chance.random() < self.eager:
            self.publish_in(self.chance.randrange(6), process, ledger)

    def publish_in(self, turns, process, ledger) -> None:
        """Publish after so many turns of the loop."""
        if turns:
            asyncio.get_running_loop().call_soon(self.publish_in, turns - 1, process, ledger)
        else:
            self.publish_runs(process, ledger, 1)

    async def publish(self, process, ledger) -> None:
        if ledger.state is AppendState.WRITE_FAILED and not ledger.pending_appends:
            ledger.ready_to_create_new_ledger()
        self.publish_runs(process, ledger, self.chance.choice((1, 1, 3)) if self.bursts else 1)

    def publish_runs(self, process, ledger, count) -> None:
        for _ in range(count):
            bodies = [self.body() for _ in range(self.chance.choice((1, 1, 2, 9)) if self.bursts else 1)]
            ledger.append(run_of(bodies), partial(self.done, process, bodies))

    def done(self, process, bodies, result) -> None:
        if process.wire.cut:
            return
        count = 0
        for piece in result.pieces:
            for k in range(piece.start, piece.end):
                self.reported(Position(piece.ledger_id, piece.first_entry_id + k - piece.start), bodies[k])
                count += 1
        if result.error is None and count != len(bodies):
            self.fail(f"{process.name}: a run was reported with {result.pieces}")

    async def acknowledge(self, process, ledger) -> None:
        name = self.chance.choice(CURSORS)
        known = sorted(position for position in self.seen if ledger.is_valid(position))
        if not known:
            return
        if self.chance.random() < 0.5:
            chosen = sorted(self.chance.sample(known, min(len(known), self.chance.randrange(1, 4))))
            self.acknowledged[name].update(chosen)
            ledger.cursors[name].ack_many(chosen)
        else:
            chosen = self.acknowledge_up_to(name, ledger, self.chance.choice(known))
            ledger.cursors[name].ack_cumulative(max(chosen))
        if self.chance.random() < 0.6:
            await ledger.cursors[name].flush()
            if not process.wire.cut:
                self.note(f"{process.name} has stored {len(chosen)} of {name}")
                self.stored[name].update(chosen)

    def acknowledge_up_to(self, name, ledger, last) -> list[Position]:
        """Note the acknowledgement of all entries up to `last`, also of entries whose append was reported as failed."""
        places = [Position(slot.ledger_id, k) for slot in ledger.ledgers for k in range(slot.entries)]
        chosen = [position for position in places if position <= last]
        self.acknowledged[name].update(chosen)
        return chosen

    async def look(self, process, ledger) -> None:
        await self.read(process, ledger)

    async def pause(self, process, _ledger) -> None:
        silence_s = self.chance.uniform(0, self.longest_pause_s)
        process.wire.silent_until_s = asyncio.get_running_loop().time() + silence_s

    async def roll(self, _process, ledger) -> None:
        await ledger.roll()

    async def trim(self, _process, ledger) -> None:
        await ledger.trim(int(1_700_000_000_000 + asyncio.get_running_loop().time() * 1000))

    async def truncate(self, _process, ledger) -> None:
        self.keeps_all = False
        for name in CURSORS:
            self.acknowledge_up_to(name, ledger, ledger.last_confirmed)
        await ledger.truncate()

    async def ensure_ledger(self, _process, ledger) -> None:
        await ledger.ensure_open_ledger()

    async def change_property(self, _process, ledger) -> None:
        if self.chance.random() < 0.5:
            await ledger.set_property("a", str(self.chance.random()))
        else:
            await ledger.cursors["s"].set_cursor_properties({"a": str(self.chance.random())})

    async def add_and_delete(self, process, ledger) -> None:
        await ledger.open_cursor(process.name, "earliest")
        await ledger.delete_cursor(process.name)

    async def terminate(self, process, ledger) -> None:
        self.ending = True
        end = await ledger.terminate()
        if process.wire.cut:
            return
        self.note(f"{process.name} has ended the log at {end}")
        self.end = end
        last = max(self.needed(), default=end)
        if last > end:
            self.fail(f"the log ends at {end} before {last}")

    # faults

    async def disturb(self) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            await asyncio.sleep(self.chance.choice((0.01, 0.1, 1.0, 3.0)) * self.chance.random())
            fault = self.chance.choice(FAULTS)
            self.note(fault.__name__)
            await fault(self)
        await asyncio.sleep(self.chance.uniform(0, 3))

    async def suspend_owner(self) -> None:
        process = self.chance.choice(self.processes)
        process.client.party.pause()
        process.wire.silent_until_s = asyncio.get_running_loop().time() + self.chance.uniform(0, 6)
        await self.some_time()
        if not process.wire.cut:
            process.client.party.resume()

    async def no_fault(self) -> None:
        await self.some_time()


FAULTS = [
    History.no_fault,
    History.crash_bookies,
    History.crash_bookies,
    History.hang_bookie,
    History.make_read_only,
    History.reset_connections,
    History.part,
    History.part,
    History.suspend_owner,
    History.suspend_owner,
    History.lose_metadata,
    History.lose_answers,
    History.forget_fences,
]


def play(seed: int, make=History) -> int:
    """Play one history, ``make(seed)``; return the number of its receipts. Raises ViolationError."""
    loop = VirtualLoop()
    history = None

    async def main() -> int:
        nonlocal history
        history = make(seed)
        return await history.run()

    with structlog.testing.capture_logs() as logs:
        try:
            receipts = loop.run_until_complete(main())
        except (StorageError, TimeoutError) as error:
            history.fail(f"{type(error).__name__} with the faults over: {error}")
        finally:
            histories.end(loop)
    if history.first_violation is not None:
        raise history.first_violation
    for record in logs:
        if record["log_level"] == "error":
            history.fail(f"logged as a bug: {record}")
    if loop.problems:
        history.fail(f"the loop complains: {loop.problems[0]}")
    return receipts


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    print(sum(play(seed) for seed in range(first, first + count)), "receipts held")
