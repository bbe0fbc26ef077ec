"""Topic compaction as the topic and the admin API see it: a single run at a time, its result, its status and figures.

Order of writes, so that a crash at any point leaves a complete state (docs/features/compaction.md):

1. cursor `__compaction` exists and protects uncompacted ledgers from trimming;
2. the run creates the new compacted ledger and saves its id as started;
3. the new ledger is complete, sealed, durable;
4. a single write of the cursor's position names the new ledger, its horizon, and the old ledger as replaced;
5. only then does mark-delete move to the horizon, so trimming may begin; the run deletes the old compacted ledger.

Opening the topic deletes the ledgers that a crash leaves behind (a started or a replaced ledger).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.compaction.compacted_damage import NO_DAMAGE, CompactedDamage
from magnetar.broker.compaction.compacted_ledger import CompactedLedger, CompactedLedgerWriter
from magnetar.broker.compaction.compacted_reader import CompactedReader
from magnetar.broker.compaction.compaction_stats import CompactionStats, CompactionStatus
from magnetar.broker.compaction.key_table import KeyTable
from magnetar.broker.compaction.record import NO_LEDGER, CompactionRecord
from magnetar.broker.compaction.survivors import Findings
from magnetar.broker.meters.distributions import WRITE_LATENCY_MS, BucketMeter, Counts
from magnetar.broker.tasks import TaskSet
from magnetar.storage.errors import CorruptEntryError, NoSuchLedgerError, StorageError
from magnetar.storage.position import EARLIEST, Position
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.compaction.compactor import Compactor, FinishedRun
    from magnetar.broker.compaction.ports import CompactedLog, CompactionShown
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.interfaces import LedgerStore
    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.slab import Span

__all__ = ["COMPACTED", "COMPACTION_CURSOR", "CompactedTopic", "CompactionSettings", "TopicCompaction"]

log = structlog.get_logger(__name__)

COMPACTION_CURSOR = "__compaction"
_DISCARDED_WITHIN_S = 2.0  # of the unload of a topic
COMPACTED = "compacted"
"""Property of a compacted ledger: the name of the log."""


@dataclass(frozen=True, slots=True)
class CompactedTopic:
    """A finished compaction: `ledger` replaces every entry of the log up to and including `horizon`."""

    ledger: CompactedLedger
    horizon: Position


@dataclass(slots=True)
class CompactionSettings:
    """The settings of compaction. All topics share `slots`, which bounds how many compactions run at once."""

    slots: asyncio.Semaphore
    now_ms: Callable[[], int]
    keys_in_memory: int
    directory: str | None = None
    """Folder for the part of the key table that exceeds memory; None: the system's folder for temporary files."""
    skip_damaged: bool = False
    monotonic: Callable[[], float] = time.monotonic


def _body_bytes(ledger: CompactedLedger) -> int:
    """The bytes of the ledger's entries without the headers of their records."""
    return ledger.size_bytes - ledger.entries * RECORD_HEADER_BYTES


class TopicCompaction:
    """Compaction of one topic."""

    def __init__(
        self,
        name: TopicName,
        ledger: CompactedLog,
        ledgers: LedgerStore,
        settings: CompactionSettings,
        shown: CompactionShown | None = None,
    ) -> None:
        self._shown = shown
        self._name = name
        self._log = ledger
        self._ledgers = ledgers
        self._settings = settings
        self._record = CompactionRecord()
        self._current: CompactedTopic | None = None
        self._tasks = TaskSet()
        self._task: asyncio.Task[None] | None = None
        self._status = CompactionStatus()
        self._stats = CompactionStats()
        self._write_latency_ms: BucketMeter | None = None  # few topics are compacted
        self._damage: CompactedDamage | None = None  # few compacted ledgers are damaged
        self._closed = self._ending = False

    async def open(self, *, keeps_all: bool = False) -> None:
        """Find the compacted topic and delete the remains of an interrupted compaction. Raises StorageError.

        keeps_all: create the cursor if need be, so that the log drops no entry before its compaction.
        """
        cursor = self._log.cursors.get(COMPACTION_CURSOR)
        if cursor is None and keeps_all:
            cursor = await self._log.open_cursor(COMPACTION_CURSOR, "earliest")
        if cursor is None:
            return
        record = self._record = CompactionRecord.of(cursor.position_properties, cursor.mark_delete)
        if record.ledger_id != NO_LEDGER:
            try:
                info = await self._ledgers.open_recover(record.ledger_id)
            except NoSuchLedgerError:
                cursor.note_properties(record.properties())
                await cursor.flush()  # fails where another owner has replaced and deleted the ledger
                log.error("compacted_ledger.missing", topic=str(self._name), ledger_id=record.ledger_id)  # noqa: TRY400 - says all
                record = self._record = replace(record, ledger_id=NO_LEDGER, horizon=EARLIEST)
            else:
                self._current = CompactedTopic(CompactedLedger(self._ledgers, info), record.horizon)
                cursor.ack_cumulative(record.horizon)
        if record.ledger_ids - {record.ledger_id}:
            # Another owner may have opened the log since this opening began, and have started the run: then the save
            # that precedes the deletion fails.
            cursor.note_properties(record.properties())
        await self._clear_away(cursor)

    async def keep_all(self) -> None:
        """Create the cursor if need be, shown as a subscription: the log drops no entry before its compaction. No
        effect while `delete_cursor` runs.
        """
        if not self._ending:
            await self._shown_cursor(read=False)

    # --- the compacted topic -------------------------------------------------------------------------------------

    def current(self) -> CompactedTopic | None:
        return self._current

    def new_reader(self, cursor: ManagedCursor) -> CompactedReader:
        """The reader of a read_compacted subscription with this cursor."""
        return CompactedReader(cursor, self._log, self.current, self.note_damage)

    def note_damage(self, ledger_id: int) -> None:
        """Start a compaction for a reader that met a damaged entry of the compacted ledger, to replace the ledger. No
        effect within a minute of the last such start, nor where the last run could not replace the ledger.
        """
        if self._known_damage().may_begin(ledger_id, self._settings.monotonic()):
            self.start()

    def _known_damage(self) -> CompactedDamage:
        self._damage = self._damage or CompactedDamage()
        return self._damage

    async def last_entry(self) -> Span | None:
        """The last entry of the compacted topic when nothing follows its horizon in the log, else None."""
        current = self._current
        if current is None or self._log.next_valid(current.horizon) is not None:
            return None
        while (current := self._current) is not None:
            try:
                return await current.ledger.last()
            except NoSuchLedgerError:
                if self._current is current:
                    raise
            except CorruptEntryError:
                self.note_damage(current.ledger.ledger_id)
                raise
        return None

    @property
    def ledger_ids(self) -> frozenset[int]:
        """Ledgers that the compaction needs, or deletes later by itself."""
        return self._record.ledger_ids

    @property
    def covers_all(self) -> bool:
        """Whether the topic was compacted and the log has no entry behind the horizon."""
        return self._current is not None and self._log.next_valid(self._current.horizon) is None

    def status(self) -> CompactionStatus:
        return self._status

    def stats(self) -> CompactionStats:
        found = None if self._current is None else self._current.ledger
        if found is None:
            return self._stats
        return replace(self._stats, entries=found.entries, size_bytes=_body_bytes(found))

    def ledger_json(self) -> dict[str, object]:
        """`compactedLedger` of the internal stats."""
        found = None if self._current is None else self._current.ledger
        return {
            "ledgerId": -1 if found is None else found.ledger_id,
            "entries": -1 if found is None else found.entries,
            "size": -1 if found is None else _body_bytes(found),
            "offloaded": False,
            "underReplicated": False,
        }

    # --- running -------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def start(self) -> bool:
        """Start a compaction in the background. Return False, without effect, while another runs, while its
        cursor is deleted, or after `close`.
        """
        if self._task is not None or self._closed or self._ending:
            return False
        self._status = CompactionStatus("RUNNING")
        self._task = self._tasks.spawn(self._run(), f"compaction {self._name}")
        self._task.add_done_callback(self._ended)
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Forget a run that was cancelled before its first step."""
        if self._task is task:
            self._task = None

    def start_if_needed(self, threshold_bytes: int) -> None:
        """Start a compaction when `uncompacted_bytes` exceeds the threshold (0: never)."""
        if threshold_bytes > 0 and self.uncompacted_bytes() > threshold_bytes:
            self.start()

    def uncompacted_bytes(self) -> int:
        """Estimated bytes of the log behind the horizon; the size of the log before the first compaction."""
        cursor = self._log.cursors.get(COMPACTION_CURSOR)
        return self._log.size_bytes if cursor is None else cursor.backlog_bytes

    async def wait(self) -> None:
        """Wait until no compaction of this topic runs."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Cancel a running compaction, whose work is lost, and refuse further compactions. Idempotent."""
        self._closed = True
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._shown = None  # the subscriptions have a reference to this object

    async def delete_cursor(self) -> None:
        """Delete the cursor, and with it the compacted topic, once no run is under way. Raises StorageError."""
        self._ending = True  # no run begins meanwhile: it would open the cursor again
        try:
            await self.wait()
            await self._log.delete_cursor(COMPACTION_CURSOR)
        finally:
            self._ending = False
        record, self._record, self._current = self._record, CompactionRecord(), None
        await self._delete_ledgers(record)

    async def _delete_ledgers(self, record: CompactionRecord) -> None:
        for ledger_id in record.ledger_ids:
            with suppress(StorageError):  # if not, the sweep of orphaned ledgers deletes it after the next start
                await self._ledgers.delete(ledger_id)

    async def _run(self) -> None:
        started_ms = self._settings.now_ms()
        try:
            async with self._settings.slots:
                removed = await self._compact()
        except (StorageError, OSError, OverflowError) as error:
            log.warning("compaction.failed", topic=str(self._name), error=str(error))
            self._failed(str(error) or type(error).__name__)
        except asyncio.CancelledError:
            self._failed("the topic was closed")
            raise
        except Exception as error:  # a bug: the topic continues without this compaction
            self._failed(repr(error))
            log.exception("compaction.crashed", topic=str(self._name))
        else:
            self._status = CompactionStatus("SUCCESS")
            if removed is not None:  # as in Apache Pulsar, a run without new messages leaves no trace in the figures
                self._count(removed, started_ms)
        finally:
            self._task = None

    def write_latency_ms(self) -> Counts:
        """The milliseconds of writes to compacted ledgers since the load of the topic."""
        return (self._write_latency_ms or BucketMeter(WRITE_LATENCY_MS)).present()

    def _wrote(self, entries: int, milliseconds: float) -> None:
        if self._write_latency_ms is None:
            self._write_latency_ms = BucketMeter(WRITE_LATENCY_MS)
        self._write_latency_ms.add(milliseconds, entries)

    def _count(self, removed: int, started_ms: int) -> None:
        """Count a run that succeeded."""
        now_ms = self._settings.now_ms()
        duration_ms = max(0, now_ms - started_ms)
        self._stats = replace(
            self._stats,
            removed_events=removed,
            succeeded_ms=now_ms,
            duration_ms=duration_ms,
            removed_events_total=self._stats.removed_events_total + removed,
            duration_total_ms=self._stats.duration_total_ms + duration_ms,
            runs_succeeded=self._stats.runs_succeeded + 1,
        )

    def _failed(self, reason: str) -> None:
        self._status = CompactionStatus("ERROR", reason)
        failed = self._stats.runs_failed + 1
        self._stats = replace(self._stats, failed_ms=self._settings.now_ms(), runs_failed=failed)

    async def _compact(self) -> int | None:
        """Run once; return how many messages the run removed, None when nothing was published since the last run. As
        in Apache Pulsar, a run over an empty topic that was never compacted counts.
        """
        from magnetar.broker.compaction.compactor import DamagedCompactedEntryError  # noqa: PLC0415 - not at the start

        cursor = await self._shown_cursor(read=False)
        await self._clear_away(cursor)
        old, horizon = self._current, self._log.last_confirmed
        after = EARLIEST if old is None else old.horizon
        nothing_new = self._log.next_valid(after) is None
        damaged_id = NO_DAMAGE if self._damage is None else self._damage.ledger_id
        if nothing_new and old is not None and old.ledger.ledger_id != damaged_id:
            return None
        await self._shown_cursor(read=True)
        if old is None:
            if nothing_new:
                return 0
            first_source = self._log_start(horizon).ledger_id
            done = await self._write_new(cursor, None, horizon, None)
        else:
            first_source = self._record.first_source
            horizon = max(horizon, after)  # without new messages the log may be empty
            try:
                done = await self._write_new(cursor, old, horizon, None)
            except DamagedCompactedEntryError as error:
                log_start = self._log_start(after)
                log.warning(
                    "compacted_ledger.damaged", topic=str(self._name), error=str(error), read_from=str(log_start)
                )
                self._known_damage().found(old.ledger.ledger_id)
                try:
                    done = await self._write_new(cursor, old, horizon, log_start)
                except DamagedCompactedEntryError:
                    self._known_damage().stays()
                    raise
        await self._replace(cursor, CompactedTopic(done.ledger, horizon), first_source)
        self._damage = None
        self._show(done)
        return done.findings.messages - done.findings.survivors - done.findings.uncounted

    def _show(self, done: FinishedRun) -> None:
        """Show the figures of a run."""
        stats, findings = done.stats, done.findings
        if self._shown is not None:
            size_bytes = stats.read_bytes - stats.entries_read * RECORD_HEADER_BYTES
            self._shown.compaction_read(2 * findings.messages, 2 * size_bytes)
        for position in stats.lost:
            log.error(
                "compacted_entry.lost", topic=str(self._name), ledger_id=position.ledger_id, entry=position.entry_id
            )
        log.info(
            "topic.compacted",
            topic=str(self._name),
            ledger_id=done.ledger.ledger_id,
            horizon=str(self._record.horizon),
            messages=findings.messages,
            left=findings.survivors,
            read_bytes=stats.read_bytes,
            written_bytes=done.ledger.size_bytes,
            spilled_bytes=findings.table.spilled_bytes,
        )
        lost = self._stats.lost_entries + len(stats.lost)
        self._stats = replace(self._stats, read_bytes=stats.read_bytes, lost_entries=lost)

    def _log_start(self, after: Position) -> Position:
        """Where the log begins, at most the entry behind `after`."""
        first = self._log.first_position
        return after.next() if first is None else min(first, after.next())

    def _has_originals(self) -> bool:
        """Whether the log has the originals of all entries of the compacted ledger."""
        ledgers = self._log.ledgers
        return bool(ledgers) and ledgers[0].ledger_id <= self._record.first_source

    async def _write_new(
        self, cursor: ManagedCursor, old: CompactedTopic | None, horizon: Position, log_start: Position | None
    ) -> FinishedRun:
        """Find the survivors and write them into a new ledger; with a `log_start`, the log from there on replaces
        the old ledger. Raises StorageError and OSError, after deleting the new ledger.
        """
        from magnetar.broker.compaction.compactor import CompactionError, Compactor, FinishedRun, aside  # noqa: PLC0415 - see above

        after = EARLIEST if old is None else old.horizon
        start = after.next() if log_start is None else log_start
        table = KeyTable(self._settings.keys_in_memory, self._settings.directory)
        findings = Findings(table)

        def check() -> None:
            if log_start is not None and self._log_start(after) != log_start:
                raise CompactionError("the log dropped a ledger meanwhile")

        try:
            compactor = Compactor(
                None if old is None or (log_start is not None and self._has_originals()) else old.ledger,
                lambda: self._log.new_read_cursor(self._log.next_valid(start.previous()) or start),
                horizon,
                findings,
                skip_damaged=self._settings.skip_damaged,
                log_start=log_start,
            )
            await compactor.find_survivors()
            return FinishedRun(await self._write(cursor, compactor, check), findings, compactor.stats)
        finally:
            await aside(table.spilled_bytes, table.close)

    async def _shown_cursor(self, *, read: bool) -> ManagedCursor:
        cursor = await self._log.open_cursor(COMPACTION_CURSOR, "earliest")
        if self._shown is not None:
            self._shown.adopt(cursor, read=read)
        return cursor

    async def _write(self, cursor: ManagedCursor, compactor: Compactor, check: Callable[[], None]) -> CompactedLedger:
        """Write phase two into a new ledger and check it. Raises StorageError, OSError, after deleting the ledger."""
        ledger_writer = await self._ledgers.create(
            {
                COMPACTED: self._log.name,
                "application": "pulsar",
                "component": "compacted-ledger",
                "pulsar/compactedTopic": str(self._name),
            }
        )
        writer = CompactedLedgerWriter(
            ledger_writer,
            self._name.partition,
            self._settings.monotonic,
            self._wrote,
        )
        try:
            await self._save(cursor, replace(self._record, started=writer.ledger_id))
            await compactor.write_survivors(writer)
            check()
            return CompactedLedger(self._ledgers, await writer.close())
        except (StorageError, OSError, asyncio.CancelledError):
            # Nothing else deletes a ledger that no durable record names; the next run or opening deletes others.
            with suppress(StorageError, TimeoutError):
                async with asyncio.timeout(_DISCARDED_WITHIN_S):
                    await writer.discard(self._ledgers)
            raise

    async def _replace(self, cursor: ManagedCursor, new: CompactedTopic, first_source: int) -> None:
        """Make `new` the compacted topic. Two saves precede the deletion of the old ledger: one may be damaged."""
        record = replace(
            self._record,
            ledger_id=new.ledger.ledger_id,
            horizon=new.horizon,
            replaced=self._record.ledger_id,
            first_source=first_source,
        )
        await self._save(cursor, record)
        self._current = new
        cursor.ack_cumulative(new.horizon)
        try:
            await self._save(cursor, replace(record, started=NO_LEDGER))
            await self._clear_away(cursor)
        except StorageError as error:  # the next run or opening deletes it
            log.warning("compacted_ledger.not_deleted", topic=str(self._name), error=str(error))

    async def _clear_away(self, cursor: ManagedCursor) -> None:
        """Delete the started and the replaced ledger, unless the record names them as the compacted ledger."""
        record = self._record
        left = {record.started, record.replaced} - {NO_LEDGER, record.ledger_id}
        if left:
            await cursor.flush()  # makes the record that no longer needs these ledgers durable
        for ledger_id in left:
            await self._ledgers.delete(ledger_id)
        if left:
            self._record = replace(record, started=NO_LEDGER, replaced=NO_LEDGER)
            cursor.note_properties(self._record.properties())

    async def _save(self, cursor: ManagedCursor, record: CompactionRecord) -> None:
        """Store the record; durable on return. After an error the old record stays in force for the next save."""
        before = self._record
        cursor.note_properties(record.properties())
        try:
            await cursor.flush()
        except BaseException:
            cursor.note_properties(before.properties())
            raise
        self._record = record
