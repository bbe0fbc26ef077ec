"""The client: create, open, list and delete ledgers of one BookKeeper cluster."""

from __future__ import annotations

import asyncio
import random
import secrets
from typing import TYPE_CHECKING, Self

from magnetar.bookkeeper.background import Background
from magnetar.bookkeeper.bookies.disk_weights import DiskWeights
from magnetar.bookkeeper.bookies.placement import equal_weight
from magnetar.bookkeeper.bookies.pool import BookiePool, connect_tcp
from magnetar.bookkeeper.bookies.secure_connect import SecureConnect
from magnetar.bookkeeper.deadlines import deadline
from magnetar.bookkeeper.errors import (
    ClientClosedError,
    LedgerFencedError,
    MetadataUnavailableError,
    NodeExistsError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    WrongPasswordError,
)
from magnetar.bookkeeper.ledgers.fencing import read_last_confirmed
from magnetar.bookkeeper.ledgers.ledger_context import LedgerContext
from magnetar.bookkeeper.ledgers.ledger_watch import WATCHES_TOGETHER, LedgerWatch
from magnetar.bookkeeper.ledgers.reader import LedgerReader
from magnetar.bookkeeper.ledgers.recovery import recover
from magnetar.bookkeeper.ledgers.writer import LedgerWriter
from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata, Segment, Versioned
from magnetar.bookkeeper.options import ClientOptions, LedgerOptions
from magnetar.bookkeeper.service_uri import parse_service_uri
from magnetar.bookkeeper.wire.digests import Digester, DigestType, master_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import TracebackType

    from magnetar.bookkeeper.bookies.pool import Connect
    from magnetar.bookkeeper.metadata.ports import BookieRegistry, LedgerMetadataStore
    from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession

__all__ = ["BookKeeper"]

_TOKEN_BITS = 63


class BookKeeper:
    """Use ``async with await BookKeeper.connect("zk+hierarchical://127.0.0.1:2181/ledgers") as client``."""

    def __init__(
        self,
        store: LedgerMetadataStore,
        registry: BookieRegistry,
        options: ClientOptions,
        background: Background,
        *,
        connect: Connect | None = None,
        chance: random.Random | None = None,
        own_session: ZooKeeperSession | None = None,
    ) -> None:
        self._background, self._own_session = background, own_session
        pool = BookiePool(registry, options, background, connect or _connector(options))
        chance = chance or random.Random()  # noqa: S311 - spreads load, keeps no secret
        weight_of: Callable[[str], float] = equal_weight
        if options.disk_weights:
            weights = DiskWeights(registry, options, SecureConnect(options.security).free_space)
            background.start(weights.run(), "disk weights")
            weight_of = weights.weight
        slots = asyncio.Semaphore(WATCHES_TOGETHER)
        self._context = LedgerContext(store, registry, pool, options, background, chance, slots, weight_of)
        self._writers: dict[int, LedgerWriter] = {}
        self.on_fenced: Callable[[int], None] = lambda _ledger_id: None
        """Called with the id of a ledger whose writer another client fenced, with or without an add under way."""
        self._closed = False

    @classmethod
    async def connect(cls, uri: str, options: ClientOptions | None = None) -> BookKeeper:
        """Return a client that opens a ZooKeeper session for itself. Raises MetadataError."""
        from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession  # noqa: PLC0415 - kazoo is an extra
        from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions  # noqa: PLC0415

        servers, root = parse_service_uri(uri)
        session = await ZooKeeperSession.connect(ZooKeeperOptions(servers))
        try:
            return await cls.over(session, root, options, own_session=True)
        except BaseException:
            await session.close()
            raise

    @classmethod
    async def over(
        cls,
        session: ZooKeeperSession,
        root: str = "/ledgers",
        options: ClientOptions | None = None,
        *,
        own_session: bool = False,
    ) -> BookKeeper:
        """Return a client over a ZooKeeper session that other parts of the process use too. With `own_session`,
        ``close`` also closes the session.
        """
        from magnetar.bookkeeper.metadata.zookeeper_metadata import ZooKeeperLedgerMetadata  # noqa: PLC0415
        from magnetar.bookkeeper.metadata.zookeeper_registry import ZooKeeperRegistry  # noqa: PLC0415

        background = Background("bookkeeper")
        try:
            store = await ZooKeeperLedgerMetadata.open(session, root, background)
            registry = await ZooKeeperRegistry.open(session, root, background)
        except BaseException:
            await background.close()
            raise
        owned = session if own_session else None
        return cls(store, registry, options or ClientOptions(), background, own_session=owned)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def bookies(self) -> BookieRegistry:
        """The bookies registered now."""
        return self._context.registry

    async def create(
        self,
        options: LedgerOptions | None = None,
        custom_metadata: Mapping[str, bytes] | None = None,
        *,
        wait_s: float = 0.0,
        given_up: asyncio.Future[None] | None = None,
        ledger_id: int | None = None,
    ) -> LedgerWriter:
        """Create an empty ledger and return its writer. On return the metadata are durable; the bookies store nothing
        of the ledger before its first entry. While too few bookies are registered, the call waits for `wait_s`, at most
        until `given_up` has a result. `ledger_id`: a result of ``new_ledger_id``.

        Raises NotEnoughBookiesError, MetadataError.
        """
        self._check_open()
        wanted = options or LedgerOptions()
        ensemble = await self._new_ensemble(wanted, custom_metadata or {}, wait_s, given_up)
        self._check_open()
        metadata = LedgerMetadata(
            ensemble_size=wanted.ensemble_size,
            write_quorum=wanted.write_quorum,
            ack_quorum=wanted.ack_quorum,
            segments=(Segment(0, ensemble),),
            digest_type=wanted.digest_type,
            password=wanted.password,
            custom=dict(custom_metadata or {}),
            token=secrets.randbits(_TOKEN_BITS),
        )
        while True:
            if ledger_id is None:
                ledger_id = await self._context.store.new_ledger_id()
            version = await self._create_node(ledger_id, metadata)
            if version is not None:
                break
            ledger_id = None
        self._check_open()
        writer = LedgerWriter(self._context, ledger_id, metadata, version, self._forget)
        self._writers[ledger_id] = writer
        LedgerWatch(writer, self._context).start()
        return writer

    async def new_ledger_id(self) -> int:
        """Return an id for ``create`` that no ledger has: for a caller that reads the options of its ledger meanwhile.
        Raises MetadataError.
        """
        self._check_open()
        return await self._context.store.new_ledger_id()

    async def open(
        self,
        ledger_id: int,
        password: bytes = b"",
        *,
        recover_first: bool = True,
        digest_type: DigestType | None = None,
    ) -> LedgerReader:
        """Return a reader of the ledger. The client first recovers a ledger that is not closed: then its writer, in any
        process, can add no more entries, and every acknowledged entry stays. With ``recover_first=False`` the ledger
        stays unchanged, and the reader ends at the last add confirmed that the bookies have stored.

        Raises NoSuchLedgerError, WrongPasswordError, RecoveryFailedError, MetadataError.
        """
        self._check_open()
        found = await self._context.store.read(ledger_id, latest=True)
        self._check_password(ledger_id, found.metadata, password)
        metadata = found.metadata
        if not metadata.is_closed and recover_first:
            metadata = (await self.recover(ledger_id, password, digest_type=digest_type)).metadata
        kind = metadata.digest_type or digest_type or DigestType.CRC32
        digester = Digester(kind, password)
        last = metadata.last_entry_id
        if not metadata.is_closed:
            key = master_key(password)
            last = await read_last_confirmed(self._context, ledger_id, metadata, digester, key, fence=False)
        return LedgerReader(self._context, ledger_id, metadata, digester, last)

    async def recover(
        self, ledger_id: int, password: bytes = b"", *, digest_type: DigestType | None = None
    ) -> Versioned:
        """Fence the ledger's writer, find the last entry, close the ledger, and return its final metadata. Idempotent.

        Raises as ``open``.
        """
        self._check_open()
        writer = self._writers.get(ledger_id)
        if writer is not None:
            # writer and recovery both need the answers to this ledger's adds; a connection has one sink per ledger
            writer.fail(LedgerFencedError(ledger_id, "this client recovers it"))
        return await recover(self._context, ledger_id, digest_type, password)

    async def delete(self, ledger_id: int) -> None:
        """Delete the metadata; bookies free the space at their next collection. Raises NoSuchLedgerError."""
        self._check_open()
        writer = self._writers.get(ledger_id)
        if writer is not None:
            writer.fail(NoSuchLedgerError(ledger_id, "it was deleted"))
        await self._context.store.delete(ledger_id)

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Return the metadata as stored now; the call fences nothing. Raises NoSuchLedgerError."""
        self._check_open()
        return (await self._context.store.read(ledger_id, latest=True)).metadata

    def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers of the cluster, ascending within each directory of the metadata."""
        self._check_open()
        return self._context.store.ledger_ids()

    def reader_of(self, writer: LedgerWriter) -> LedgerReader:
        """Return a reader of the entries that a writer of this client has confirmed until now."""
        return self._reader(writer.ledger_id, writer.metadata, writer.last_add_confirmed)

    def reader_of_closed(self, ledger_id: int, metadata: LedgerMetadata) -> LedgerReader:
        """Return a reader of a closed ledger with these metadata, the result of ``recover``; no request is made."""
        return self._reader(ledger_id, metadata, metadata.last_entry_id)

    def _reader(self, ledger_id: int, metadata: LedgerMetadata, last: int) -> LedgerReader:
        digester = Digester(metadata.digest_type or DigestType.CRC32, metadata.password or b"")
        return LedgerReader(self._context, ledger_id, metadata, digester, last)

    async def close(self) -> None:
        """Drop the connections; waiting adds fail. Ledgers that are still open are not closed, and a later open has to
        recover them: close the writers first. Idempotent.
        """
        if self._closed:
            return
        self._closed = True
        for writer in list(self._writers.values()):
            writer.abandon()
        self._context.pool.close()
        await self._background.close()
        if self._own_session is not None:
            await self._own_session.close()

    async def _new_ensemble(
        self, wanted: LedgerOptions, custom: Mapping[str, bytes], wait_s: float, given_up: asyncio.Future[None] | None
    ) -> tuple[str, ...]:
        """Return the bookies of a new ledger, chosen again after each change of the registered bookies."""
        changed = asyncio.Event()
        cancel = self._context.registry.on_change(changed.set)
        if given_up is not None:
            given_up.add_done_callback(lambda _ended: changed.set())
        try:
            async with deadline(wait_s):
                while (chosen := self._context.new_ensemble(wanted, custom)) is None:
                    if given_up is not None and given_up.done():
                        break
                    await changed.wait()
                    changed.clear()
                else:
                    return chosen
        except TimeoutError:
            pass
        finally:
            cancel()
        known = len(self._context.registry.writable)
        limits = " within the groups and racks that the placement requires" if known >= wanted.ensemble_size else ""
        detail = f"an ensemble of {wanted.ensemble_size}{limits}, but {known} writable bookies"
        raise NotEnoughBookiesError(-1, detail)

    async def _create_node(self, ledger_id: int, metadata: LedgerMetadata) -> int | None:
        """Return the version of the created node; None when another ledger has the id."""
        try:
            return await self._context.store.create(ledger_id, metadata)
        except (NodeExistsError, MetadataUnavailableError):
            try:
                found = await self._context.store.read(ledger_id, latest=True)
            except NoSuchLedgerError:
                return None
            return found.version if found.metadata == metadata else None

    @staticmethod
    def _check_password(ledger_id: int, metadata: LedgerMetadata, password: bytes) -> None:
        if metadata.password is not None and metadata.password != password:
            raise WrongPasswordError(ledger_id)

    def _forget(self, writer: LedgerWriter) -> None:
        if self._writers.get(writer.ledger_id) is writer:
            del self._writers[writer.ledger_id]
            if isinstance(writer.failure, LedgerFencedError):
                self.on_fenced(writer.ledger_id)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("the client is closed")


def _connector(options: ClientOptions) -> Connect:
    """Raises TlsFilesError."""
    security = options.security
    return connect_tcp if security.tls is None and security.credentials is None else SecureConnect(security)
