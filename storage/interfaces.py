"""The ports of a store to the layers above: ledgers, metadata, time. The embedded engine (``embedded/``), BookKeeper
and ZooKeeper (``bookkeeper/``, ``zookeeper/``) and the in-memory twins (``tests/twins``) implement them and pass the
same contract tests. The layers above must not assume a local file.

Everything is called on one event loop. A method that cannot wait is a plain ``def``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from magnetar.storage.errors import StorageError
    from magnetar.storage.slab import Slab

__all__ = [
    "ANY_VERSION",
    "MUST_NOT_EXIST",
    "AppendDone",
    "CallLater",
    "Clock",
    "EarlyAnswer",
    "Guard",
    "LedgerInfo",
    "LedgerStore",
    "LedgerWriter",
    "MetadataStore",
    "NextMessage",
    "PromptDone",
    "Scheduler",
    "SystemClock",
    "Timer",
]

AppendDone = Callable[["StorageError | None"], None]
NextMessage = Callable[[float], bool]
"""Takes the next message of a producer; waits for the message at most so many seconds, without sleeping. Returns
whether bytes of the producer have come.
"""
EarlyAnswer = Callable[[], "NextMessage | None"]
"""Answers an append whose records are on the disk, and returns the function that takes the next message of the same
producer; None: no such function.
"""


class PromptDone:
    """The ``done`` of an append with an answer that need not wait for the bookkeeping of the append."""

    __slots__ = ()

    def notice(self) -> EarlyAnswer | None:
        """Return the function to call as soon as the records of the append are on the disk; None: no function.

        A store may call ``notice`` once, after ``append`` of the ledger writer has begun the write, and the function
        once, in the callback of the loop that calls ``done(None)`` afterwards. The records are not readable yet then.
        The function neither raises nor uses the store. The function that it returns may append; the store may call that
        function once, between the early answer and ``done(None)``.
        """
        raise NotImplementedError

    def __call__(self, error: StorageError | None) -> None:
        """Take the result of the append."""
        raise NotImplementedError


ANY_VERSION = None
MUST_NOT_EXIST = -1


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """A closed ledger. ``last_entry_id`` is -1 when it holds no entry."""

    ledger_id: int
    last_entry_id: int
    length_bytes: int
    """Bytes of all its records."""
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        return self.last_entry_id + 1


class LedgerWriter(Protocol):
    """One ledger open for append. There is at most one per ledger, and only from ``LedgerStore.create``."""

    ledger_id: int
    record_proof: int
    """The value that ``stamp`` writes into the field ``last_add_confirmed`` of each record of this ledger."""

    @property
    def last_add_pushed(self) -> int:
        """Highest entry id given to ``append``; -1 at first. Falls back to ``last_add_confirmed`` when appends fail."""
        ...

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry id that is on disk; -1 at first."""
        ...

    @property
    def length_bytes(self) -> int:
        """Bytes of all confirmed records."""
        ...

    @property
    def failure(self) -> StorageError | None:
        """The error with which the writer refuses further slabs, as far as the store knows; None while the writer takes
        slabs.
        """
        ...

    def append(self, slab: Slab, done: AppendDone) -> None:
        """Append the slab's records; its first entry id must be ``last_add_pushed + 1``.

        Never blocks, never raises for a state of the store: ``done(None)`` is called on the loop, never from within
        this call, once the records are on disk (fdatasync) and readable; ``done(error)`` when they are not. After an
        error the outcome is unknown: the records are not readable now, but may exist after a restart, unless later
        records took their place. Calls come strictly in the order of the appends of this ledger. Calls of one group
        commit are made in one callback of the loop, so a listener may collect them with ``call_soon``. Where ``done``
        is a ``PromptDone``, the store may give ``done.notice()`` first.

        When an append fails, every append of this ledger pushed before its ``done`` was called fails too, in order, and
        ``last_add_pushed`` falls back to ``last_add_confirmed``: no gap remains, the next slab starts at
        ``last_add_confirmed + 1``. ``StorageFullError`` may be tried again later; after ``LedgerFencedError``,
        ``LedgerClosedError``, ``StorageFailedError`` this writer stays useless. ``EntryTooLargeError`` fails
        in the same way; check ``LedgerStore.max_record_bytes`` before stamping.
        """
        ...

    async def close(self) -> LedgerInfo:
        """Seal the ledger after all pending appends; durable on return. Idempotent."""
        ...


class LedgerStore(Protocol):
    """Append-only, individually closed runs of entries, addressed by ids that are never used again."""

    @property
    def max_record_bytes(self) -> int:
        """Largest record (header, broker entry metadata, headers and payload) the store takes."""
        ...

    async def create(self, properties: Mapping[str, str] | None = None) -> LedgerWriter:
        """A new empty ledger. Its existence is durable on return; its id is greater than all ids before it.

        Raises StorageFullError, StorageFailedError.
        """
        ...

    async def open_recover(self, ledger_id: int) -> LedgerInfo:
        """Fence the ledger's writer if there is one (its appends fail with LedgerFencedError), find the last entry of
        the ledger and close the ledger. Idempotent; of a closed ledger only the figures are read. Every confirmed
        entry is kept.

        Raises NoSuchLedgerError.
        """
        ...

    def read_cached(self, ledger_id: int, first: int, last: int, max_bytes: int) -> Slab | None:
        """Return the cached slab that holds entry ``first``, or None. Never waits.

        The result is a whole slab, never a copy of a part: it may begin before ``first`` and end after ``last``. Cut it
        with ``slab.span(first, last)``. ``max_bytes`` is a hint for read-ahead only.
        """
        ...

    async def read(self, ledger_id: int, first: int, last: int, max_bytes: int) -> list[Slab]:
        """Return consecutive slabs, at least one; the first holds ``first``, the last ends the read: it reaches
        ``last`` or ``max_bytes``.

        As in ``read_cached`` the slabs are whole: cut them with ``slab.span(first, last)``. They do not overlap. Of an
        open ledger the result has only confirmed entries. The store verifies each entry by its checksum.

        Raises CorruptEntryError(position) when entry ``first`` itself is damaged (go on at ``position.next()``; damage
        further on ends the result early), NoSuchEntryError when ``first`` is beyond the last confirmed entry,
        NoSuchLedgerError, StorageError.
        """
        ...

    async def delete(self, ledger_id: int) -> None:
        """Delete the ledger, durable on return. Its pending appends fail with NoSuchLedgerError. Idempotent."""
        ...

    async def list_ledgers(self) -> list[int]:
        """Ids of all ledgers, ascending."""
        ...

    async def properties(self, ledger_id: int) -> Mapping[str, str]:
        """Return the properties from ``create`` and additions of the store. Fences no writer. Raises
        NoSuchLedgerError.
        """
        ...

    async def close(self) -> None:
        """Finish pending work and close. Idempotent."""
        ...


class Guard(NamedTuple):
    """The condition of a write: this node exists and has this version (0 or more) in the moment of the write."""

    path: str
    version: int


class MetadataStore(Protocol):
    """Small versioned values under slash-separated paths (``/managed-ledgers/public/default/persistent/t``).

    A write is durable when its await returns, all writes happen in the order of their calls, and a later read returns
    them. Versions count from 0 and grow by one with each put. A parent node need not exist. Errors: BadVersionError,
    NoNodeError, StorageFullError, StorageFailedError, StorageUnavailableError.
    """

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """Return (value, version) of the node, or None when the node does not exist."""
        ...

    async def put(
        self, path: str, value: bytes, expected_version: int | None = ANY_VERSION, guard: Guard | None = None
    ) -> int:
        """Write the value and return its version. Raises GuardChangedError unless the guard's node has its version,
        BadVersionError unless the node's version is the expected version (``None``: any; ``-1``: the node must not
        exist).
        """
        ...

    async def put_ephemeral(self, path: str, value: bytes) -> int:
        """Like ``put``, but the node vanishes when this store is closed or its process ends."""
        ...

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION, guard: Guard | None = None) -> None:
        """Delete the node. Its children stay; a store that cannot keep children without a parent raises NotEmptyError.

        Raises GuardChangedError, NoNodeError, BadVersionError, in this order.
        """
        ...

    async def children(self, path: str) -> list[str]:
        """Names (not paths) directly below ``path``, also those that exist only through their own children; sorted."""
        ...

    def watch(self, prefix: str, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call ``callback(path)`` on the loop after each change at or below ``prefix``; returns the cancel function.

        A store that other processes write to as well may report several changes in quick succession with one call.
        """
        ...

    async def next_sequence(self, path: str, count: int = 1) -> int:
        """Reserve ``count`` consecutive numbers, never given before for this path, the very first is 0; return the
        first.

        Durable on return.
        """
        ...

    async def close(self) -> None:
        """Idempotent."""
        ...


class Timer(Protocol):
    """The handle that ``Scheduler.call_later`` returns (for example asyncio.TimerHandle)."""

    def cancel(self) -> None: ...


class CallLater(Protocol):
    """``call_later`` of a scheduler: calls back after so many seconds unless the timer is cancelled."""

    def __call__(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class Scheduler(Protocol):
    """The part of an event loop the room uses, so that tests move time by hand (asyncio loops are Schedulers)."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer: ...

    def call_soon(self, callback: Callable[[], object]) -> object: ...


class Clock(Protocol):
    """Time as an argument."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970 UTC; may jump."""
        ...

    def now_s(self) -> float:
        """Monotonic seconds."""
        ...


class SystemClock:
    """``Clock`` of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    now_s = staticmethod(time.monotonic)
