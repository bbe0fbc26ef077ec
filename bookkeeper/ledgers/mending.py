"""Keeps every place of an ensemble on a bookie that answers: connects, reconnects, or changes the ensemble.

The mender tries for a place that is down, in this order: the same bookie over a new connection, when only the
connection was lost (a bookie resets connections while it starts); another bookie, by a change of the ensemble; if no
other bookie fits, the same bookie again, after growing pauses. Meanwhile the ledger continues with the remaining
places, if they suffice for the ack quorum.

An attempt to connect behind a lost cable takes ``connect_timeout_s``. The mender does not wait for its end: after a
moment it tries the next bookie too, and the bookie that answers first serves.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog

from magnetar.bookkeeper import events
from magnetar.bookkeeper.deadlines import Deadline
from magnetar.bookkeeper.errors import BookieUnreachableError, LedgerError

if TYPE_CHECKING:
    from magnetar.bookkeeper.bookies.connection import BookieConnection
    from magnetar.bookkeeper.errors import BookKeeperError
    from magnetar.bookkeeper.ledgers.add_window import AddWindow, ReplicaAcks
    from magnetar.bookkeeper.ledgers.ledger_context import LedgerContext
    from magnetar.bookkeeper.ledgers.owned_metadata import OwnedMetadata
    from magnetar.bookkeeper.ledgers.replica import Replica
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata

__all__ = ["MendedLedger", "Mender"]

log = structlog.get_logger(__name__)
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_PATIENCE_S = 1.5
"""The mender tries another bookie when a bookie has not taken a connection for so long. TCP repeats a lost packet of a
connect after a second.
"""
_NEXT_PATIENCE_S = 0.25
"""The same for the further replacements of a place: a whole rack may be silent."""


class MendedLedger(Protocol):
    """The part of the writer that its mender uses."""

    ledger_id: int
    owned: OwnedMetadata
    window: AddWindow
    replicas: list[Replica]
    changing: bool

    def delivered(self) -> list[ReplicaAcks]: ...

    def join(self, replica: Replica, connection: BookieConnection) -> None: ...

    def end_change(self) -> None: ...

    def fail(self, error: BookKeeperError) -> None: ...


class Mender:
    """While places are down, runs a task that replaces bookies and, for each place, a task that connects to its bookie:
    a bookie that answers joins at once, although the attempt to connect to another may take its whole deadline.
    """

    def __init__(self, writer: MendedLedger, context: LedgerContext) -> None:
        self._writer, self._context = writer, context
        self._task: asyncio.Task[None] | None = None
        self._attempts: dict[int, asyncio.Task[None]] = {}
        """By place."""
        self._candidates: dict[str, asyncio.Task[None]] = {}
        """Attempts to connect to replacements, by bookie."""
        self._news = asyncio.Event()
        """A place went down or came back, its bookie did not take a connection again, or a replacement took a
        connection.
        """
        self._stopped = False

    def wake(self) -> None:
        """Bring back the places that are down; the writer calls this when a place is down."""
        self._reach([replica for replica in self._down() if replica.reconnects])
        self._news.set()
        if self._task is None and self._down():
            self._task = self._context.background.start(self._run(), f"ensemble of ledger {self._writer.ledger_id}")

    def stop(self) -> None:
        self._stopped = True
        for attempt in (*self._attempts.values(), *self._candidates.values()):
            attempt.cancel()
        # Let a change under way end: a written change that this writer has not recorded looks like another client's.
        if self._task is not None and self._task is not asyncio.current_task() and not self._writer.changing:
            self._task.cancel()

    async def close(self) -> None:
        """Stop, and wait until no change of the ensemble is under way."""
        task = self._task
        self.stop()
        if task is not None:
            await asyncio.wait([task])

    async def _run(self) -> None:
        pause_s = _PAUSE_S
        try:
            while down := self._down():
                self._news.clear()
                self._reach([replica for replica in down if replica.reconnects])
                failed = [replica for replica in down if not replica.reconnects]
                await self._replace(failed)
                now_s = asyncio.get_running_loop().time()
                self._reach([replica for replica in failed if replica.retry_s <= now_s])
                if len(self._down()) < len(down):
                    pause_s = _PAUSE_S
                    continue
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        except LedgerError as error:
            self._writer.fail(error)
        finally:
            self._task = None

    def _down(self) -> list[Replica]:
        if self._stopped:
            return []
        return [replica for replica in self._writer.replicas if replica.connection is None]

    async def _pause(self, seconds: float) -> None:
        """Wait for news, until the registered bookies change, or until the time has passed."""
        cancel = self._context.registry.on_change(self._news.set)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        finally:
            cancel()

    def _reach(self, replicas: list[Replica]) -> None:
        """Use the open connections to the bookies of these places, and begin to connect to the other bookies. No effect
        once the mender is stopped.
        """
        for replica in replicas:
            if self._stopped or replica.connection is not None or replica.place in self._attempts:
                continue
            connection = self._context.pool.connected(replica.bookie_id)
            if connection is not None:
                self._writer.join(replica, connection)
                continue
            what = f"place {replica.place} of ledger {self._writer.ledger_id}"
            attempt = self._context.background.start(self._attempt(replica), what)
            if attempt is not None:
                self._attempts[replica.place] = attempt

    async def _attempt(self, replica: Replica) -> None:
        first = replica.reconnects
        patience = Deadline(asyncio.get_running_loop(), _PATIENCE_S, partial(self._give_up_waiting, replica))
        try:
            connection = await self._connection(replica.bookie_id)
        finally:
            patience.cancel()
            if self._attempts.get(replica.place) is asyncio.current_task():
                del self._attempts[replica.place]
        if connection is None or not connection.is_open:
            replica.reconnects = False
        elif replica.connection is None and not self._stopped:
            self._writer.join(replica, connection)
        if first or replica.connection is not None:
            self._news.set()

    def _give_up_waiting(self, replica: Replica) -> None:
        """Let another bookie replace this place's bookie, which is slow to take a connection."""
        replica.reconnects = False
        self._news.set()

    async def _replace(self, down: list[Replica]) -> None:
        """Move as many of these places as possible to other bookies, by one change of the metadata."""
        writer = self._writer
        replaced: dict[int, tuple[str, BookieConnection]] = {}
        ensemble = [replica.bookie_id for replica in writer.replicas]
        passed = set(self._candidates)
        for replica in down:
            found = await self._replacement(ensemble, replica.place, passed)
            if found is not None:
                replaced[replica.place] = found
                ensemble[replica.place] = found[0]
        for replica in down:
            if replica.connection is not None and replica.place in replaced:  # connected again meanwhile
                del replaced[replica.place]
                ensemble[replica.place] = replica.bookie_id
        if not replaced or self._stopped:
            return
        for place in replaced:
            writer.replicas[place].reconnects = False  # a lost connection may have set it again meanwhile
            if place in self._attempts:
                self._attempts.pop(place).cancel()
        writer.changing = True  # from here on the writer confirms no entry until the metadata are written
        first = writer.window.confirmed + 1
        try:
            delivered = writer.delivered()

            def change(metadata: LedgerMetadata) -> LedgerMetadata:
                return metadata.with_segment(first, tuple(ensemble))

            await writer.owned.change(change)
            assert writer.window.confirmed == first - 1
            for acks in delivered:
                acks.trusted = True  # the compare-and-set was a confirmation
            log.info(events.ENSEMBLE_CHANGED, ledger_id=writer.ledger_id, first=first, bookies=ensemble)
            for place, (bookie, connection) in replaced.items():
                replica = writer.replicas[place]
                replica.bookie_id, replica.reconnects = bookie, True
                if connection.is_open and not self._stopped:
                    writer.join(replica, connection)
        finally:
            writer.end_change()

    async def _replacement(
        self, ensemble: list[str], place: int, passed: set[str]
    ) -> tuple[str, BookieConnection] | None:
        """Return a bookie that fits the place, and its connection; None when no fitting bookie takes a connection soon.
        Adds to `passed` the bookies that take none; an attempt without an answer goes on.
        """
        patience_s = _PATIENCE_S
        while (bookie := self._choose(ensemble, place, passed)) is not None:
            connection = self._context.pool.connected(bookie)
            if connection is None:
                attempt = self._context.background.start(self._try_candidate(bookie), f"replacement {bookie}")
                if attempt is None:
                    return None
                self._candidates[bookie] = attempt
                await asyncio.wait([attempt], timeout=patience_s)
                connection = self._context.pool.connected(bookie)
                patience_s = _NEXT_PATIENCE_S
            if connection is not None:
                return bookie, connection
            passed.add(bookie)
        return None

    async def _try_candidate(self, bookie: str) -> None:
        try:
            connection = await self._connection(bookie)
        finally:
            del self._candidates[bookie]
        if connection is None:
            self._context.pool.quarantine(bookie)
        else:
            self._news.set()

    def _choose(self, ensemble: list[str], place: int, passed: set[str]) -> str | None:
        metadata = self._writer.owned.current
        members = {replica.bookie_id for replica in self._writer.replicas}
        return self._context.replacement(ensemble, place, passed | members, metadata.write_quorum, metadata.custom)

    async def _connection(self, bookie: str) -> BookieConnection | None:
        """Return an open connection; None when the bookie is unreachable."""
        try:
            return await self._context.pool.get(bookie)
        except BookieUnreachableError:
            return None
