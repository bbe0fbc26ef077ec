"""A world for tests of the delayed index: virtual time, a log in memory, subscriptions, stores that fail.

One asyncio loop is turned by hand: every `await` of the index is a point where a test may do something else, or crash.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import tempfile
from array import array
from types import SimpleNamespace

from pyroaring import BitMap

from magnetar.delayed.bitmap_shelf import BitmapShelf
from magnetar.delayed.bucket_index import BucketDelayIndex
from magnetar.delayed.bucket_settings import BucketSettings
from magnetar.delayed.delay_ports import DelayEnvironment
from magnetar.delayed.delivery_time import DelayPolicy
from magnetar.protocol.runs import EntryFlag, EntryRun
from magnetar.storage.errors import CorruptEntryError, StorageFullError
from magnetar.storage.position import EARLIEST, Position
from tests.twins.memory_ledgers import MemoryLedgerStore
from tests.twins.memory_metadata import MemoryMetadataStore

START_MS = 1_700_000_000_000
FOREVER = 1 << 62
NAME = "public/default/persistent/delayed"


def run_of(times):
    """An EntryRun of entries with these deliver_at times (None: not delayed)."""
    count = len(times)
    flags = [int(EntryFlag.HAS_DELIVER_AT) if t is not None else 0 for t in times]
    any_flags, all_flags = 0, 0xFFFFFFFF
    for flag in flags:
        any_flags |= flag
        all_flags &= flag
    ones = array("q", [1] * count).tobytes()
    deliver_at = array("q", [t or 0 for t in times]).tobytes() if any_flags else None
    return EntryRun(
        1, count, b"x" * count, array("q", range(count + 1)).tobytes(), array("q", range(count)).tobytes(),
        array("q", [0] * count).tobytes(), ones, deliver_at, array("I", flags).tobytes(), any_flags, all_flags, count,
        True,
    )  # fmt: skip


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


class Slab:
    def __init__(self, ledger_id, first, times):
        self.ledger_id, self.first_entry_id = ledger_id, first
        delayed = int(EntryFlag.HAS_DELIVER_AT)
        flags = array("I", [0 if t is None else delayed for t in times])
        self._facts = SimpleNamespace(
            deliver_at=array("q", [t or 0 for t in times]).tobytes(),
            flags=flags.tobytes(),
            any_flags=max(flags, default=0),
        )

    def facts(self):
        return self._facts

    def position(self, k):
        return Position(self.ledger_id, self.first_entry_id + k)


class Log:
    """The log: ledger id -> deliver_at of each entry (None: not delayed)."""

    def __init__(self):
        self.ledgers = {0: []}
        self.unreadable = set()

    @property
    def current(self):
        return max(self.ledgers)

    @property
    def last_confirmed(self):
        full = [k for k, times in self.ledgers.items() if times]
        if full:
            return Position(max(full), len(self.ledgers[max(full)]) - 1)
        return EARLIEST if self.current == 0 else Position(self.current, -1)

    @property
    def first_position(self):
        full = [k for k, times in self.ledgers.items() if times]
        return Position(min(full), 0) if full else None

    def positions(self, after=EARLIEST):
        for ledger_id in sorted(self.ledgers):
            for k in range(len(self.ledgers[ledger_id])):
                if (ledger_id, k) > after:
                    yield Position(ledger_id, k)

    def time(self, position):
        return self.ledgers[position.ledger_id][position.entry_id]

    def entries_between(self, after, up_to):
        return sum(p <= up_to for p in self.positions(after))

    def append(self, times):
        """Returns the piece."""
        ledger = self.ledgers[self.current]
        ledger += times
        return (self.current, len(ledger) - len(times), 0, len(times))

    def roll(self):
        if self.ledgers[self.current]:
            self.ledgers[self.current + 1] = []

    def trim(self, mark_deletes):
        floor = min(mark_deletes, default=EARLIEST)
        for ledger_id in sorted(self.ledgers):
            if ledger_id < self.current and (ledger_id, len(self.ledgers[ledger_id]) - 1) <= floor:
                del self.ledgers[ledger_id]

    def new_read_cursor(self, start):
        return ScanCursor(self, start)


class ScanCursor:
    def __init__(self, log, start):
        self._log, self._next, self.closed = log, start, False

    def read(self, max_entries, _max_bytes, upto=None):
        for position in self._log.positions(self._next.previous()):
            if upto is not None and position > upto:
                break
            self._next = position
            if position in self._log.unreadable:
                raise CorruptEntryError(position, "told so")
            times = self._log.ledgers[position.ledger_id]
            end = min(position.entry_id + min(max_entries, 3), len(times))
            if upto is not None and upto.ledger_id == position.ledger_id:
                end = min(end, upto.entry_id + 1)
            for k in range(position.entry_id + 1, end):
                if (position.ledger_id, k) in self._log.unreadable:
                    end = k
                    break
            slab = Slab(position.ledger_id, position.entry_id, times[position.entry_id : end])
            self._next = Position(position.ledger_id, end)
            return [SimpleNamespace(slab=slab, start=0, end=end - position.entry_id, entries=end - position.entry_id)]
        return []

    def move_to(self, position):
        self._next = position

    def close(self):
        self.closed = True


class Cursor:
    """What the index sees of a subscription's cursor; acknowledgements are durable at once."""

    def __init__(self, log, mark_delete):
        self._log = log
        self.mark_delete = mark_delete
        self.deleted = {}
        self.read_position = mark_delete.next()

    def is_deleted(self, position):
        return position <= self.mark_delete or position.entry_id in self.deleted.get(position.ledger_id, ())

    def deleted_in(self, ledger_id):
        return self.deleted.get(ledger_id)

    def ack_many(self, positions):
        for position in positions:
            if not self.is_deleted(position):
                self.deleted.setdefault(position.ledger_id, BitMap()).add(position.entry_id)
        for position in self._log.positions(self.mark_delete):
            if not self.is_deleted(position):
                break
            self.mark_delete = position
        return 1

    async def flush(self):
        await asyncio.sleep(0)

    def seek(self, position):
        before = [p for p in self._log.positions() if p < position]
        self.mark_delete = before[-1] if before else EARLIEST
        for ledger_id in list(self.deleted):
            if ledger_id > position.ledger_id:
                del self.deleted[ledger_id]
            elif ledger_id == position.ledger_id:
                self.deleted[ledger_id] = BitMap([e for e in self.deleted[ledger_id] if e < position.entry_id])
        self.ack_many(())
        self.read_position = position


class Faults:
    """What the next calls of the stores do: "ok", "before" (it failed), "after" (done, reported as failed)."""

    def __init__(self):
        self.script = []
        self.outage = False
        self.calls = []
        self.crash_at = None

    async def around(self, name, action):
        await asyncio.sleep(0)
        self.calls.append(name)
        if self.crash_at is not None and len(self.calls) - 1 == self.crash_at[0]:
            if self.crash_at[1] == "after":
                await action()
            raise Crash
        outcome = "before" if self.outage else self.script.pop(0) if self.script else "ok"
        if outcome == "before":
            raise StorageFullError("told so")
        result = await action()
        if outcome == "after":
            raise StorageFullError("told so, but it was done")
        return result


class Crash(BaseException):
    """The process ends here."""


class FaultyWriter:
    def __init__(self, writer, faults):
        self._writer, self._faults = writer, faults

    def __getattr__(self, name):
        return getattr(self._writer, name)

    def append(self, slab, done):
        outcome = "before" if self._faults.outage else self._faults.script.pop(0) if self._faults.script else "ok"
        self._faults.calls.append("append")
        crash = self._faults.crash_at
        if crash is not None and len(self._faults.calls) - 1 == crash[0]:
            if crash[1] == "after":
                self._writer.append(slab, lambda _error: None)
            raise Crash
        if outcome == "before":
            asyncio.get_running_loop().call_soon(done, StorageFullError("told so"))
        else:
            self._writer.append(slab, done)

    async def close(self):
        return await self._faults.around("close", self._writer.close)


class FaultyLedgers:
    def __init__(self, store, faults):
        self.store, self._faults = store, faults
        self.max_record_bytes = store.max_record_bytes

    async def create(self, properties=None):
        return FaultyWriter(await self._faults.around("create", lambda: self.store.create(properties)), self._faults)

    async def read(self, *arguments):
        return await self._faults.around("read", lambda: self.store.read(*arguments))

    async def delete(self, ledger_id):
        return await self._faults.around("delete", lambda: self.store.delete(ledger_id))


class FaultyMetadata:
    def __init__(self, store, faults):
        self.store, self._faults = store, faults

    async def get(self, path):
        return await self._faults.around("get", lambda: self.store.get(path))

    async def put(self, path, value, expected_version=None):
        return await self._faults.around("put", lambda: self.store.put(path, value, expected_version))

    async def delete(self, path, expected_version=None):
        return await self._faults.around("forget", lambda: self.store.delete(path, expected_version))


class Subscription:
    """A subscription with one consumer, which may be away; a small dispatcher that does what the real one does."""

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
        """Deliver what can be delivered."""
        if not self.connected:
            return []
        out = []
        if self.view.has_due():
            for position in self.view.take_due(limit):
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
        if time is not None and self.view.offer(time, position):
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
        """What may be delivered: the latest cutoff this process has seen."""
        now = self.clock.now + (0 if self.policy.strict else self.policy.tick_ms)
        self._allowed = max(self._allowed, now if self.policy.active else FOREVER)
        return self._allowed

    def turn(self, times=1):
        self.allowed()
        for _ in range(times):
            self.clock.run_due()
            self.loop.run_until_complete(asyncio.sleep(0))

    def settle(self, limit=3000):
        """Turn until nothing moves at this time."""
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
        """Time goes on, stopping at every timer."""
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
        """Run to its end, timers included."""
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
        environment = DelayEnvironment(
            ledgers=FaultyLedgers(self.ledgers, self.faults),
            metadata=FaultyMetadata(self.metadata, self.faults),
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
        """Everything in memory is gone; what had reached the stores stays."""
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
