"""The ledger list of one managed ledger in the metadata store.

Record: at ``/managed-ledgers/<name>``, in the bytes of the factory's layout (``stored_layout.py``). Every change is a
compare-and-set on the record's version; a broker whose compare-and-set fails has lost the managed ledger to another.

Rules kept here:

- a save without an answer may have been made: the owner recognises the list that it has written, in the next version,
  unless a new owner may store the same bytes: the list as it found it, or without an empty ledger;
- the records of cursors change only while the list has the version that its owner knows (``guarded``);
- a log whose deletion has begun has a mark in its list (``doom``), which each later save of its owner renews;
- the stored list names a ledger before its first append, and no longer names it before its deletion;
- a ledger with timestamp 0 was open: the next opening recovers (fences) it, whether it is the last ledger or not;
- ``properties["index"]`` is a floor for the next broker index, written together with the removal of ledgers. It matters
  only when the entries with the index are gone (Pulsar: ManagedLedgerInterceptorImpl, key ``index``).
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from magnetar.storage.errors import (
    BadVersionError,
    GuardChangedError,
    LedgerListError,
    ManagedLedgerFencedError,
    NoNodeError,
    NoSuchManagedLedgerError,
)
from magnetar.storage.interfaces import MUST_NOT_EXIST, Guard
from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot
from magnetar.storage.managed.stored_layout import DELETION_PROPERTY, ListRecord, OwnLayout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from magnetar.storage.interfaces import MetadataStore
    from magnetar.storage.managed.stored_layout import StoredLayout
    from magnetar.storage.position import Position

    _Marks = tuple[int, ...]

    PropertyChange = Callable[[Mapping[str, str]], Mapping[str, str | None]]
    """The present properties -> the changes; None removes a key."""

__all__ = ["INDEX_PROPERTY", "ROOT", "LedgerList", "ledger_list_path", "unchanged"]

T = TypeVar("T")

ROOT = "/managed-ledgers"
INDEX_PROPERTY = "index"
_MOST_UNANSWERED = 8
_LEDGER_ID, _CLOSED_AT_MS = attrgetter("ledger_id"), attrgetter("closed_at_ms")
"""The most saves without an answer that the owner recognises later."""


def ledger_list_path(name: str) -> str:
    """The path of a managed ledger's list; ``name`` is ``tenant/namespace/persistent/<encoded topic>``."""
    return f"{ROOT}/{name}"


def unchanged(_properties: Mapping[str, str]) -> Mapping[str, str | None]:
    """Change no property."""
    return {}


def _nothing(_name: str) -> None:
    """Do nothing."""


class LedgerList:
    """The list in memory (``ledgers``, ``ahead``, ``terminated``, ``properties``) and its stored copy."""

    def __init__(self, name: str, metadata: MetadataStore, layout: StoredLayout | None = None) -> None:
        self.name = name
        self.path = ledger_list_path(name)
        self.ledgers = LedgerMap()
        self.ahead: int | None = None
        """A ledger created before it is needed: in the stored list, not yet in ``ledgers``."""
        self.terminated: Position | None = None
        self.properties: dict[str, str] = {}
        self.created_ms = 0
        self.index_floor: Callable[[], int] = lambda: -1
        """Returns the broker index of the last confirmed entry; every save stores it."""
        self.fenced = False
        self.on_fenced: Callable[[str], None] = _nothing
        """Called with the name at each request that fails because the stored list is of another owner."""
        self.doomed = False
        """Whether the deletion of the managed ledger has begun."""
        self._metadata = metadata
        self._layout = layout or OwnLayout()
        self._version = -1
        self._marks: _Marks = ()
        """Hashes of the facts in the stored list of this version: its ledgers, each with the time of its end, its
        properties and the end of the log. To the list that it finds a new owner adds only the time at which it recovers
        a ledger. Numbers, because the garbage collector looks at all other objects of each idle topic.
        """
        self._unanswered: tuple[tuple[bytes, _Marks], ...] = ()
        """Lists whose saves got no answer since; the stored list may be one of them."""
        self._lock = asyncio.Lock()

    def _change_properties(self, changes: Mapping[str, str | None]) -> dict[str, str | None]:
        """Change the properties in memory, None removes a key; return the changes that undo these."""
        before = {key: self.properties.get(key) for key in changes}
        for key, value in changes.items():
            if value is None:
                self.properties.pop(key, None)
            else:
                self.properties[key] = value
        return before

    @property
    def was_open(self) -> bool:
        """Whether a ledger of the list is open, as its owner left it or writes it now."""
        return any(not slot.closed_at_ms for slot in self.ledgers.slots)

    async def load(self, now_ms: int, *, create_if_missing: bool) -> bool:
        """Read the record, or create an empty record; returns whether the record existed. Raises
        NoSuchManagedLedgerError, LedgerListError, BadVersionError when another owner creates the record at the same
        moment.
        """
        found = await self._metadata.get(self.path)
        if found is not None:
            self._decode(found[0])
            self._stored(self._marks_now(), found[1])
        elif create_if_missing:
            self.created_ms = now_ms
            value = self._encode()
            self._stored((), await self._metadata.put(self.path, value, MUST_NOT_EXIST))
        else:
            raise NoSuchManagedLedgerError(self.name)
        return found is not None

    async def save(self, change: PropertyChange = unchanged) -> None:
        """Store the list, durable on return, with the change of its properties. Saves run one after the other; each
        stores the list as it is when it begins. A failed save takes back its own change alone.

        Raises ManagedLedgerFencedError when another owner changed the stored list, StorageError when the write failed.
        """
        async with self._lock:
            self._check_owner()
            before = self._change_properties(change(self.properties))
            try:
                await self._save()
            except BaseException:
                self._change_properties(before)
                raise

    async def _save(self) -> None:
        value, marks = self._encode(), self._marks_now()
        certain = not set(marks) <= set(self._marks)  # else a new owner may store the same bytes
        try:
            version = await self._own(partial(self._put, value, certain))
        except ManagedLedgerFencedError:
            raise
        except BaseException:  # also for a cancelled caller the outcome is unknown
            if certain:
                self._unanswered = (*self._unanswered, (value, marks))[-_MOST_UNANSWERED:]
            raise
        self._stored(marks, version)

    async def doom(self) -> None:
        """Mark the list: the managed ledger is being deleted, durable on return. Raises as ``save``."""
        async with self._lock:
            self._check_owner()
            await self._check_same_log()
            before, self.doomed = self.doomed, True
            try:
                await self._save()
            except BaseException:
                self.doomed = before
                raise

    async def is_taken_over(self) -> bool:
        """Whether another owner has changed the stored list; later saves then fail. Raises StorageError."""
        async with self._lock:
            return await self._look()

    async def guarded(self, write: Callable[[Guard], Awaitable[T]]) -> T:
        """Return the result of ``write(guard)``, which makes a write under this guard: in the moment of the write no
        other owner has changed the stored list. Raises ManagedLedgerFencedError when another owner has.
        """
        self._check_owner()
        with contextlib.suppress(GuardChangedError):
            return await write(Guard(self.path, self._version))
        async with self._lock:  # the version changes with each save of this owner
            if await self._look():
                raise self._refused()
            return await write(Guard(self.path, self._version))

    async def check_same_log(self) -> None:
        """Raise ManagedLedgerFencedError when the stored list is that of a log that was made anew: its versions begin
        anew, and while one of them is the version that a former owner knows, no compare-and-set refuses the deletion.
        Raises StorageError.
        """
        async with self._lock:
            await self._check_same_log()

    async def _check_same_log(self) -> None:
        found = await self._metadata.get(self.path)
        if found is None or found[1] != self._version:
            return  # the next write finds out
        stored = LedgerList(self.name, self._metadata, self._layout)
        stored._decode(found[0])
        marks = set(self._marks)
        known = all(hash((slot.ledger_id, slot.closed_at_ms)) in marks for slot in stored.ledgers.slots)
        if not known or stored.doomed != self.doomed:
            raise self._refused()

    async def delete(self) -> None:
        async with self._lock:
            await self._check_same_log()
            with contextlib.suppress(NoNodeError):
                await self._own(lambda version: self._metadata.delete(self.path, version))

    async def _put(self, value: bytes, certain: bool, version: int) -> int:
        """Write the list over this version. A store that repeats a write without an answer takes an equal value in the
        next version for its own; the guard refuses a write over any other version.
        """
        return await self._metadata.put(self.path, value, version, None if certain else Guard(self.path, version))

    async def _own(self, write: Callable[[int], Awaitable[T]]) -> T:
        """Return the result of ``write(version)``. After a save without an answer the list may be one version ahead."""
        for _ in range(2):
            with contextlib.suppress(BadVersionError, GuardChangedError):
                return await write(self._version)
            if await self._look():
                break
        raise self._refused()

    async def _look(self) -> bool:
        """Whether the stored list is of another owner."""
        found = await self._metadata.get(self.path)
        own = None if found is None else dict(self._unanswered).get(found[0])
        if found is not None and own is not None and found[1] == self._version + 1:
            self._stored(own, found[1])
        self.fenced = self.fenced or found is None or found[1] != self._version
        return self.fenced

    def _refused(self) -> ManagedLedgerFencedError:
        """The error of a request of an owner that has lost the list."""
        self.fenced = True
        self.on_fenced(self.name)
        return ManagedLedgerFencedError(self.name)

    def _stored(self, marks: _Marks, version: int) -> None:
        self._version, self._marks, self._unanswered = version, marks, ()

    def _marks_now(self) -> _Marks:
        slots = self.ledgers.slots
        marks: list[tuple[object, object]] = list(zip(map(_LEDGER_ID, slots), map(_CLOSED_AT_MS, slots), strict=True))
        marks += [(key, value) for key, value in self.properties.items() if key != INDEX_PROPERTY]
        marks += [] if self.ahead is None else [(self.ahead, 0)]
        marks += [] if self.terminated is None else [("end", self.terminated)]
        marks += [("doomed", True)] if self.doomed else []
        return tuple(map(hash, marks))

    def _check_owner(self) -> None:
        if self.fenced:
            raise self._refused()

    def _encode(self) -> bytes:
        index = max(self.index_floor(), int(self.properties.get(INDEX_PROPERTY, -1)))
        if index >= 0:
            self.properties[INDEX_PROPERTY] = str(index)
        slots = self.ledgers.slots if self.ahead is None else [*self.ledgers.slots, LedgerSlot(self.ahead)]
        record = ListRecord(slots, self.terminated, self.properties, self.created_ms)
        if self.doomed:
            record.properties = self.properties | {DELETION_PROPERTY: record.deletion_mark}
        return self._layout.encode_list(record)

    def _decode(self, value: bytes) -> None:
        try:
            record = self._layout.decode_list(value)
        except LedgerListError as error:
            raise LedgerListError(f"{self.path}: {error}") from error
        self.created_ms = record.created_ms
        self.doomed = record.doomed
        record.properties.pop(DELETION_PROPERTY, None)
        self.properties = record.properties
        self.terminated = record.terminated
        self.ledgers = LedgerMap(record.ledgers)
