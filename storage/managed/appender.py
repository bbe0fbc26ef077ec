r"""The writing end of a managed ledger: stamps runs, rolls ledgers, keeps order, survives failed appends.

Theory of operation::

            append ---> current ledger ---(done, in order)---> confirmed -> callbacks, listeners
                 \                                       ^
                  waiting (no ledger, or it is full) ---/ as soon as the next ledger is there

- ``pending`` holds every run whose callback has not been called, in order; callbacks are called from its head only.
- ``LedgerSwitch`` creates the successor of a nearly full ledger in the background and puts it into the stored list. The
  appender pushes no entry to a full ledger. When all entries of the full ledger are confirmed, the successor becomes
  the current ledger: so no entry is confirmed before all entries of the ledgers before it. ``LedgerSwitch`` seals the
  old ledger in the background.
- Before the first append a managed ledger has no open ledger and no timer.
- A failed append fails every run behind it. Then the state is WRITE_FAILED until ``resume``: the appender refuses
  appends at once. The broker index returns to that of the last confirmed entry. Before the next append the switch
  recovers the failed ledger. Entries that were reported as failed and exist after all stay in the log, with their
  index; the appender then takes no more appends, and the managed ledger has to be opened anew.

Source: Pulsar ManagedLedgerImpl / OpAddEntry, as described in docs/adr/0002-managed-ledger.md.
"""

from __future__ import annotations

import sys
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

import structlog

from magnetar.storage import events
from magnetar.storage.empty_queue import NO_ITEMS
from magnetar.storage.errors import (
    EntryTooLargeError,
    ManagedLedgerClosedError,
    ManagedLedgerFencedError,
    ManagedLedgerOutdatedError,
    ManagedLedgerTerminatedError,
    StorageError,
    WriteFailedError,
)
from magnetar.storage.managed.append_result import AppendPiece, AppendResult, PendingAppend
from magnetar.storage.managed.entry_interception import Stamping, stamp_with
from magnetar.storage.managed.roll_policy import (
    HARD_MAX_ENTRIES,
    bytes_of_room,
    entries_of_room,
    is_full,
    is_nearly_full,
    stretched,
    young_ms,
)
from magnetar.storage.slab import RECORD_HEADER_BYTES, Slab, slab_of_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.protocol.runs import EntryRun
    from magnetar.storage.interfaces import LedgerInfo, LedgerWriter
    from magnetar.storage.managed.append_result import RunNotice
    from magnetar.storage.managed.config import ManagedLedgerConfig
    from magnetar.storage.managed.environment import StorageEnv
    from magnetar.storage.managed.ledger_list import LedgerList
    from magnetar.storage.managed.ledger_map import LedgerSlot
    from magnetar.storage.managed.log_counters import LogCounters

__all__ = ["AppendState", "Appender", "OpenLedger"]

log = structlog.get_logger(__name__)

_SIGN_BYTE = 7 if sys.byteorder == "little" else 0
_PREFIX_BYTES = 32
"""An upper bound of the bytes of a broker entry metadata: magic, size, timestamp and index."""


class AppendState(Enum):
    """Whether the managed ledger takes appends."""

    OPEN = auto()
    WRITE_FAILED = auto()
    TERMINATED = auto()
    FENCED = auto()
    CLOSED = auto()


class OpenLedger:
    """The current ledger; ``entries`` and ``size_bytes`` count all pushed entries."""

    __slots__ = (
        "check_bytes",
        "check_entries",
        "created_s",
        "entries",
        "pending",
        "size_bytes",
        "slot",
        "writer",
        "young_until_s",
    )

    def __init__(self, writer: LedgerWriter, slot: LedgerSlot, created_s: float) -> None:
        self.writer = writer
        self.slot = slot
        self.created_s = created_s
        self.entries = 0
        self.size_bytes = 0
        self.pending = 0
        """The number of pushed pieces that the writer has not reported on."""
        self.check_entries = 0
        """While ``entries`` and ``size_bytes`` are below both marks the ledger cannot be full, and the check is
        skipped.
        """
        self.check_bytes = 0
        self.young_until_s = 0.0
        """Until this time the ledger stays open above both marks, up to HARD_MAX_ENTRIES."""

    def set_marks(self, config: ManagedLedgerConfig) -> None:
        self.check_entries = config.max_entries_per_ledger * 4 // 5
        self.check_bytes = config.max_size_per_ledger_bytes * 4 // 5
        self.young_until_s = self.created_s + young_ms(config) / 1000


class LedgerSupply(Protocol):
    """The port through which the appender gets ledgers. ``LedgerSwitch`` implements it and waits in the background."""

    env: StorageEnv
    ledger_list: LedgerList

    def prepare(self) -> None:
        """Runs wait and there is no current ledger: provide a ledger through ``Appender.adopt``, now or later."""
        ...

    def prepare_ahead(self) -> None:
        """The current ledger is nearly full: create the next ledger."""
        ...

    def drained(self, old: OpenLedger) -> None:
        """All entries of the full ledger are confirmed."""
        ...

    def failed(self, old: OpenLedger) -> None:
        """An append to this ledger failed, and the writer has reported on all its appends."""
        ...

    def idle(self) -> None:
        """No append is pending."""
        ...


class Appender:
    """The module docstring describes it. All its code is synchronous; ``LedgerSwitch`` has the code that waits."""

    def __init__(
        self, name: str, switch: LedgerSupply, config: ManagedLedgerConfig, index: int, counters: LogCounters
    ) -> None:
        self.name = name
        self.state = AppendState.OPEN
        self.config = config
        self.current: OpenLedger | None = None
        self.is_draining = False
        """The current ledger is full and its last entries are not confirmed yet."""
        self.waiting: deque[PendingAppend] = NO_ITEMS
        self.pending: deque[PendingAppend] = NO_ITEMS
        self.entries_added = 0
        self.listeners: list[Callable[[], None]] = []
        self.confirmed_index = index
        """Broker index of the last confirmed entry with an index; -1 at first."""
        self._index = index
        self._switch = switch
        self.counters = counters
        self._env = switch.env
        self._ledgers = switch.ledger_list.ledgers
        self._largest_bytes = 0
        self._set_largest()
        self._notifying = False
        self._reporting = False

    # -- appending ---

    def append(self, run: EntryRun, done: Callable[[AppendResult], None], notice: RunNotice | None = None) -> None:
        """See ``ManagedLedger.append``."""
        op = PendingAppend(self, run, done, notice)
        if self.pending is NO_ITEMS:
            self.pending = deque()
        self.pending.append(op)
        current = self.current
        if (
            current is not None
            and self.state is AppendState.OPEN
            and not self.waiting
            and not self.is_draining
            and run.size_bytes <= self._largest_bytes
            and (
                (
                    current.entries + run.count < current.check_entries
                    and current.size_bytes + run.size_bytes < current.check_bytes
                )
                or self._is_young(current, run.count)
            )
        ):
            self._push(op, run.count, current)
            return
        error = self._refusal(run)
        if error is not None:
            op.error = error
            self._env.scheduler.call_soon(self._report)
            return
        if self.waiting is NO_ITEMS:
            self.waiting = deque()
        self.waiting.append(op)
        self.pump()

    def _is_young(self, current: OpenLedger, more: int) -> bool:
        """Whether the ledger is open for some time yet, with so many more entries and whatever its size."""
        return current.entries + more < HARD_MAX_ENTRIES and self._env.clock.now_s() < current.young_until_s

    def pump(self) -> None:
        """Push the waiting runs, as far as the current ledger takes them."""
        while self.waiting:
            current = self.current
            if current is None:
                self._switch.prepare()
                return
            if self.is_draining:
                return
            op = self.waiting[0]
            if op.next < op.run.count:
                self._push_with_care(op, current)
            if op.next == op.run.count:
                self.waiting.popleft()
        self.waiting = NO_ITEMS

    def _push(self, op: PendingAppend, end: int, current: OpenLedger) -> None:
        """The hot path: one stamp and one append."""
        run, start, first, config = op.run, op.next, current.entries, self.config
        ledger_id = current.writer.ledger_id
        proof = current.writer.record_proof
        timestamp_ms = self._env.clock.now_ms() if config.entry_timestamp else -1
        index = self._index if config.entry_index else -2
        if config.entry_metadata is None:
            slab = slab_of_run(run, start, end, ledger_id, first, proof, timestamp_ms, index)
        else:
            stamping = Stamping(timestamp_ms, index)
            data, offsets = stamp_with(
                config.entry_metadata, self.name, run, start, end, ledger_id, first, proof, stamping
            )
            slab = Slab(ledger_id, first, data, offsets)
        if config.entry_index:
            self._index += run.total_messages if run.count == 1 else _messages(run, start, end)
        op.pieces.append(AppendPiece(ledger_id, first, start, end))
        op.next = end
        op.indexes.append(self._index)
        current.entries += end - start
        current.size_bytes += slab.size_bytes
        current.pending += 1
        current.writer.append(slab, op)

    def _push_with_care(self, op: PendingAppend, current: OpenLedger) -> None:
        """Push the entries that fit into a ledger near a limit. Have the next ledger created when the current ledger is
        nearly full, and switch when it is full.
        """
        run, start = op.run, op.next
        config = self.config if self._env.may_roll() else stretched(self.config)
        age_ms = (self._env.clock.now_s() - current.created_s) * 1000
        end = min(run.count, start + entries_of_room(current.entries, age_ms, config))
        if end > start:
            end = self._cut_at_size(run, start, end, bytes_of_room(current.size_bytes, age_ms, config))
            self._push(op, end, current)
        if is_full(current.entries, current.size_bytes, age_ms, config):
            self.roll()
        elif is_nearly_full(current.entries, current.size_bytes, age_ms, config):
            self._switch.prepare_ahead()

    @staticmethod
    def _cut_at_size(run: EntryRun, start: int, end: int, room: int) -> int:
        """Return the end of the entries to push: the last of them is the entry with which the ledger reaches its
        size.
        """
        if run.size_bytes + (end - start) * (RECORD_HEADER_BYTES + _PREFIX_BYTES) < room:
            return end
        offsets = memoryview(run.offsets).cast("q")
        size = 0
        for k in range(start, end):
            size += offsets[k + 1] - offsets[k] - run.gap + RECORD_HEADER_BYTES
            if size >= room:
                return k + 1
        return end

    def _refusal(self, run: EntryRun) -> StorageError | None:
        if self.state is not AppendState.OPEN:
            return self.state_error()
        if run.size_bytes > self._largest_bytes:
            largest = run.largest_entry_bytes()
            if largest > self._largest_bytes:
                return EntryTooLargeError(self._ledgers.last_confirmed.ledger_id, -1, largest, self._largest_bytes)
        return None

    def state_error(self) -> StorageError:
        """Return the error with which the appender refuses appends in its state."""
        if self.state is AppendState.TERMINATED:
            return ManagedLedgerTerminatedError(self.name)
        if self.state is AppendState.FENCED:
            return ManagedLedgerFencedError(self.name)
        if self.state is AppendState.WRITE_FAILED:
            return WriteFailedError(self.name)
        return ManagedLedgerClosedError(self.name)

    # -- reports of the ledger writer ---

    def piece_confirmed(self, piece: AppendPiece, index: int) -> None:
        """Record that the entries of a piece are on disk and readable."""
        current = self.current
        if current is None or current.slot.ledger_id != piece.ledger_id:
            raise AssertionError(f"confirmation of ledger {piece.ledger_id}, which is not the current one")
        added = piece.end - piece.start
        current.pending -= 1
        current.slot.size_bytes = current.writer.length_bytes
        self._ledgers.confirm(current.slot, piece.first_entry_id + added - 1)
        self.entries_added += added
        self.confirmed_index = index
        if not self._notifying and self.listeners:
            self._wake_listeners()
        self._report()
        if self.is_draining or self.state is AppendState.WRITE_FAILED:
            self._after_report(current)

    def piece_failed(self, error: StorageError) -> None:
        """Record that the oldest pending piece failed; all appends behind it fail as well."""
        current = self.current
        if current is not None:
            current.pending -= 1
        if self.state is AppendState.OPEN:
            log.warning(events.APPEND_FAILED, managed_ledger=self.name, error=str(error))
            self.state = AppendState.WRITE_FAILED
        self.fail_waiting(error)
        self._report()
        if current is not None:
            self._after_report(current)

    def fail_waiting(self, error: StorageError) -> None:
        """Fail every run that waits for a ledger, in order."""
        for op in self.waiting:
            op.error = op.error or error
        self.waiting = NO_ITEMS
        self._env.scheduler.call_soon(self._report)

    def _after_report(self, current: OpenLedger) -> None:
        if current.pending or self.current is not current:
            return
        if self.state is AppendState.WRITE_FAILED:
            self._index = self.confirmed_index
            self.release_current()
            self._switch.failed(current)
        elif self.is_draining:
            self.release_current()
            self._switch.drained(current)

    def _report(self) -> None:
        """Call the callbacks of finished runs, in order."""
        if self._reporting:
            return
        self._reporting = True
        pending = self.pending
        try:
            while pending:
                op = pending[0]
                if op.confirmed != len(op.pieces) or (op.error is None and op.next != op.run.count):
                    break  # the run has no result yet
                pending.popleft()
                if op.error is not None:
                    self.counters.failed_appends += op.run.count - op.written
                op.done(AppendResult(op.run, op.pieces, op.error))
        finally:
            self._reporting = False
        if not pending:
            self.pending = NO_ITEMS
            self._switch.idle()

    def _wake_listeners(self) -> None:
        self._notifying = True
        self._env.scheduler.call_soon(self._notify)

    def _notify(self) -> None:
        self._notifying = False
        for listener in self.listeners:
            listener()

    # -- ledgers ---

    def adopt(self, writer: LedgerWriter, slot: LedgerSlot) -> None:
        """Make this new ledger, which the stored list names, the current ledger and push the waiting runs."""
        self.current = OpenLedger(writer, slot, self._env.clock.now_s())
        self.current.set_marks(self.config)
        self.pump()

    def recovered(self, slot: LedgerSlot, info: LedgerInfo, index: int) -> None:
        """The switch has sealed a ledger with failed appends. Add the entries that exist although they were reported as
        failed, and then refuse appends: clients send these entries again, and only after a new opening deduplication
        knows them.
        """
        slot.size_bytes = info.length_bytes
        if info.last_entry_id + 1 > slot.entries:
            self._ledgers.confirm(slot, info.last_entry_id)
            self._index = self.confirmed_index = max(index, self.confirmed_index)
            self._wake_listeners()
            self.fence(ManagedLedgerOutdatedError(self.name))

    def roll(self) -> None:
        """Push no more entries to the current ledger; the next append goes to another ledger. No-op without a
        ledger.
        """
        current = self.current
        if current is None or self.is_draining:
            return
        self.is_draining = True
        if not current.pending:
            self._env.scheduler.call_soon(lambda: self._after_report(current))

    def release_current(self) -> None:
        self.current, self.is_draining = None, False

    def fence(self, error: ManagedLedgerFencedError | None = None) -> None:
        """Refuse appends from now on and fail the waiting runs, by default because another owner has the managed
        ledger.
        """
        if self.state is AppendState.OPEN:
            self.state = AppendState.FENCED
            self.fail_waiting(error or self.state_error())

    def _set_largest(self) -> None:
        source = self.config.entry_metadata
        prefix_bytes = _PREFIX_BYTES if source is None else max(_PREFIX_BYTES, source.max_bytes)
        self._largest_bytes = self._env.ledgers.max_record_bytes - RECORD_HEADER_BYTES - prefix_bytes

    def set_config(self, config: ManagedLedgerConfig) -> None:
        self.config = config
        self._set_largest()
        if self.current is not None:
            self.current.set_marks(config)

    def resume(self) -> None:
        """Take appends again after WRITE_FAILED. Refused (AssertionError) while appends are pending."""
        if self.state is AppendState.WRITE_FAILED:
            if self.pending:
                raise AssertionError("appends are still pending")
            self.state = AppendState.OPEN


def _messages(run: EntryRun, start: int, end: int) -> int:
    """Return how far ``speed.stamp`` advances the index: it ignores negative message counts, which a peer may claim."""
    if end - start == run.count and run.num_messages[_SIGN_BYTE::8] == bytes(run.count):
        return run.total_messages
    return sum(count for count in memoryview(run.num_messages).cast("q")[start:end] if count > 0)
