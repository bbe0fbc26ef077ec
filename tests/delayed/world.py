"""A world for tests of the delayed index: virtual time, a log in memory, subscriptions, stores that fail.

One asyncio loop is turned by hand: every `await` of the index is a point where a test may do other work, or crash.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import tempfile
from types import SimpleNamespace

from magnetar.delayed.bitmap_shelf import BitmapShelf
from magnetar.delayed.bucket_index import BucketDelayIndex
from magnetar.delayed.delay_ports import DelayEnvironment
from magnetar.delayed.delay_settings import BucketSettings, DelayPolicy
from magnetar.storage.position import EARLIEST, Position
from tests.delayed.world_faults import Crash, Faults, FaultyLedgers, FaultyMetadata
from tests.delayed.world_log import Cursor, Log, run_of
from tests.twins.memory_ledgers import MemoryLedgerStore
from tests.twins.memory_metadata import MemoryMetadataStore

START_MS = 1_700_000_000_000


FOREVER = 1 << 63


NAME = "public/default/persistent/delayed"


class Clock:
    """Wall clock and timers."""

    def __init__(self):
        self.now = START_MS
        self._timers = []
        self._order = itertools.count()

    def now_ms(self):
        return self.now

    def call_later(self, delay_s, callback):
        timer = SimpleNamespace(cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        heapq.heappush(self._timers, (self.now + delay_s * 1000, next(self._order), timer, callback))
        return timer

    def run_due(self):
        ran = False
        while self._timers and (self._timers[0][0] <= self.now or self._timers[0][2].cancelled):
            _, _, timer, callback = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.cancelled = True
                callback()
                ran = True
        return ran

    @property
    def next_timer(self):
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def forget(self):
        self._timers.clear()


class Subscription:
    """A subscription with one consumer, which may be disconnected, and a small model of the real dispatcher."""

    def __init__(self, world, name, mark_delete):
        self.world, self.name = world, name
        self.cursor = Cursor(world.log, mark_delete)
        self.connected = True
        self.outstanding = {}
        self.got = set()
        self.twice = []
        self.early = []
        self.woken = 0
        self.attach()

    def attach(self):
        self.view = self.world.index.view(self.name, self.cursor, self._wake)

    def _wake(self):
        self.woken += 1

    def rewind(self):
        self.cursor.read_position = self.cursor.mark_delete.next()
        self.outstanding.clear()
        self.view.clear()

    def disconnect(self):
        self.connected = False
        self.outstanding.clear()
        self.view.clear()

    def connect(self):
        self.connected = True
        self.rewind()

    def seek(self, position):
        self.disconnect()
        self.cursor.seek(position)
        self.view.clear()
        self.connected = True

    def poll(self, limit=1000):
        """Deliver all deliverable entries."""
        if not self.connected:
            return []
        out = []
        if self.view.has_due():
            for position in self.view.take_due(limit):
                if self.view.may_repeat and position in self.outstanding:
                    continue
                if not self.cursor.is_deleted(position) and position.ledger_id in self.world.log.ledgers:
                    self._judge(position, out)
        while len(out) < limit and (position := self._next()) is not None:
            self.cursor.read_position = position.next()
            self._judge(position, out)
        return out

    def _next(self):
        start = max(self.cursor.read_position, self.cursor.mark_delete.next())
        for position in self.world.log.positions(start.previous()):
            skip = self.view.pending(position.ledger_id)
            if self.cursor.is_deleted(position) or (skip is not None and position.entry_id in skip):
                continue
            return position
        end = self.world.log.last_confirmed.next()
        if end > self.cursor.read_position and end.ledger_id in self.world.log.ledgers:
            self.cursor.read_position = end
        return None

    def _judge(self, position, out):
        time = self.world.log.time(position)
        if time is not None and position.entry_id in self.view.offer(position.ledger_id, [(position.entry_id, time)]):
            return
        if time is not None and time > self.world.allowed():
            self.early.append((position, time))
        if position in self.outstanding:
            self.twice.append(position)
        self.outstanding[position] = True
        self.got.add(position)
        out.append(position)

    def ack(self, positions):
        for position in positions:
            self.outstanding.pop(position, None)
        self.cursor.ack_many(positions)


class World:
    """One topic with its index, over stores that outlive it."""

    def __init__(self, policy=None, *, bitmap_bytes=None, **settings):
        """``bitmap_bytes``: the budget for bitmaps; None: all stay in memory."""
        self.bitmap_bytes = bitmap_bytes
        self.shelf = None
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.log = Log()
        self.ledgers = MemoryLedgerStore(cached=False, first_ledger_id=1000)
        self.metadata = MemoryMetadataStore()
        self.policy = policy or DelayPolicy(tick_ms=1000, strict=True)
        self.settings = BucketSettings(
            **{"min_index_count": 8, "max_segment_indexes": 3, "slice_indexes": 4} | settings
        )
        self.subscriptions = {}
        self.index = None
        self.tasks = set()
        self.problems = []
        self._allowed = 0
        self.start()

    # --- time and turns ---

    def allowed(self):
        """The latest cutoff of this process: the index may deliver entries with times up to it."""
        self._allowed = max(self._allowed, self.cutoff())
        return self._allowed

    def cutoff(self):
        """The cutoff now: the index has to deliver all entries with times up to it."""
        now = self.clock.now + (0 if self.policy.strict else self.policy.tick_ms)
        return now if self.policy.active else FOREVER

    def turn(self, times=1):
        self.allowed()
        for _ in range(times):
            self.clock.run_due()
            self.loop.run_until_complete(asyncio.sleep(0))

    def settle(self, limit=3000):
        """Turn the loop until no timer is due and no call of the stores is made."""
        for _ in range(limit):
            before = len(self.faults.calls)
            ran = self.clock.run_due()
            self.loop.run_until_complete(_turns(6))
            if not ran and before == len(self.faults.calls):
                self.loop.run_until_complete(_turns(30))
                if not self.clock.run_due() and before == len(self.faults.calls):
                    return
        raise AssertionError("it never comes to rest")

    def advance(self, ms, *, poll=True):
        """Move time ahead, and settle at every timer."""
        end = self.clock.now + ms
        self.settle()
        for _ in range(5000):
            following = self.clock.next_timer
            if following is None or following > end:
                break
            self.clock.now = max(self.clock.now, int(following + 0.999))
            self.settle()
        else:
            raise AssertionError("timers without end")
        self.clock.now = end
        self.settle()
        if poll:
            self.poll()

    def run(self, coroutine):
        """Run the coroutine to its end, with the timers that it needs."""
        task = self.loop.create_task(coroutine)
        for _ in range(5000):
            if task.done():
                return task.result()
            self.turn()
            if not task.done() and (following := self.clock.next_timer) is not None:
                self.loop.run_until_complete(_turns(20))
                if not task.done() and following > self.clock.now and self.faults.outage:
                    self.clock.now = int(following + 0.999)
        raise AssertionError("it never ends")

    # --- the process ---

    def start(self, *, turn=True):
        self.faults = Faults()
        self._allowed = 0
        if self.shelf is not None:
            self.shelf.close()
        if self.bitmap_bytes is not None:
            self.shelf = BitmapShelf(self.bitmap_bytes, tempfile.TemporaryFile)
        self.log.records = FaultyMetadata(self.metadata, self.faults)
        environment = DelayEnvironment(
            ledgers=FaultyLedgers(self.ledgers, self.faults),
            now_ms=self.clock.now_ms,
            call_later=self.clock.call_later,
            spawn=self._spawn,
            off_loop=_off_loop,
            shelf=self.shelf,
        )
        self.index = BucketDelayIndex(NAME, self.log, self.policy, self.settings, environment)
        self.run(self.index.open())
        for subscription in self.subscriptions.values():
            subscription.attach()
            subscription.rewind()
        if turn:
            self.settle()

    def _spawn(self, work, _name):
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task):
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), Crash):
            self.problems.append(task.exception())

    def crash(self):
        """Lose all memory; the content of the stores stays."""
        self.clock.forget()
        for task in list(self.tasks):
            task.cancel()
        self.loop.run_until_complete(_turns(10))
        self.clock.forget()
        self.tasks.clear()

    def restart(self):
        self.crash()
        self.start()

    def unload(self):
        self.run(self.index.close())
        self.crash()
        self.start()

    def close(self):
        self.crash()
        if self.shelf is not None:
            self.shelf.close()
        self.loop.close()

    # --- the topic ---

    def publish(self, *delays):
        """Entries with these delays in ms (None: not delayed); their positions."""
        times = [None if d is None else min(self.clock.now + d, (1 << 63) - 1) for d in delays]
        piece = self.log.append(times)
        run = run_of(times)
        if run.deliver_at is not None:
            self.index.published(run, [piece])
        return [Position(piece[0], piece[1] + k) for k in range(len(times))]

    def subscribe(self, name, mark_delete=EARLIEST):
        subscription = self.subscriptions[name] = Subscription(self, name, mark_delete)
        return subscription

    def unsubscribe(self, name):
        del self.subscriptions[name]
        self.index.remove_view(name)

    def poll(self):
        return {name: subscription.poll() for name, subscription in self.subscriptions.items()}

    def set_policy(self, **changes):
        values = {"active": self.policy.active, "tick_ms": self.policy.tick_ms, "strict": self.policy.strict} | changes
        self.allowed()
        self.policy = DelayPolicy(**values)
        self.index.set_policy(self.policy)
        self.allowed()

    # --- looking inside ---

    @property
    def firing(self):
        return self.index._firing

    @property
    def buckets(self):
        return self.firing.buckets

    def stored(self):
        """Ids of ledgers in the store that hold anything."""
        return {k for k, writer in self.ledgers._ledgers.items() if writer.last_add_confirmed >= 0}


async def _turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def _off_loop(work):
    await asyncio.sleep(0)
    return work()
