"""The ports of the index: a log, cursors, stores, time. All calls are on one event loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from pyroaring import BitMap

    from magnetar.delayed.bitmap_shelf import BitmapShelf
    from magnetar.storage.interfaces import CallLater, LedgerStore
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Span

__all__ = ["DelayCursor", "DelayEnvironment", "Log", "OffLoop", "Records", "ScanCursor"]

T = TypeVar("T")


class DelayCursor(Protocol):
    """The cursor of a subscription (for example a ManagedCursor)."""

    @property
    def read_position(self) -> Position: ...
    @property
    def mark_delete(self) -> Position: ...
    def deleted_in(self, ledger_id: int) -> BitMap | None: ...
    def ack_many(self, positions: Iterable[Position]) -> int: ...
    async def flush(self) -> None: ...


class ScanCursor(Protocol):
    """A read cursor of the index, which passes through a part of the log."""

    def read(
        self, max_entries: int, max_bytes: int, upto: Position | None = None
    ) -> list[Span] | Awaitable[list[Span]]: ...
    def move_to(self, position: Position) -> None: ...
    def close(self) -> None: ...


class Records(Protocol):
    """The metadata store for the owner of the topic; ``MetadataStore`` states the guarantees. After another broker has
    taken the topic, ``put`` and ``delete`` raise StorageError and change nothing.
    """

    async def get(self, path: str) -> tuple[bytes, int] | None: ...
    async def put(self, path: str, value: bytes, expected_version: int | None = ..., /) -> int: ...
    async def delete(self, path: str, /) -> None: ...


class Log(Protocol):
    """The log of the topic (for example a ManagedLedger)."""

    @property
    def last_confirmed(self) -> Position: ...
    @property
    def first_position(self) -> Position | None: ...
    @property
    def records(self) -> Records: ...
    def entries_between(self, after: Position, up_to: Position) -> int: ...
    def new_read_cursor(self, start: Position) -> ScanCursor: ...


class OffLoop(Protocol):
    """Runs a function that takes long away from the loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class DelayEnvironment:
    """The stores, the clock and the threads of one broker."""

    ledgers: LedgerStore
    now_ms: Callable[[], int]
    call_later: CallLater
    spawn: Callable[[Coroutine[object, object, object], str], asyncio.Task[object]]
    """Starts background work; its failures are logged there."""
    off_loop: OffLoop
    shelf: BitmapShelf | None = None
    """The place of bitmaps that exceed the broker's budget; None: all bitmaps stay in memory."""
