"""The read loop of every dispatcher of a persistent topic.

One read is under way at a time. `wake` asks for a turn in a later round of the event loop, however often it is called:
the loops of all subscriptions wait in one queue (`turns.py`). A turn reads and sends while there are permits, at most
TURN_BYTES, then gives way to other work. Reads that the cache answers are done within the turn; a cold read runs in a
task, and its result is dropped when the cursor was rewound meanwhile.

    turn:  next_read() -> the next read, None to stop       (the dispatcher decides)
           reader.read / read_positions                     (cached: at once; cold: later)
           dispatch(spans, read) -> bytes queued            (the dispatcher assigns entries to consumers)
           flush of every consumer with queued entries      (one write per consumer and turn)
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from magnetar.broker.dispatchers.ports import Transformed
from magnetar.broker.dispatchers.sift import Sifted, sift
from magnetar.storage.errors import CorruptEntryError, NoSuchLedgerError, StorageClosedError, StorageError
from magnetar.storage.managed.entry_reader import without

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.ports import DispatchContext, DispatchThrottle, Order, Parked
    from magnetar.storage.interfaces import Timer
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Span

log = structlog.get_logger(__name__)

TURN_BYTES = 512 * 1024
_IDLE_TURN_S = 0.005
_END_WAIT_S, _LONGEST_END_WAIT_S = 15.0, 60.0
"""Wait before the next read at the end of a terminated topic, which notifies consumers that came since."""
_READ_COST_BYTES = 4096  # least cost of a read: otherwise reads without messages would continue without end
_UNSENT_COST_BYTES, _SPAN_COST_BYTES = 128, 256  # of an entry that a read skips or holds back; of a span
_CONSUMER_COST_BYTES = 64
"""Cost of a consumer whose permits a read looks at, where a subscription has many."""


class Read(NamedTuple):
    """The next read: a number of new entries, `positions` to read again, or the spans that memory `held` back."""

    max_entries: int
    positions: list[Position] | None = None
    held: list[Span] | None = None


class Serving(Protocol):
    """The decisions of a subscription type for its read loop."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Connected consumers."""
        ...

    def next_read(self) -> Read | None:
        """Choose the next read; None stops the loop until the next `wake`."""
        ...

    def dispatch(self, spans: list[Span], read: Read) -> int:
        """Queue the entries of a read for consumers; returns the bytes queued."""
        ...

    def receivers(self) -> Iterable[Consumer]:
        """Consumers that may get the entries of the next read."""
        ...

    def park(self, result: Transformed, read: Read) -> None:
        """Try entries that could not be converted again, each after its delay."""
        ...

    def again(self, position: Position) -> None:
        """Read this position again in one of the next turns."""
        ...

    def not_again(self, position: Position) -> None:
        """A parked entry was acknowledged otherwise (skipped, expired): entries behind it are free."""
        ...


class ReadLoop:
    """Reads for one dispatcher. order, delays: of its subscription type."""

    def __init__(self, context: DispatchContext, serving: Serving, order: Order, *, delays: bool) -> None:
        self.context = context
        self.closed = False
        self.paused = False
        """Whether reads pause while SEEK moves the cursor."""
        self.generation = 0
        """Grows when the reads under way, and the entries to be tried again later, are dropped."""
        self.sent_to: dict[Consumer, None] = {}  # in the order of sending: a set has none
        """Consumers with entries queued in this turn."""
        self._serving = serving
        self._order = order
        self._delays = delays
        self._scheduled = False
        self._wakes_wait = self._wake_wanted = self._met_read = False
        self._cold: asyncio.Task[None] | None = None
        self._rewind_after_read = False
        self._backoff_ms = 0
        self._backoff_timer: Timer | None = None
        self._end_wait_s = _END_WAIT_S
        self._end_timer: Timer | None = None
        self._has_told_end = False
        self._throttle_timer: Timer | None = None
        self.waits_for_entries = False
        """The last read of new entries found nothing; the next publish wakes it."""
        self._awaited_entries = 0
        self.has_met_end = False
        """Whether a read found the end of a terminated topic, before any read waited for entries."""
        self._read_entries = context.settings.max_read_entries
        self._read_cost = _READ_COST_BYTES
        self._more_cost = 0

    # --- the loop ------------------------------------------------------------------------------------------------

    def has_members(self, consumers: int) -> None:
        """Note how many consumers each read looks at: thousands make a turn end after fewer reads."""
        self._read_cost = max(_READ_COST_BYTES, _CONSUMER_COST_BYTES * consumers)

    def note_cost(self, size_bytes: int) -> None:
        """Count work of this read beside the bytes that it sends."""
        self._more_cost += size_bytes

    def wake(self) -> None:
        """Schedule a turn: permits, entries, acks or consumers changed."""
        if self._wakes_wait:
            self._wake_wanted = True
        elif not self._scheduled and not self.closed:
            self._scheduled = True
            self.context.turns.wait(self._run)

    def entries_available(self) -> int:
        """Run a turn at once for new entries; return its cost in bytes. Only for callbacks of the event loop that do
        nothing else.
        """
        if self._wakes_wait:
            self._wake_wanted = True
        elif not self._scheduled:
            return self._run()
        return 0

    def hold_wakes(self) -> None:
        """Only note calls of `wake` until `release_wakes`."""
        self._wakes_wait = True

    def release_wakes(self) -> bool:
        """End `hold_wakes`. Return whether `wake` was called meanwhile: the caller then has to call it later."""
        wanted, self._wake_wanted, self._wakes_wait = self._wake_wanted, False, False
        return wanted

    def _run(self) -> int:
        self._scheduled, self._met_read = False, self._cold is not None
        if self.closed or self.paused or self._cold is not None or self._backoff_timer is not None:
            return 0
        try:
            return self._turn()
        finally:
            self._flush()

    def _turn(self) -> int:
        """Read and send until there is nothing more to do, or TURN_BYTES are spent; return the spent bytes."""
        spent = queued = 0
        while spent < TURN_BYTES:
            if self.context.throttle is not None and self._throttled(self.context.throttle):
                return spent
            read = self._serving.next_read()
            if read is None:
                spent, self._more_cost = spent + self._more_cost, 0
                return spent
            try:
                result = self._start(read)
            except StorageError as error:
                self._failed(error)
                return spent
            if type(result) is not list and inspect.isawaitable(result):
                self._cold = self.context.tasks.spawn(self._finish(result, read, self.generation), "dispatch.read")
                return spent
            assert isinstance(result, list | Transformed)
            if self._backoff_ms:
                self._recovered()
            if result == [] and read.positions is None:
                self._found_nothing(read)
                return spent
            spans = result if type(result) is list else self._settled(result, read)
            sent = self._dispatch_counted(spans, read)
            queued += sent
            spent += max(sent, self._read_cost, _SPAN_COST_BYTES * len(spans)) + self._more_cost
            self._more_cost = 0
        if queued:
            self.wake()
        else:  # long stretches of entries without a recipient must not keep the loop busy
            self.context.call_later(_IDLE_TURN_S, self.wake)
        return spent

    def _throttled(self, throttle: DispatchThrottle) -> bool:
        """Whether a dispatch rate is used up; the next turn comes when it is not."""
        if throttle.room() > 0:
            return False
        if self._throttle_timer is None:
            throttle.note_wait()
            self._throttle_timer = self.context.call_later(throttle.wait_s(), self._throttle_over)
        return True

    def _stop_throttle_timer(self) -> None:
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
            self._throttle_timer = None

    def _throttle_over(self) -> None:
        self._throttle_timer = None
        self.wake()

    def _dispatch_counted(self, spans: list[Span], read: Read) -> int:
        throttle = self.context.throttle
        if throttle is None:
            return self._dispatch_learning(spans, read)
        before = self._sent_so_far(entries=throttle.counts_entries)
        sent = self._dispatch_learning(spans, read)
        after = self._sent_so_far(entries=throttle.counts_entries)
        throttle.take(after[0] - before[0], after[1] - before[1])
        return sent

    def _sent_so_far(self, *, entries: bool) -> tuple[int, int]:
        """Messages (or entries) and bytes sent to the present consumers since they joined."""
        count = sum(c.entries_out if entries else c.out.total_messages for c in self._serving.consumers)
        return count, sum(c.out.total_bytes for c in self._serving.consumers)

    def _dispatch_learning(self, spans: list[Span], read: Read) -> int:
        if read.positions is None:
            self.waits_for_entries = False
        queued = self._serving.dispatch(spans, read)
        for consumer in self.sent_to:
            consumer.learn_average()
        return queued

    def _start(self, read: Read) -> list[Span] | Transformed | Awaitable[list[Span] | Transformed]:
        context = self.context
        max_bytes = min(context.settings.max_read_bytes, TURN_BYTES)
        if read.held is not None:
            result: list[Span] | Awaitable[list[Span]] = read.held
        elif read.positions is not None:
            result = context.reader.read_positions(read.positions)
        else:
            skip = None if context.delay is None or not self._delays else context.delay.pending
            wanted = min(read.max_entries, self._read_entries)
            if context.throttle is not None:
                wanted = min(wanted, max(context.throttle.room(), 1))
                max_bytes = min(max_bytes, max(context.throttle.room_bytes(), 1))
            result = context.reader.read(wanted, max_bytes, None, skip)
        if context.transform is None:
            return result
        return self._converted(result) if isinstance(result, list) else self._converted_later(result)

    def _converted(self, spans: list[Span]) -> list[Span] | Transformed | Awaitable[list[Span] | Transformed]:
        """Convert a read; return it as stored when every consumer requested stored entries."""
        transform, flags = self.context.transform, self.context.transform_flags
        if transform is None or not spans:
            return spans
        if flags:
            for span in spans:
                if span.slab.facts().any_flags & flags:
                    break
            else:
                return spans
        for consumer in self._serving.receivers():
            if not consumer.wants_raw:
                return transform(spans, self._order)
        transform.bypass(spans)
        return spans

    async def _converted_later(self, result: Awaitable[list[Span]]) -> list[Span] | Transformed:
        converted = self._converted(await result)
        return converted if isinstance(converted, list | Transformed) else await converted

    def _settled(self, result: list[Span] | Transformed, read: Read) -> list[Span]:
        """Return the spans of a read to send now; acknowledge or park the other entries as the conversion decided."""
        if isinstance(result, list):
            return result
        for position, ack_set in result.cleared:
            self.context.cursor.ack(position, ack_set)
        if result.done:
            self.context.skipped(result.done)
        if result.parked:
            self._serving.park(result, read)
        return result.spans

    def again_later(self, parked: Parked) -> None:
        """Try an entry again after its delay, unless the generation changes before."""
        position, generation = parked.span.first_position, self.generation

        def due() -> None:
            if generation == self.generation and not self.closed:
                if self.context.cursor.is_deleted(position):
                    self._serving.not_again(position)
                else:
                    self._serving.again(position)
                self.wake()

        self.context.call_later(parked.delay_ms / 1000, due)

    async def _finish(self, waiting: Awaitable[list[Span] | Transformed], read: Read, generation: int) -> None:
        """Wait for a cold read or a conversion, then go on where the turn stopped."""
        try:
            result = await waiting
        except StorageError as error:
            self._cold = None
            self._ended_read()
            if not self.closed:
                self._failed(error)
            return
        except BaseException:
            self._cold = None
            raise
        self._cold = None
        self._ended_read()
        if self.closed:
            return
        self._recovered()
        try:
            if generation == self.generation:
                if result != [] or read.positions is not None:
                    spans = self._settled(result, read)
                    if self.context.transform is not None and self.context.reads_log:
                        spans = without(spans, self.context.cursor.is_deleted)  # acknowledged during the conversion
                    self._dispatch_counted(spans, read)
                    self.wake()
                else:
                    self._found_nothing(read)
                    if self._met_read:  # other entries may have come back, or become due, during the read
                        self.wake()
            else:
                self.wake()
        finally:
            self._flush()

    def waiting_read(self) -> Read:
        """The read that waits for entries (``waits_for_entries``), as large as it was at first. As in Apache Pulsar it
        takes the next entries also when redeliveries or a consumer that left have used up the permits since.
        """
        return Read(self._awaited_entries)

    def _found_nothing(self, read: Read) -> None:
        """Note that no entry is left to read. At the end of a terminated topic notify the consumers, then pause the
        notices.
        """
        waited, self.waits_for_entries = self.waits_for_entries, True
        if not waited:
            self._awaited_entries = read.max_entries
        if self._end_timer is None and self.context.ended(self._has_told_end):
            self.has_met_end |= not waited
            self._wait_at_end()

    def topic_ended(self) -> None:
        """Pause the notices after the topic was terminated: waiting consumers have their notice already."""
        if self.waits_for_entries and self._end_timer is None:
            self._wait_at_end()

    def _wait_at_end(self) -> None:
        self._has_told_end = True
        self._end_timer = self.context.call_later(self._end_wait_s, self._end_again)
        self._end_wait_s = min(2 * self._end_wait_s, _LONGEST_END_WAIT_S)

    def _end_again(self) -> None:
        self._end_timer = None
        self.wake()

    def forget_end(self) -> None:
        """Let the next read at the end of the topic notify the consumers again."""
        self._has_told_end = False
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None

    def _ended_read(self) -> None:
        if self._rewind_after_read:
            self._rewind_after_read = False
            self.context.reader.rewind()

    def rewind(self) -> None:
        """Read again from the mark-delete position; drops the current read."""
        self.generation += 1
        self.waits_for_entries = False
        self.context.reader.rewind()
        self._rewind_after_read = self._cold is not None

    def forget_read(self) -> None:
        """Drop the result of the current read (the cursor is being moved elsewhere)."""
        self.generation += 1
        self.waits_for_entries = False
        self._rewind_after_read = False

    async def wait_idle(self) -> None:
        """Return when no read is under way."""
        while self._cold is not None:
            await asyncio.wait({self._cold})

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` at once, or at the end of the read under way."""
        if self._cold is None:
            callback()
        else:
            self._cold.add_done_callback(lambda _: callback())

    # --- failed reads --------------------------------------------------------------------------------------------

    def _failed(self, error: StorageError) -> None:
        """Wait before the next read after an error; a damaged entry, and all entries of a lost ledger, are skipped when
        the settings allow it.
        """
        if isinstance(error, StorageClosedError):
            return
        context = self.context
        if context.settings.skip_damaged_entries and (lost := self._lost(error)):
            context.skipped(lost)
            if all(map(context.cursor.is_deleted, lost)):
                names = {"topic": context.topic_name, "subscription": context.subscription_name}
                log.error("entry.skipped", **names, entries=len(lost), error=str(error))
                self.wake()
                return
        self._read_entries = context.settings.min_read_entries
        initial, longest = context.settings.read_backoff_initial_ms, context.settings.read_backoff_max_ms
        self._backoff_ms = min(self._backoff_ms * 2 or initial, longest)
        log.error(
            "read.failed",
            topic=context.topic_name,
            subscription=context.subscription_name,
            error=str(error),
            retry_ms=self._backoff_ms,
        )
        self._backoff_timer = context.call_later(self._backoff_ms / 1000, self._retry)

    def _lost(self, error: StorageError) -> list[Position]:
        """Return the entries that cannot be read for good after this error."""
        if isinstance(error, NoSuchLedgerError):
            return self.context.cursor.positions_in(error.ledger_id)
        return [error.position] if isinstance(error, CorruptEntryError) else []

    def _retry(self) -> None:
        self._backoff_timer = None
        self.wake()

    def _recovered(self) -> None:
        self._backoff_ms = 0
        if self._read_entries < self.context.settings.max_read_entries:
            self._read_entries = min(self._read_entries * 2, self.context.settings.max_read_entries)

    # --- for the types ----------------------------------------------------------------------------------------

    def sift(self, spans: list[Span], *, delayed: bool) -> Sifted:
        """Return the entries to send; acknowledge markers and unreadable entries. `delayed`: hold delayed entries
        back.
        """
        context = self.context
        sifted = sift(spans, context.delay if delayed else None)
        if sifted.skipped:
            context.skipped(sifted.skipped)
        if unsent := len(sifted.skipped) + len(sifted.held):
            self.note_cost(_UNSENT_COST_BYTES * unsent)
        return sifted

    def _flush(self) -> None:
        if self.sent_to:
            now_ms = self.context.now_ms()
            for consumer in self.sent_to:
                consumer.flush(now_ms)
            self.sent_to.clear()

    def set_settings(self) -> None:
        """The context's settings were replaced, and its throttle may be: a turn follows, whatever the former rate."""
        self._read_entries = self.context.settings.max_read_entries
        self._stop_throttle_timer()
        self.wake()

    def close(self) -> None:
        """End the loop: no further turn runs, and the result of a read under way is dropped (see `wait_idle`).
        Idempotent.
        """
        self.closed = True
        if self._backoff_timer is not None:
            self._backoff_timer.cancel()
            self._backoff_timer = None
        self._stop_throttle_timer()
        self.forget_end()

    def cut_cycles(self) -> None:
        """Forget the dispatcher, once no read is under way after `close`."""
        self.__dict__.pop("_serving", None)


__all__ = ["TURN_BYTES", "Read", "ReadLoop", "Serving"]
