"""The window of a producer: entries that were sent and have no receipt. Receipts come in the order of the entries."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from magnetar.client.errors import ClientError, RetryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.client.producers import Receipt

MAX_ENTRIES = 1_000
MAX_BYTES = 16 << 20

T = TypeVar("T")


class _Waiting(NamedTuple, Generic[T]):
    sequence_id: int
    size_bytes: int
    item: T


class SendWindow(Generic[T]):
    """The window of one producer, which gets its events (`producers.ProducerEvents`). Use it on one event loop.

    on_stored: called with each item and its receipt. A ClientError raised by on_stored fails the window, and the item
        stays without a receipt.
    """

    def __init__(
        self, on_stored: Callable[[T, Receipt], None], *, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES
    ) -> None:
        self._on_stored = on_stored
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._waiting: deque[_Waiting[T]] = deque()
        self._bytes = 0
        self._failure: ClientError | None = None
        self._changed = asyncio.Event()

    def add(self, sequence_id: int, size_bytes: int, item: T) -> None:
        """Add an entry that the caller sends now."""
        self._waiting.append(_Waiting(sequence_id, size_bytes, item))
        self._bytes += size_bytes

    def __len__(self) -> int:
        """Return the number of entries without receipt."""
        return len(self._waiting)

    def items(self) -> list[T]:
        """Return the items of all entries without receipt, in order, so that a new producer can send them again."""
        return [waiting.item for waiting in self._waiting]

    def has_room(self, size_bytes: int) -> bool:
        """Whether an entry of this size may be sent now."""
        return self._failure is None and not self._is_full(size_bytes)

    async def wait_room(self, size_bytes: int) -> None:
        """Return when an entry of this size may be sent. Raises: ClientError when the window has failed."""
        while self._is_full(size_bytes):
            await self._wait()
        self._ensure_open()

    def _is_full(self, size_bytes: int) -> bool:
        """Whether the entry has to wait. An empty window takes an entry of any size."""
        full = len(self._waiting) >= self._max_entries or self._bytes + size_bytes > self._max_bytes
        return bool(self._waiting) and full

    async def wait_empty(self) -> None:
        """Return when every entry has its receipt. Raises: as `wait_room`."""
        while self._waiting:
            await self._wait()
        self._ensure_open()

    async def _wait(self) -> None:
        self._ensure_open()
        self._changed.clear()
        await self._changed.wait()

    def _ensure_open(self) -> None:
        if self._failure is not None:
            raise self._failure

    def on_receipt(self, receipt: Receipt) -> None:
        """Remove the first entry, which the receipt has to name; a receipt for any other entry fails the window."""
        if self._failure is not None:
            return
        if not self._waiting or receipt.sequence_id != self._waiting[0].sequence_id:
            self.on_failed(RetryError(f"a receipt for {receipt.sequence_id} that is not the one waited for"))
            return
        first = self._waiting[0]
        try:
            self._on_stored(first.item, receipt)
        except ClientError as error:
            self.on_failed(error)
            return
        self._waiting.popleft()
        self._bytes -= first.size_bytes
        self._changed.set()

    def on_failed(self, error: ClientError) -> None:
        """Fail the window; the error of the first call stays."""
        self._failure = self._failure or error
        self._changed.set()
