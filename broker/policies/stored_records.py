"""Records of one kind in the metadata store, mirrored in memory: readers use memory, which changes after the write is
durable.

A change keeps members of a record that this broker does not know: a newer version of Apache Pulsar, whose brokers share
the record, has written them. It drops such members of values within the record, for example of a quota. An unknown name
in place of one of a set counts as null.
"""

import asyncio
import bisect
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec
import structlog

from magnetar.broker.compat import wire_refusals
from magnetar.broker.compat.jackson_body import fitted
from magnetar.broker.errors import UNREADABLE, UnreadableRecordError
from magnetar.storage.errors import BadVersionError
from magnetar.storage.interfaces import ANY_VERSION, MUST_NOT_EXIST

if TYPE_CHECKING:
    from magnetar.storage.interfaces import MetadataStore

T = TypeVar("T", bound=msgspec.Struct)
log = structlog.get_logger(__name__)


class ExistsError(Exception):
    """A record of this name exists already."""


class MissingError(Exception):
    """The record to change or delete does not exist."""


class Records(Generic[T]):
    """One kind of record: name -> value, mirrored in memory."""

    def __init__(self, metadata: "MetadataStore", kind: type[T], path_of: Callable[[str], str]) -> None:
        self._metadata = metadata
        self._kind = kind
        self._path_of = path_of
        self._values: dict[str, T] = {}
        self._names: list[str] = []
        """The names of all records, sorted: a tenant's names are found without a look at those of others."""
        self._stored: dict[str, tuple[int, int]] = {}
        """Version and hash of the bytes: a record that was deleted and made anew may have the same version."""
        self._unreadable: set[str] = set()
        """The names of stored records that could not be read, and have no earlier value."""
        self._members = {field.encode_name for field in msgspec.structs.fields(kind)}
        self._further: dict[str, dict[str, msgspec.Raw]] = {}
        """Members of stored records that ``kind`` does not have, of a newer version of Apache Pulsar."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """The locks of the records that are being read or written."""

    def __contains__(self, name: str) -> bool:
        return name in self._values or name in self._unreadable

    def get(self, name: str) -> T | None:
        """Return the record, None if it does not exist. Raises UnreadableRecordError."""
        if name in self._unreadable:
            raise self._refusal(name)
        return self._values.get(name)

    def names(self) -> list[str]:
        """Return the names of all records, sorted."""
        return list(self._names)

    def names_under(self, prefix: str) -> list[str]:
        """Return the names of the records that begin with the prefix, sorted."""
        start = bisect.bisect_left(self._names, prefix)
        end = bisect.bisect_left(self._names, True, start, key=lambda name: not name.startswith(prefix))
        return self._names[start:end]

    def readable(self) -> list[str]:
        """Return the names of all records that can be read, without sorting them."""
        return list(self._values)

    def is_readable(self, name: str) -> bool:
        """Whether the record exists and can be read."""
        return name in self._values

    def _list(self, name: str) -> None:
        """Have the name among the sorted names if the record exists, and not otherwise."""
        at = bisect.bisect_left(self._names, name)
        is_listed = at < len(self._names) and self._names[at] == name
        if is_listed and name not in self:
            del self._names[at]
        elif not is_listed and name in self:
            self._names.insert(at, name)

    def in_work(self) -> list[str]:
        """Return the names of the records that are being read or written."""
        return list(self._locks)

    async def load(self, name: str) -> bool:
        """Read one record from the store; remove it from memory if the store has none. Return whether the record
        changed. Raises UnreadableRecordError, and keeps an earlier value.
        """
        async with self._lock(name):
            return await self._read(name)

    async def load_at_start(self, name: str) -> None:
        """Read one record from the store, and only report if it cannot be read."""
        try:
            await self.load(name)
        except UnreadableRecordError as error:
            log.warning("record.not_readable", path=self._path_of(name), reason=str(error.__cause__))

    async def _read(self, name: str) -> bool:
        found = await self._metadata.get(self._path_of(name))
        if found is None:
            self._stored.pop(name, None)
            self._further.pop(name, None)
            was_unreadable = name in self._unreadable
            self._unreadable.discard(name)
            was_readable = self._values.pop(name, None) is not None
            self._list(name)
            return was_readable or was_unreadable
        stored = found[1], hash(found[0])
        if self._stored.get(name) == stored:
            return False
        try:
            members = msgspec.json.decode(found[0], type=dict[str, msgspec.Raw])
            self._values[name] = self._value_of(found[0], members)
        except UNREADABLE as error:
            if name not in self._values:
                self._unreadable.add(name)
                self._list(name)
            raise self._refusal(name) from error
        self._unreadable.discard(name)
        self._list(name)
        self._stored[name] = stored
        self._further.pop(name, None)
        if further := {key: value for key, value in members.items() if key not in self._members}:
            self._further[name] = further
        return True

    def _value_of(self, text: bytes, members: dict[str, msgspec.Raw]) -> T:
        """Return the record; a member with null counts as absent, and an unknown name in place of one of a set as
        null, as in Apache Pulsar. Raises UNREADABLE.
        """
        try:
            return msgspec.json.decode(text, type=self._kind)
        except msgspec.ValidationError:
            given = {key: value for key, value in members.items() if value != msgspec.Raw(b"null")}
            text = msgspec.json.encode(given)
        try:
            return msgspec.json.decode(text, type=self._kind)
        except msgspec.ValidationError:
            value = fitted(msgspec.json.decode(text), self._kind)
            assert value is not None, "null is no object"
            return value

    def _refusal(self, name: str) -> UnreadableRecordError:
        return wire_refusals.RECORD_UNREADABLE.error(path=self._path_of(name))

    async def create(self, name: str, value: T) -> None:
        """Store a new record; raises ExistsError."""
        async with self._lock(name):
            if name in self:
                raise ExistsError(name)
            try:
                await self._store(name, value, MUST_NOT_EXIST)
            except BadVersionError as error:
                raise ExistsError(name) from error  # another broker created the record first

    async def update(self, name: str, change: Callable[[T], T], default: T | None = None) -> T:
        """Replace a record by `change(record)`; without a record starts from `default` or raises MissingError."""
        async with self._lock(name):
            if name in self._unreadable:
                raise self._refusal(name)
            while True:
                current = self._values.get(name, default)
                if current is None:
                    raise MissingError(name)
                value = change(current)
                try:
                    await self._store(name, value, self._version_of(name, MUST_NOT_EXIST))
                except BadVersionError:
                    if not await self._read(name):
                        raise
                    continue  # another broker changed the record: apply the change to the new record
                return value

    async def delete(self, name: str) -> None:
        """Remove a record, also an unreadable record; raises MissingError."""
        async with self._lock(name):
            if name not in self:
                raise MissingError(name)
            await self._metadata.delete(self._path_of(name), self._version_of(name, ANY_VERSION))
            self._unreadable.discard(name)
            self._values.pop(name, None)
            self._list(name)
            self._stored.pop(name, None)
            self._further.pop(name, None)

    async def _store(self, name: str, value: T, version: int | None) -> None:
        text = msgspec.json.encode(value)
        if further := self._further.get(name):
            text = msgspec.json.encode(msgspec.json.decode(text, type=dict[str, msgspec.Raw]) | further)
        self._stored[name] = await self._metadata.put(self._path_of(name), text, version), hash(text)
        self._values[name] = value
        self._list(name)

    def _version_of(self, name: str, otherwise: int | None) -> int | None:
        stored = self._stored.get(name)
        return otherwise if stored is None else stored[0]

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())
