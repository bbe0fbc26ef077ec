"""Keeps every place of an ensemble on a bookie that answers: connects, reconnects, or changes the ensemble.

The mender tries for a place that is down, in this order: the same bookie over a new connection, when only the
connection was lost (a bookie resets connections while it starts); another bookie, by a change of the ensemble; if no
other bookie fits, the same bookie again, after growing pauses. Meanwhile the ledger continues with the remaining
places, if they suffice for the ack quorum.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

import structlog

from magnetar.bookkeeper import events
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
    """Runs one task per writer while a place is down, and no task otherwise."""

    def __init__(self, writer: MendedLedger, context: LedgerContext) -> None:
        self._writer, self._context = writer, context
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def wake(self) -> None:
        """Start the task unless it runs; the writer calls this when a place is down."""
        if self._task is None and not self._stopped:
            self._task = self._context.background.start(self._run(), f"ensemble of ledger {self._writer.ledger_id}")

    def stop(self) -> None:
        self._stopped = True
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
                before = len(down)
                await self._reconnect([replica for replica in down if replica.reconnects])
                await self._replace(self._down())
                now_s = asyncio.get_running_loop().time()
                await self._reconnect([replica for replica in self._down() if replica.retry_s <= now_s])
                if len(self._down()) < before:
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
        """Wait until the registered bookies change, or until the time has passed."""
        changed = asyncio.Event()
        cancel = self._context.registry.on_change(changed.set)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await changed.wait()
        finally:
            cancel()

    async def _reconnect(self, tried: list[Replica]) -> None:
        for replica, connection in zip(tried, await self._connections([r.bookie_id for r in tried]), strict=True):
            if connection is None or not connection.is_open:
                replica.reconnects = False
            elif replica.connection is None and not self._stopped:
                self._writer.join(replica, connection)

    async def _replace(self, down: list[Replica]) -> None:
        """Move as many of these places as possible to other bookies, by one change of the metadata."""
        writer = self._writer
        replaced: dict[int, tuple[str, BookieConnection]] = {}
        ensemble = [replica.bookie_id for replica in writer.replicas]
        refused: set[str] = set()
        for replica in down:
            while (bookie := self._choose(ensemble, replica.place, refused)) is not None:
                (connection,) = await self._connections([bookie])
                if connection is not None:
                    replaced[replica.place] = (bookie, connection)
                    ensemble[replica.place] = bookie
                    break
                refused.add(bookie)
                self._context.pool.quarantine(bookie)
        if not replaced or self._stopped:
            return
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

    def _choose(self, ensemble: list[str], place: int, refused: set[str]) -> str | None:
        metadata = self._writer.owned.current
        members = {replica.bookie_id for replica in self._writer.replicas}
        return self._context.replacement(ensemble, place, refused | members, metadata.write_quorum, metadata.custom)

    async def _connections(self, bookies: list[str]) -> list[BookieConnection | None]:
        """Open connections to these bookies concurrently; None stands for an unreachable bookie."""
        found = await asyncio.gather(*(self._context.pool.get(bookie) for bookie in bookies), return_exceptions=True)
        for error in found:
            if isinstance(error, BaseException) and not isinstance(error, BookieUnreachableError):
                raise error
        return [None if isinstance(connection, BaseException) else connection for connection in found]
