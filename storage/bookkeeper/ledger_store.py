"""LedgerStore on BookKeeper. Loop only."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from magnetar.bookkeeper.bookies.isolation import POLICY_KEY, policy_of
from magnetar.bookkeeper.client import BookKeeper
from magnetar.bookkeeper.errors import NoSuchLedgerError as NoSuchBookKeeperLedgerError
from magnetar.bookkeeper.options import ClientOptions, LedgerOptions
from magnetar.bookkeeper.wire.digests import DigestType
from magnetar.storage.bookkeeper.ledger_writer import BookKeeperLedgerWriter, info_of
from magnetar.storage.bookkeeper.read_ahead import ReadAhead
from magnetar.storage.bookkeeper.store_errors import storage_errors
from magnetar.storage.entry_cache import EntryCache
from magnetar.storage.errors import LedgerFencedError, NoSuchEntryError, NoSuchLedgerError, StorageClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from magnetar.bookkeeper.bookies.isolation import IsolationGroups
    from magnetar.bookkeeper.ledgers.reader import LedgerReader
    from magnetar.bookkeeper.ledgers.writer import LedgerWriter
    from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
    from magnetar.storage.interfaces import LedgerInfo
    from magnetar.storage.slab import Slab

    IsolationOf = Callable[[Mapping[str, str]], Awaitable[IsolationGroups | None]]


__all__ = ["BookKeeperLedgerStore", "BookKeeperSettings", "open_bookkeeper_ledgers"]


@dataclass(frozen=True, slots=True)
class BookKeeperSettings:
    """Quorums as Pulsar's ``managedLedgerDefault*``. All brokers of a cluster need the same password."""

    ensemble_size: int = 2
    write_quorum: int = 2
    ack_quorum: int = 2
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    cache_bytes: int = 64 << 20
    """Recent slabs of all ledgers, for readers of the tail."""
    max_record_bytes: int = 5 << 20
    """Largest record (32 bytes of header and the entry); the bookies' frame limit is the other bound."""
    new_ledger_wait_s: float = 10.0
    """The longest time that appends of a managed ledger wait for enough bookies for its next ledger. Cursors do not
    wait: the next save tries again.
    """
    client: ClientOptions = field(default_factory=ClientOptions)

    def ledger_options(self, component: str | None) -> LedgerOptions:
        """The options of a new ledger; Pulsar gives compacted ledgers another digest than all others."""
        digest_type = DigestType.CRC32 if component == "compacted-ledger" else self.digest_type
        return LedgerOptions(self.ensemble_size, self.write_quorum, self.ack_quorum, digest_type, self.password)


_MAX_READERS = 10_000
"""Metadata of closed ledgers kept in memory."""


class BookKeeperLedgerStore:
    """``LedgerStore`` states the guarantees of each method; ``open_bookkeeper_ledgers`` creates the store.

    ``list_ledgers`` returns every ledger of the BookKeeper cluster, also ledgers of other clients. Lengths count the
    records of this project: for each entry 32 bytes more than BookKeeper counts.
    """

    def __init__(self, client: BookKeeper, settings: BookKeeperSettings, cache: EntryCache) -> None:
        self.max_record_bytes = settings.max_record_bytes
        self.cache = cache
        self.isolation_of: IsolationOf = _no_groups
        """Returns the groups of bookies for a new ledger with these properties; None: the groups of the client's
        settings.
        """
        self.on_fenced: Callable[[Mapping[str, str]], None] = lambda _properties: None
        """Called when another client has fenced a ledger that this process writes; the argument is the ledger's
        properties.
        """
        client.on_fenced = self._fenced
        self._client, self._settings = client, settings
        self._writers: WeakValueDictionary[int, BookKeeperLedgerWriter] = WeakValueDictionary()
        """Writers of ledgers that are not closed, as long as the owner of a ledger has its writer: the writer of a log
        that moved away goes with the log.
        """
        self._readers: OrderedDict[int, LedgerReader] = OrderedDict()
        self._recoveries: dict[int, asyncio.Future[LedgerInfo | None]] = {}
        """By ledger id; the result is None when the caller that recovers the ledger was cancelled."""
        self._creations: dict[str, asyncio.Future[None]] = {}
        """Managed ledger -> future whose result ends the wait for the bookies of its next ledger."""
        self._ahead = ReadAhead(cache)
        self._closed = False

    def has_bookies(self) -> bool:
        """Whether enough bookies are registered for a new ledger."""
        return len(self._client.bookies.writable) >= self._settings.ensemble_size

    async def create(self, properties: Mapping[str, str] | None = None) -> BookKeeperLedgerWriter:
        self._check_open()
        kept = dict(properties or {})
        if kept.get("component") == "managed-ledger" and "pulsar/cursor" not in kept:
            adds = await self._create_patiently(kept, kept.get("pulsar/managed-ledger", ""))
        else:
            # The official C++ client does not repeat a SUBSCRIBE whose schema could not be stored.
            wait_s = self._settings.new_ledger_wait_s if kept.get("component") == "schema" else 0.0
            adds = await self._create(kept, wait_s=wait_s)
        writer = BookKeeperLedgerWriter(adds, kept, self.max_record_bytes, self.cache.put, self._forget)
        self._writers[writer.ledger_id] = writer
        return writer

    def give_up_creation(self, managed_ledger: str) -> None:
        """Have a ``create`` for this managed ledger fail now if it waits for bookies."""
        given_up = self._creations.get(managed_ledger)
        if given_up is not None and not given_up.done():
            given_up.set_result(None)

    async def open_recover(self, ledger_id: int) -> LedgerInfo:
        self._check_open()
        while (running := self._recoveries.get(ledger_id)) is not None:
            info = await asyncio.shield(running)
            if info is not None:
                return info
        running = self._recoveries[ledger_id] = asyncio.get_running_loop().create_future()
        try:
            info = await self._recover(ledger_id)
        except asyncio.CancelledError:
            running.set_result(None)  # the next caller recovers the ledger
            raise
        except BaseException as error:
            running.set_exception(error)
            running.exception()  # mark the exception as retrieved: there may be no other caller
            raise
        finally:
            del self._recoveries[ledger_id]
        running.set_result(info)
        return info

    def read_cached(self, ledger_id: int, first: int, last: int, max_bytes: int) -> Slab | None:  # noqa: ARG002 - hints for stores that copy
        slab = self.cache.get(ledger_id, first)
        if slab is not None:
            self._ahead.touched(slab)
        return slab

    async def read(self, ledger_id: int, first: int, last: int, max_bytes: int) -> list[Slab]:
        self._check_open()
        with storage_errors():
            reader = await self._reader(ledger_id, first)
        if not 0 <= first <= reader.last_add_confirmed:
            raise NoSuchEntryError(ledger_id, first)
        cached = self.cache.get(ledger_id, first)
        if cached is not None:
            self._ahead.touched(cached)
            return [cached]
        with storage_errors():
            return [await self._ahead.read(reader, first, min(last, reader.last_add_confirmed), max_bytes)]

    async def delete(self, ledger_id: int) -> None:
        self._check_open()
        writer = self._writers.pop(ledger_id, None)
        if writer is not None:
            writer.refusal = NoSuchLedgerError(ledger_id)
        self._readers.pop(ledger_id, None)
        with storage_errors(), contextlib.suppress(NoSuchBookKeeperLedgerError):
            await self._client.delete(ledger_id)
        self._ahead.forget(ledger_id)
        self.cache.drop_ledger(ledger_id)

    async def list_ledgers(self) -> list[int]:
        self._check_open()
        with storage_errors():
            return sorted([ledger_id async for ledger_id in self._client.ledger_ids()])

    async def properties(self, ledger_id: int) -> Mapping[str, str]:
        self._check_open()
        writer = self._writers.get(ledger_id)
        if writer is not None:
            return writer.properties
        reader = self._readers.get(ledger_id)
        if reader is not None:
            return _texts(reader.custom_metadata)
        with storage_errors():
            return _texts((await self._client.metadata(ledger_id)).custom)

    async def close(self) -> None:
        """Open ledgers stay open in BookKeeper until their next owner recovers them. The metadata session stays
        open.
        """
        if not self._closed:
            self._closed = True
            await self._ahead.close()
            await self._client.close()

    async def _recover(self, ledger_id: int) -> LedgerInfo:
        writer = self._writers.get(ledger_id)
        if writer is not None:
            writer.refusal = writer.refusal or LedgerFencedError(ledger_id)
            await writer.wait_idle()
        with storage_errors():
            metadata = (await self._client.recover(ledger_id, self._settings.password)).metadata
        self._writers.pop(ledger_id, None)
        self._keep(ledger_id, self._client.reader_of_closed(ledger_id, metadata))
        return info_of(ledger_id, metadata, _texts(metadata.custom))

    async def _reader(self, ledger_id: int, first: int) -> LedgerReader:
        """Return a reader of the ledger for entries from `first` on. It reads up to the last confirmed entry of a
        ledger that this process writes, and all entries of any other ledger. Readers of closed ledgers are kept for
        later calls.

        A writer that failed stays until its log is closed or the ledger is recovered, perhaps by another owner of the
        log, which may find entries that the writer did not confirm; the log may return with them.
        """
        writer = self._writers.get(ledger_id)
        if (
            writer is not None
            and not writer.adds.metadata.is_closed
            and (writer.adds.failure is None or first <= writer.last_add_confirmed)
        ):
            reader = self._client.reader_of(writer.adds)
            reader.last_add_confirmed = writer.last_add_confirmed
            return reader
        known = self._readers.get(ledger_id)
        if known is not None:
            self._readers.move_to_end(ledger_id)
            return known
        reader = await self._client.open(ledger_id, self._settings.password, recover_first=False)
        if reader.is_closed:
            self._writers.pop(ledger_id, None)
            self._keep(ledger_id, reader)
        return reader

    def _keep(self, ledger_id: int, reader: LedgerReader) -> None:
        self._readers[ledger_id] = reader
        while len(self._readers) > _MAX_READERS:
            self._readers.popitem(last=False)

    async def _create_patiently(self, kept: Mapping[str, str], managed_ledger: str) -> LedgerWriter:
        """Wait for enough bookies. ``give_up_creation`` ends the wait, also before the wait has begun."""
        given_up = self._creations[managed_ledger] = asyncio.get_running_loop().create_future()
        try:
            return await self._create(kept, wait_s=self._settings.new_ledger_wait_s, given_up=given_up)
        finally:
            if self._creations.get(managed_ledger) is given_up:
                del self._creations[managed_ledger]

    async def _create(
        self, kept: Mapping[str, str], *, wait_s: float = 0.0, given_up: asyncio.Future[None] | None = None
    ) -> LedgerWriter:
        custom = {key: value.encode(errors="surrogateescape") for key, value in kept.items()}
        ledger_id = None
        if self.has_bookies():  # else each attempt of an outage would use up an id
            isolation, ledger_id = await asyncio.gather(self.isolation_of(kept), self._new_id())
        else:
            isolation = await self.isolation_of(kept)
        if isolation is not None:
            custom[POLICY_KEY] = policy_of(isolation)
        options = self._settings.ledger_options(kept.get("component"))
        with storage_errors():
            return await self._client.create(options, custom, wait_s=wait_s, given_up=given_up, ledger_id=ledger_id)

    async def _new_id(self) -> int:
        with storage_errors():
            return await self._client.new_ledger_id()

    def _forget(self, writer: BookKeeperLedgerWriter) -> None:
        if self._writers.get(writer.ledger_id) is writer:
            del self._writers[writer.ledger_id]

    def _fenced(self, ledger_id: int) -> None:
        writer = self._writers.get(ledger_id)
        if writer is not None and writer.refusal is None:
            self.on_fenced(writer.properties)

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosedError("the store is closed")


async def _no_groups(_properties: Mapping[str, str]) -> IsolationGroups | None:
    return None


def _texts(custom: Mapping[str, bytes]) -> dict[str, str]:
    """Return the properties as text. Bytes that are no UTF-8 are kept: ``create`` writes the same bytes again."""
    return {key: value.decode(errors="surrogateescape") for key, value in custom.items()}


async def open_bookkeeper_ledgers(
    session: ZooKeeperSession, root: str, settings: BookKeeperSettings
) -> BookKeeperLedgerStore:
    """Return the store of the BookKeeper cluster whose metadata are below `root` (``/ledgers``). The caller keeps
    the session and closes the store before the session.

    Raises StorageUnavailableError, StorageError (there is no such cluster).
    """
    with storage_errors():
        client = await BookKeeper.over(session, root, settings.client)
    return BookKeeperLedgerStore(client, settings, EntryCache(settings.cache_bytes))
