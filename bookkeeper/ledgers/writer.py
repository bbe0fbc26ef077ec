"""The writer of one ledger: pipelined adds, acknowledged strictly in order.

``append_nowait`` encodes a run of entries as add frames once and gives the same bytes to every bookie of their write
sets. Answers go to the ``AddWindow``, which determines the entries with an ack quorum; ``_drain`` advances the last add
confirmed and calls the callers' callbacks.

Invariants (the histories in the tests check them):

- Entries are confirmed in order, after their ack quorum answered over trusted connections (``owned_metadata``).
- While the ensemble changes no entry is confirmed: the new segment begins right behind the last confirmed entry, and
  the writer sends all unconfirmed entries to its new bookies.
- A place without a connection does not count. Adds continue as long as enough other bookies answer; otherwise they
  wait, up to a deadline.
- After a fatal error every waiting add fails, in order, and the writer refuses later adds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from magnetar.bookkeeper import events
from magnetar.bookkeeper.deadlines import Deadline, Patience
from magnetar.bookkeeper.errors import (
    AddTimeoutError,
    BookKeeperError,
    EntryTooLargeError,
    LedgerClosedError,
    LedgerError,
    LedgerFencedError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    WrongPasswordError,
)
from magnetar.bookkeeper.ledgers.add_queue import AddQueue
from magnetar.bookkeeper.ledgers.add_window import AddWindow
from magnetar.bookkeeper.ledgers.mending import Mender
from magnetar.bookkeeper.ledgers.owned_metadata import OwnedMetadata, deadline_of_close
from magnetar.bookkeeper.ledgers.quorum import can_reach_quorum, last_held
from magnetar.bookkeeper.ledgers.replica import Replica
from magnetar.bookkeeper.wire.digests import Digester, DigestType, master_key
from magnetar.bookkeeper.wire.entries import encode_run, frame_overhead
from magnetar.bookkeeper.wire.frames import Code, code_name
from magnetar.bookkeeper.wire.packed_runs import encode_packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.bookkeeper.bookies.connection import BookieConnection
    from magnetar.bookkeeper.errors import BookieUnreachableError
    from magnetar.bookkeeper.ledgers.add_queue import AddDone
    from magnetar.bookkeeper.ledgers.add_window import ReplicaAcks
    from magnetar.bookkeeper.ledgers.ledger_context import LedgerContext
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata
    from magnetar.bookkeeper.wire.entries import EntryRun

__all__ = ["LedgerWriter"]

log = structlog.get_logger(__name__)
_REFUSAL_PAUSE_S = 1.0
_TRUST_LATER_S = 0.5
_WRITE_BYTES = 256 << 10
"""The writer joins frames up to about this size into one write, and writes a larger run without a copy."""


class LedgerWriter:
    """Made by ``BookKeeper.create``. Use it on the event loop of its client only."""

    def __init__(
        self,
        context: LedgerContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        on_end: Callable[[LedgerWriter], None],
    ) -> None:
        self.ledger_id = ledger_id
        self.owned = OwnedMetadata(context.store, ledger_id, metadata, version)
        self.window = AddWindow(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self.queue = AddQueue(metadata.ensemble_size, metadata.write_quorum)
        self.replicas = [Replica(place, bookie) for place, bookie in enumerate(metadata.last_segment.bookies)]
        self.changing = False
        """Whether a change of the ensemble is under way: no entry may be confirmed until its end."""
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._key = master_key(metadata.password or b"")
        self._digester = Digester(metadata.digest_type or DigestType.CRC32, metadata.password or b"")
        self._overhead = frame_overhead(self._digester)
        self._pushed_length = self._confirmed_length = 0
        self._failure: BookKeeperError | None = None
        self._closing = False
        self._closed: asyncio.Future[LedgerMetadata] | None = None
        self._flushing = self._confirming = False
        self._trust_timer: asyncio.TimerHandle | None = None
        self._timer: Deadline | None = None
        self._patience = Patience(context.options.add_timeout_s)
        self._patience_of_quorum = Patience(context.options.add_quorum_timeout_s)
        self._room: list[asyncio.Future[None]] = []
        self._idle: list[asyncio.Future[None]] = []
        self._mender = Mender(self, context)
        self._mender.wake()  # connect before the caller adds the first entry

    # visible to callers

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as last written or read."""
        return self.owned.current

    @property
    def last_add_pushed(self) -> int:
        """Entry id of the last add given to ``append``; -1 at first."""
        return self.window.pushed

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that has its ack quorum together with all entries before it; -1 at first."""
        return self.window.confirmed

    @property
    def length(self) -> int:
        """Payload bytes of all confirmed entries."""
        return self._confirmed_length

    @property
    def failure(self) -> BookKeeperError | None:
        """The error for which this writer takes no more entries; None while the writer takes entries."""
        return self._failure

    @property
    def is_open(self) -> bool:
        return self._failure is None and not self._closing

    @property
    def max_payload_bytes(self) -> int:
        """The largest payload of an entry that the bookies accept, in bytes."""
        return self._context.options.max_frame_bytes - self._overhead

    async def append(self, payload: bytes | memoryview) -> int:
        """Add one entry and return its id once the ack quorum has the entry on disk. Many calls may wait at the same
        time. With more than ``max_in_flight_bytes`` unacknowledged, the call waits before it sends.

        Raises LedgerFencedError, LedgerClosedError, AddTimeoutError, NotEnoughBookiesError, EntryTooLargeError.
        """
        return (await self.append_many((payload,))).start

    async def append_many(self, payloads: Sequence[bytes | memoryview]) -> range:
        """Like ``append``, for several entries: they get consecutive ids. Returns once all are acknowledged."""
        while self.queue.pending_bytes > self._context.options.max_in_flight_bytes and self._failure is None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._room.append(waiter)
            await waiter
        answer: asyncio.Future[None] = self._loop.create_future()

        def done(error: BookKeeperError | None) -> None:
            if answer.done():
                return  # the caller was cancelled
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

        first = self.append_nowait(payloads, done)
        await answer
        return range(first, first + len(payloads))

    def append_nowait(self, payloads: Sequence[bytes | memoryview], done: AddDone) -> int:
        """Add a run of at least one entry and return the id of the first entry. Never waits. The writer keeps the
        payloads until their acknowledgement, so the caller has to bound the unacknowledged bytes.

        The writer calls ``done(None)`` once all entries are acknowledged, or ``done(error)`` when the writer fails (the
        outcome is unknown): in the order of the runs, on the loop, never from within this call. Raises
        EntryTooLargeError or ``failure``; then the writer has sent nothing and does not call `done`.
        """
        assert payloads
        self._check(max(map(len, payloads)))
        run = encode_run(
            self.ledger_id,
            self.window.pushed + 1,
            self.window.confirmed,
            self._pushed_length,
            payloads,
            self._digester,
            self._key,
        )
        return self._push(run, done)

    def append_packed_nowait(self, data: bytes | memoryview, offsets: bytes, skip: int, done: AddDone) -> int:
        """Like ``append_nowait``; entry k is ``data[offsets[k] + skip : offsets[k + 1]]``. `offsets` are native int64,
        one more than there are entries. The compiled helper makes no Python object per entry.
        """
        at = memoryview(offsets).cast("q")
        size = at[-1] - at[0]
        if size > self.max_payload_bytes:
            size = max(at[k + 1] - at[k] - skip for k in range(len(at) - 1))
        self._check(size)
        run = encode_packed(
            data,
            offsets,
            skip,
            self.ledger_id,
            self.window.pushed + 1,
            self.window.confirmed,
            self._pushed_length,
            self._digester,
            self._key,
        )
        return self._push(run, done)

    def _check(self, largest: int) -> None:
        if self._failure is not None or self._closing:
            raise self._failure or LedgerClosedError(self.ledger_id)
        if largest > self.max_payload_bytes:
            raise EntryTooLargeError(self.ledger_id, largest, self.max_payload_bytes)

    def _push(self, run: EntryRun, done: AddDone) -> int:
        self.window.pushed, self._pushed_length = run.last, run.length
        self.queue.push(run, done, self._loop.time())
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        return run.first

    async def close(self) -> LedgerMetadata:
        """Wait for all adds, close the ledger after the last confirmed entry, and return its metadata. Idempotent.

        After a failure of the writer other than LedgerFencedError this closes the ledger too. Raises LedgerFencedError,
        ClientClosedError; MetadataUnavailableError past the deadline: the ledger is open, or closed with this end.
        """
        if self._closed is None:
            self._closing = True
            self._closed = self._context.background.awaited(self._close(), f"close ledger {self.ledger_id}")
        return await asyncio.shield(self._closed)

    def fail(self, error: BookKeeperError) -> None:
        """Take no more entries; fail waiting adds in order, in a later turn of the loop. The first error counts."""
        if self._failure is not None:
            return
        self._failure = error
        confirmed = self.window.confirmed
        if not isinstance(error, NoSuchLedgerError):
            log.warning(events.LEDGER_FAILED, ledger_id=self.ledger_id, error=str(error), confirmed=confirmed)
        self._confirmed_length = self.queue.length_at(confirmed) or self._confirmed_length
        failed = self.queue.fail()
        for replica in self.replicas:
            self._part(replica)
        for add in failed:
            self._loop.call_soon(add.done, error)
        self._loop.call_soon(self._wake_all)
        self._end_timer()
        self._mender.stop()
        if not self._closing:
            self._on_end(self)

    def abandon(self) -> None:
        """Stop without closing the ledger, because the client closes; waiting adds fail."""
        self.fail(LedgerClosedError(self.ledger_id, "the client is closed"))

    # answers of bookies (AddSink)

    def on_added(self, connection: BookieConnection, first: int, last: int) -> None:
        for replica in self.replicas:
            if replica.connection is connection and replica.acks is not None:
                if last > self.window.pushed:
                    connection.abort(f"the bookie acknowledged entry {self.ledger_id}:{last} without a request")
                    return
                # Entries above `sent`: a damaged answer, or a late one from before the connection was joined again.
                self.window.added(replica.acks, first, min(last, replica.sent))
                self._drain()
                if replica.acks is not None and not replica.acks.trusted and self._trust_timer is None:
                    # Later adds need this trust if a trusted bookie fails while the metadata service does not answer.
                    self._trust_timer = self._loop.call_later(_TRUST_LATER_S, self._start_confirming)
                return

    def on_add_failed(self, connection: BookieConnection, entry_id: int, code: int) -> None:
        replica = self._replica_of(connection)
        if replica is None:
            return
        if code == Code.FENCED:
            self.fail(LedgerFencedError(self.ledger_id, f"by bookie {replica.bookie_id}"))
        elif code == Code.UNAUTHORIZED:
            self.fail(WrongPasswordError(self.ledger_id, f"by bookie {replica.bookie_id}"))
        else:
            self.lose(replica, f"{code_name(code)} for entry {entry_id}", refused=True)

    def on_connection_lost(self, connection: BookieConnection, error: BookieUnreachableError) -> None:
        replica = self._replica_of(connection)
        if replica is not None:
            self.lose(replica, error.detail, refused=False)

    def on_writable(self, connection: BookieConnection) -> None:
        replica = self._replica_of(connection)
        if replica is not None:
            self.pump(replica)

    # replicas (used by the mender too)

    def join(self, replica: Replica, connection: BookieConnection) -> None:
        """Use this connection to the replica's bookie. The replica begins without acknowledgements, and the writer
        sends it all unconfirmed entries.
        """
        replica.join(connection, self.window.join(replica.place))
        connection.register(self.ledger_id, self)
        self.pump(replica)

    def lose(self, replica: Replica, reason: str, *, refused: bool) -> None:
        """Stop counting the replica; the mender reconnects its bookie or (at once if `refused`) replaces it."""
        if replica.connection is None or self._failure is not None:
            return
        self._part(replica)
        replica.reconnects = not refused
        if refused:
            self._context.pool.quarantine(replica.bookie_id)
            replica.retry_s = self._loop.time() + _REFUSAL_PAUSE_S
        log.warning(events.LEDGER_DEGRADED, ledger_id=self.ledger_id, bookie=replica.bookie_id, reason=reason)
        self._release()
        self._mender.wake()

    def pump(self, replica: Replica) -> None:
        """Send the replica the entries that it has not got yet, as long as its connection has room."""
        connection = replica.connection
        if connection is None or not connection.has_room() or replica.sent >= self.window.pushed:
            return
        now_s = self._loop.time()
        parts: list[bytes | memoryview] = []
        size, last = 0, replica.sent
        for last, frames in self.queue.frames(replica.place, replica.sent):
            parts.append(frames)
            size += len(frames)
            if size >= _WRITE_BYTES:
                connection.add(parts[0] if len(parts) == 1 else b"".join(parts))
                self._note_sent(replica, last, now_s)
                parts, size = [], 0
                if not connection.has_room():
                    break
        if parts:
            connection.add(parts[0] if len(parts) == 1 else b"".join(parts))
            self._note_sent(replica, last, now_s)
        self._release()
        self._watch_time()

    def _flush(self) -> None:
        """Send the entries of all appends of this turn of the loop together, in few writes per bookie."""
        self._flushing = False
        for replica in self.replicas:
            self.pump(replica)
        self._watch_time()

    def end_change(self) -> None:
        """After a change of the ensemble, successful or not: confirm the entries that have their ack quorum."""
        self.changing = False
        self._drain()

    # inside

    def _replica_of(self, connection: BookieConnection) -> Replica | None:
        for replica in self.replicas:
            if replica.connection is connection:
                return replica
        return None

    def _note_sent(self, replica: Replica, last: int, now_s: float) -> None:
        window = self.window
        replica.note_sent(last, last_held(replica.place, last, window.ensemble_size, window.write_quorum), now_s)

    def _part(self, replica: Replica) -> None:
        if replica.connection is not None:
            replica.connection.unregister(self.ledger_id, self)
        replica.leave()
        self.window.leave(replica.place)

    def _drain(self) -> None:
        """Confirm the entries with an ack quorum of trusted replicas. If further entries have an ack quorum only with
        untrusted replicas, start a confirmation of the metadata.
        """
        if self.changing or self._failure is not None:
            return
        window = self.window
        complete = window.complete(trusted_only=True)
        if complete > window.confirmed:
            window.confirmed = complete
            resolved = self.queue.resolve(complete)
            if resolved:
                self._confirmed_length = resolved[-1].length
            self._release()
            for add in resolved:
                add.done(None)
            if self._room and self.queue.pending_bytes <= self._context.options.max_in_flight_bytes:
                self._wake(self._room)
            if self._idle and self.queue.oldest is None:
                self._wake(self._idle)
        if window.confirmed < window.pushed and window.complete(trusted_only=False) > window.confirmed:
            self._start_confirming()

    def _start_confirming(self) -> None:
        if not self._confirming and self._failure is None:
            self._confirming = True
            self._context.background.start(self._confirm(), f"confirm ledger {self.ledger_id}")

    async def _confirm(self) -> None:
        """If this writer still owns the ledger, trust the replicas that had acknowledged an entry before; else fail."""
        try:
            delivered = self.delivered()
            await self.owned.confirm()
        except LedgerError as error:
            self.fail(error)
            return
        finally:
            self._confirming = False
            self._trust_timer = None
        for acks in delivered:
            acks.trusted = True
        self._drain()

    def delivered(self) -> list[ReplicaAcks]:
        """Return the replicas with at least one acknowledgement: a confirmation that begins now makes them trusted."""
        return [acks for acks in self.window.replicas if acks is not None and acks.delivered]

    def _release(self) -> None:
        sent = min((r.sent for r in self.replicas if r.connection is not None), default=self.window.pushed)
        self.queue.release(self.window.confirmed, sent)
        if self.queue.kept_bytes - self.queue.pending_bytes > self._context.options.max_lag_bytes:
            slowest = min((r for r in self.replicas if r.connection is not None), key=lambda r: r.sent, default=None)
            if slowest is not None and slowest.sent < self.window.confirmed:
                self.lose(slowest, "too slow", refused=True)

    def _watch_time(self) -> None:
        if self._timer is None and self._failure is None:
            limit_s = self._context.options.add_timeout_s
            self._timer = Deadline(self._loop, limit_s / 4, self._check_time, limit_s)

    def _end_timer(self) -> None:
        for timer in (self._timer, self._trust_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._trust_timer = None

    def _check_time(self) -> None:
        options, now_s = self._context.options, self._loop.time()
        for patience in (self._patience, self._patience_of_quorum):
            patience.checked(now_s, self._timer.late_s if self._timer is not None else 0.0)
        self._timer = None
        waiting = False
        for replica in self.replicas:
            since_s = replica.waiting_since()
            waiting = waiting or since_s is not None
            if since_s is not None and self._patience.is_over(now_s, since_s):
                connection = replica.connection
                self.lose(replica, f"no answer to an add within {options.add_timeout_s:g} s", refused=True)
                if connection is not None and connection.silent_since(since_s):
                    connection.abort(f"silent for {options.add_timeout_s:g} s")
        oldest = self.queue.oldest
        if oldest is not None and self._patience_of_quorum.is_over(now_s, oldest.pushed_s):
            self.fail(self._timeout_error())
        elif oldest is not None or waiting:
            self._watch_time()

    def _timeout_error(self) -> LedgerError:
        window, limit_s = self.window, self._context.options.add_quorum_timeout_s
        alive = [r.place for r in self.replicas if r.connection is not None]
        if can_reach_quorum(alive, window.ensemble_size, window.write_quorum, window.ack_quorum):
            return AddTimeoutError(self.ledger_id, f"within {limit_s:g} s")
        return NotEnoughBookiesError(self.ledger_id, f"{len(alive)} of {window.ensemble_size} for {limit_s:g} s")

    async def _close(self) -> LedgerMetadata:
        try:
            if self.queue.oldest is not None and self._failure is None:
                idle: asyncio.Future[None] = self._loop.create_future()
                self._idle.append(idle)
                await idle
            async with deadline_of_close(self.ledger_id, self._context.options.close_timeout_s):
                await self._mender.close()
                await self._seal()
            return self.owned.current
        finally:
            self._failure = self._failure or LedgerClosedError(self.ledger_id)
            for replica in self.replicas:
                self._part(replica)
            self._end_timer()
            self._wake_all()
            self._on_end(self)

    async def _seal(self) -> None:
        if isinstance(self._failure, LedgerFencedError):
            raise self._failure
        await self.owned.close(self.window.confirmed, self._confirmed_length)

    def _wake_all(self) -> None:
        self._wake(self._room)
        self._wake(self._idle)

    @staticmethod
    def _wake(waiting: list[asyncio.Future[None]]) -> None:
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        waiting.clear()
