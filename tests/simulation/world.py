"""A simulated world: brokers that live one after another on the same disk, their clients, and their faults.

Everything runs in one process on a virtual clock. All chance comes from the seed, so a seed gives the same history each
time (with the same PYTHONHASHSEED): ``python -m tests.simulation SEED`` replays it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import structlog

from magnetar.broker import broker as broker_module
from magnetar.broker.broker import Broker
from magnetar.broker.network.connection import Connection
from magnetar.broker.network.early_read import EarlyRead
from magnetar.broker.settings import Settings
from magnetar.storage.embedded.engine import EngineEnvironment
from magnetar.storage.embedded.journal.busy_poll import Polled
from magnetar.storage.errors import StorageError
from tests.simulation import checker
from tests.simulation.acks import Acks
from tests.simulation.brim import Brim
from tests.simulation.cancels import Cancels
from tests.simulation.chunked import Chunked
from tests.simulation.clients import (
    FAILOVER,
    WALL_EPOCH_MS,
    Client,
    SimConsumer,
    SimProducer,
    SimReader,
    WanderingReader,
)
from tests.simulation.compacted import CompactedReader, check_compacted
from tests.simulation.damage import DECAYED_FILE, QUIET_S, REPORTS, Damage
from tests.simulation.decay import Decay
from tests.simulation.deletions import Deletions
from tests.simulation.ends import Ends
from tests.simulation.exclusive import Owners
from tests.simulation.faults import Faults
from tests.simulation.fields import Fields
from tests.simulation.history import History, SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.idle import Idle
from tests.simulation.keyed import Keyed
from tests.simulation.lone import Lone, soon_lone
from tests.simulation.network import Link, StreamLink
from tests.simulation.offline import Offline
from tests.simulation.plan import SMALL, TOPICS, Plan
from tests.simulation.portions import Parted
from tests.simulation.quotas import Quotas
from tests.simulation.removals import Removals
from tests.simulation.shapes import Shapes
from tests.simulation.spaces import Spaces
from tests.simulation.threads import SimThreads
from tests.simulation.timers import SimLoop, Timers, WallClock
from tests.simulation.times import Times
from tests.simulation.web import WebPort
from tests.twins.lane_frame_writer import LaneFrameWriter
from tests.twins.sim_files import SimDisk, SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS = {
    "quotas": Quotas,
    "shapes": Shapes,
    "deletions": Deletions,
    "owners": Owners,
    "offline": Offline,
    "spaces": Spaces,
    "portions": Parted,
    "chunks": Chunked,
    "keys": Keyed,
    "ends": Ends,
    "times": Times,
    "acks": Acks,
    "lone": Lone,
    "fields": Fields,
    "cancels": Cancels,
    "idle": Idle,
    "brim": Brim,
    "removals": Removals,
}
CHECK_EVERY_S = 0.5
ACT_EVERY_S = 1.0
"""The average seconds between acts on parts of a history."""
OF_DISK = frozenset({"full_disk", "failing_sync", "crash_in_write", "full_write", "crash_in_compaction"})
"""The faults that may fail a request."""
PATIENCE_S = 400.0
"""Virtual seconds after the last fault in which all receipts and deliveries must arrive."""


def _with_error(_logger: Any, _method: str, entry: Any) -> Any:
    """Keep the exception that is being handled in the log entry."""
    if entry.get("exc_info") is True:
        entry["exc_info"] = sys.exc_info()[1]
    return entry


class World:
    """``run`` plays the seed's history; raises ViolationError when a promise is broken."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.history = History()
        self.timers = Timers()
        self.clock = WallClock(WALL_EPOCH_MS)
        self.disk = SimDisk()
        self.broker: Broker | None = None
        self.threads: SimThreads
        self.web: WebPort | None = None
        self.logs: list[Any] = []
        """Log entries of this life that no check has read yet."""
        self.links: list[Link] = []
        self.faults = Faults(self, self.chance_for("faults"))
        kind = Decay if plan.damage == DECAYED_FILE else Damage
        self.damage = kind(self, self.chance_for("damage"), plan.damage, plan.damage_in)
        self._entropy = self.chance_for("entropy").randbytes
        self.ended_s = 0.0
        """When the last process ended, or its journal failed."""
        self.held_until_s = 0.0
        """When a slow disk continued with the work of that process."""
        self._over: asyncio.Event
        self._journal_failed = False
        self._next_life = ""
        self._crash_of_start = -1
        self._kill_chance = self.chance_for("kills")
        self._wire_chance = self.chance_for("wire")
        self._act_chance = self.chance_for("acts")
        self.producers: list[SimProducer] = []
        self.consumers: list[SimConsumer] = []
        self.wanderers: list[WanderingReader] = []
        self.compacted: list[CompactedReader] = []
        self.parts = [PARTS[name](self) for name in plan.parts]
        self._holds = checker.Holds()

    # --- for clients and faults ------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.timers.now_s

    @property
    def now_ms(self) -> int:
        return WALL_EPOCH_MS + round(self.now_s * 1000)

    def chance_for(self, what: str) -> Random:
        """A random generator for each part, so that an additional draw in a part does not change all others."""
        return Random(f"{self.plan.seed} {what}")

    def note(self, what: str) -> None:
        self.history.note(self.now_s, what)

    def open_link(self, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]) -> Link | None:
        """A connection to the broker; None while there is none."""
        if self.broker is None or self._over.is_set():
            return None
        connection = Connection(self.broker.resources, self.broker.services)
        link = self._linked(Link, connection, on_bytes, on_end)
        if self.plan.reads_early:
            connection.early_read = EarlyRead(connection, connection._buffer, link, link.receive_early).function
        return link

    def open_web_link(self, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]) -> Link | None:
        """A connection to the broker's web port; None while there is no port."""
        if self.broker is None or self.web is None or self.web.closed or self._over.is_set():
            return None
        return self._linked(StreamLink, self.web.connection(), on_bytes, on_end)

    def _linked(
        self, kind: type[Link], connection: Any, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> Link:
        link = kind(connection, self.timers, self._wire_chance, self.plan.latency_s, on_bytes, on_end)
        self.links = [known for known in self.links if not known.is_over]
        self.links.append(link)
        return link

    def refused(self, client: Client, code: int) -> None:
        """The broker refused a client's request."""
        for part in self.parts:
            part.refused(client, code)

    def _act(self) -> None:
        """An administrator acts on a part of the history; the process may end meanwhile."""
        if self.faults.stopped:
            return
        if self.broker is not None and not self._over.is_set():
            part = self._act_chance.choice(self.parts)
            part.act()
            if self._act_chance.random() < 0.3 and part.is_cut_off:
                self.faults.crash_soon(30)
        self.timers.after(self._act_chance.expovariate(1 / ACT_EVERY_S), self._act)

    def readers_of(self, topic: str) -> list[SimReader]:
        """The readers that read the whole topic at the end."""
        return [reader for reader in self._readers if reader.topic.name == topic]

    def end_life(self, how: str) -> None:
        """The broker's process ends now: "crash" or "restart"."""
        if self.broker is not None and not self._over.is_set():
            self.note(how)
            self._next_life = how
            self._over.set()

    # --- the history -----------------------------------------------------------------------------------------------

    def run(self) -> History:
        early = soon_lone() if self.plan.reads_early else contextlib.nullcontext()
        with early, structlog.testing.capture_logs(processors=[_with_error]) as logs:
            self.logs = logs
            self._populate()
            self.faults.start()
            self.timers.after(CHECK_EVERY_S, self._check)
            if self.parts:
                self.timers.after(ACT_EVERY_S, self._act)
            if self.plan.damage:
                self.timers.after(self.plan.damage_s, self.damage.happen)
            self.timers.after(self.plan.seconds + (QUIET_S + 1 if self.plan.damage else 0), self._begin_end)
            while self._live(logs):
                self.damage.process_ended()
                for part in self.parts:
                    part.process_ended()
            for part in self.parts:
                part.over()
        return self.history

    def _populate(self) -> None:
        chance, plan = self.chance_for("population"), self.plan
        for name in TOPICS[: chance.choice([1, 1, 2])]:
            topic = self.history.topics[name] = TopicHistory(name, plan.keeps_all, plan.deduplicates)
            self.producers += [SimProducer(self, f"p{n}", topic) for n in range(plan.producers)]
            types = {}
            for n in range(plan.consumers):
                own = chance.choice(["a", "b"])
                sub_type = types.setdefault(own, chance.randrange(4))
                subscription = topic.subscriptions.setdefault(own, SubscriptionHistory(own))
                self.consumers.append(SimConsumer(self, f"{name[-3:]}-{own}{n}", topic, subscription, sub_type))
            self.wanderers += [
                WanderingReader(self, f"{name[-3:]}-r{n}/{chance.choice(['a', 'b', 'r'])}", topic)
                for n in range(plan.readers)
            ]
            if plan.compacted:
                self.compacted += [
                    CompactedReader(self, f"{name[-3:]}-compacted{n}", topic, slow=n > 0) for n in range(3)
                ]
        for part in self.parts:
            part.populate()
        for client in (*self._clients(), *self.compacted):
            client.start()

    def _clients(self) -> list[Client]:
        return [*self.producers, *self.consumers, *self.wanderers]

    def _live(self, logs: list[Any]) -> bool:
        """One life of the broker, to its end; False when the history is over."""
        loop = SimLoop(self.timers)
        self._next_life = ""
        crashed = False
        self.threads = SimThreads(self.chance_for(f"threads {self.now_s}"), self.plan.pace_s, loop.stop)
        try:
            loop.run_until_complete(self._life(loop))
        except SimulatedCrash:  # in the start's work on the loop
            crashed = True
        except RuntimeError:
            if not self.threads.dead:
                raise
            crashed = True
        if crashed and not self._journal_failed:
            self.ended_s = self.now_s
        self.held_until_s = self.threads.held_until_s
        self._no_problems(loop, logs)
        if self._next_life == "over":
            loop.close()
            return False
        if crashed or self._next_life in ("crash", "failed"):
            self._bury(loop, logs)
        loop.close()
        self.faults.healed_by_start()
        return True

    async def _life(self, loop: SimLoop) -> None:
        self._over = asyncio.Event()
        self.clock.loop = loop
        settings = Settings(data_dir="/data", broker_service_port=None, web_service_port=None, **self.plan.settings)
        environment = EngineEnvironment(self.disk, self.clock, self.threads, loop, self._entropy)
        if self.plan.seed % 4 or self.plan.reads_early:
            environment.frame_writer = lambda: LaneFrameWriter(self.threads, self.plan.frame_pace_s)
        if self.plan.reads_early:
            environment.poll = lambda: lambda _seconds: Polled.NOTHING
        broker = Broker(settings, environment)
        self.damage.process_begins()
        self._journal_failed = False
        try:
            with mock.patch.object(broker_module, "engine_settings", return_value=SMALL):
                await broker.start()
        except (StorageError, OSError) as error:  # no room to recover: the process ends and is started again
            self.note(f"start-failed {type(error).__name__}")
            self._next_life = "failed"
            self.damage.start_failed(error)
            await asyncio.sleep(1)
            return
        self.web = await WebPort.open(broker)
        if self.disk.crash_at == self._crash_of_start:
            self.disk.crash_at = -1  # the power fails in a start only
        self._crash_of_start = -1
        self.broker = broker
        broker.stored.stores.health.on_failure(self._storage_failed)
        self.note("started")
        for part in self.parts:
            part.process_begins(broker)
        stopped = loop.create_task(broker.wait_stopped(), name="world")
        over = loop.create_task(self._over.wait(), name="world")
        await asyncio.wait({stopped, over}, return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            self.note(f"exit {stopped.result()}")
            self._next_life = "failed"
        elif self._next_life != "crash":
            await broker.stop()
            await stopped
            for part in self.parts:
                part.stopped()
        self.broker = None
        if not self._journal_failed:
            self.ended_s = self.now_s
        over.cancel()
        await asyncio.sleep(
            PATIENCE_S / 10 if self._next_life in ("over", "restart") else 0
        )  # remaining work ends by itself
        await self.web.give_up()
        await asyncio.wait({over})
        if self._next_life in ("over", "restart"):
            checker.check_stopped(loop, broker, {link.connection for link in self.links if link.stuck})
        for link in self.links:
            if not link.is_over:
                link.process_gone()

    def _storage_failed(self, error: StorageError) -> None:
        """Note the time when the journal failed: it writes no more frames, however long the process takes to end."""
        if str(error).startswith("journal"):
            self._journal_failed, self.ended_s = True, self.now_s

    def _bury(self, loop: SimLoop, logs: list[Any]) -> None:
        """End the process at its present point; the next process finds the surviving bytes of the disk."""
        count = len(logs)
        self.broker = None
        self.threads.dead = True
        for link in self.links:
            if not link.is_over:
                link.process_gone()
        chance = self.chance_for(f"crash {self.now_s}")
        disk = self.disk
        if self.plan.kills and self._kill_chance.random() < 0.4:
            self._kill(self._kill_chance)
        else:
            mode = chance.choice(["nothing", "everything", "some", "some"])
            self.disk = disk.after_crash(mode, chance.randrange(1 << 30))
        self.disk.capacity_bytes, self.disk.bad_writes = disk.capacity_bytes, disk.bad_writes
        disk.crashed, disk.crash_at, disk.fail_sync_at, disk.full_at = False, -1, -1, -1
        for _ in range(20):
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False
        loop.problems.clear()
        del logs[count:]

    def _kill(self, chance: Random) -> None:
        """End the process alone: the machine still has the unsynced bytes, which a power loss in the next start may
        take.
        """
        self.disk = self.disk.after_kill()
        if not self.faults.stopped and chance.random() < 0.7:
            self.disk.crash_at = self._crash_of_start = chance.randrange(40)

    # --- checks ----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.broker is not None and not self._over.is_set():
            for part in self.parts:
                part.check(self.broker)
            checker.check_running(self.broker, self.history.topics, self.damage)
            self._holds.check(self.broker, self.now_s)
        self.timers.after(CHECK_EVERY_S, self._check)

    @property
    def explains_failures(self) -> bool:
        """Whether a failed request is no violation: the disk may have had faults, or the broker is stopping."""
        fills_disk = "brim" in self.plan.parts
        return self.damage.done or self._over.is_set() or fills_disk or bool(OF_DISK & set(self.plan.faults))

    def _no_problems(self, loop: SimLoop, logs: list[Any]) -> None:
        """Check that every failure has a storage error as its cause: any other exception is a bug."""
        if self.web is not None and self.web.failed is not None:
            raise self.web.failed
        problems = [p for p in loop.problems if not isinstance(p.get("exception"), SimulatedCrash)]
        if problems:
            raise ViolationError(f"unhandled: {problems[0]}") from problems[0].get("exception")
        self.damage.look_for_reports(logs)
        excused = self.faults.excused | (REPORTS if self.damage.done else frozenset())
        if "failing_sync" in self.plan.faults:
            excused |= {"read.failed"}
        if self.damage.done or OF_DISK & set(self.plan.faults) or "brim" in self.plan.parts:
            # A broker that stops beside a failed or full disk cannot save acknowledgements.
            excused |= {"broker.acks_not_saved"}
        for entry in logs:
            if entry["log_level"] in ("error", "critical") and entry["event"] not in excused:
                error = entry.get("exc_info")
                cause = error if isinstance(error, BaseException) else None
                if not isinstance(cause, StorageError):
                    raise ViolationError(f"logged: {entry}") from cause
        logs.clear()

    # --- the end ---------------------------------------------------------------------------------------------------

    def _begin_end(self) -> None:
        """End all faults and new messages, and set the time until which all receipts must arrive."""
        self.note("calm")
        self.faults.stop()
        self.disk.bad_writes = None
        for producer in self.producers:
            producer.finish()
        for part in self.parts:
            part.calm()
        self._deadline_s = self.now_s + PATIENCE_S
        self._when(self._have_receipts, self._drain, "receipts")

    def _have_receipts(self) -> bool:
        return not any(producer.pending for producer in self.producers)

    def _when(self, condition: Callable[[], bool], then: Callable[[], None], what: str) -> None:
        if condition():
            then()
        elif self.now_s > self._deadline_s:
            raise ViolationError(f"{what} did not come in {PATIENCE_S} seconds without faults")
        else:
            self.timers.after(0.25, lambda: self._when(condition, then, what))

    def _drain(self) -> None:
        """New consumers take the remaining messages of the subscriptions, and readers read all messages."""
        self.note("drain")
        for client in self._clients():
            client.stop()
        self._takers: list[SimConsumer] = []
        self._readers: list[SimReader] = []
        for topic in self.history.topics.values():
            self._readers.append(SimReader(self, f"all-{topic.name[-3:]}", topic))
            for subscription in topic.subscriptions.values():
                if subscription.exists:
                    taker = SimConsumer(
                        self, f"last-{topic.name[-3:]}-{subscription.name}", topic, subscription, FAILOVER
                    )
                    taker.acknowledges = 0.0 if self.plan.seed % 2 else 1.0
                    taker.permits = 100_000
                    taker.gives_back = False
                    self._takers.append(taker)
        self.timers.after(20, self._take)

    def _take(self) -> None:
        for late in [
            CompactedReader(self, f"{each.name}-late", each.topic, slow=False) for each in self.compacted[::3]
        ]:
            late.start()
            self.compacted.append(late)
        for reader in self.compacted:
            reader.hurry()
        for client in (*self._takers, *self._readers):
            client.start()
        for part in self.parts:
            part.take()
        self._quiet_since_s, self._taken = self.now_s, -1
        self._when(self._is_quiet, self._compare, "messages")

    def _is_quiet(self) -> bool:
        readers = (*self._readers, *self.compacted)
        taken = sum(len(t.taken) for t in self._takers) + sum(len(r.found) for r in readers)
        if taken != self._taken or not all(c.ready for c in (*self._takers, *readers)):
            self._taken, self._quiet_since_s = taken, self.now_s
        return self.now_s - self._quiet_since_s > 5 and all(part.is_quiet() for part in self.parts)

    def _compare(self) -> None:
        for reader in self._readers:
            checker.check_readable(reader.topic, reader, self.damage)
        for compacted in self.compacted:
            check_compacted(compacted.topic, compacted)
        for taker in self._takers:
            checker.check_drained(taker.topic, taker.subscription, set(taker.taken), self.damage)
        for part in self.parts:
            part.compare()
        for client in (*self._takers, *self._readers, *self.compacted):
            client.stop()
        self.timers.after(1, lambda: self.end_life("over"))
