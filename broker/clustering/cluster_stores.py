"""The stores of a member of a cluster: metadata on ZooKeeper, ledgers on BookKeeper, over one ZooKeeper session."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.bookkeeper.errors import BookKeeperError
from magnetar.bookkeeper.wire.digests import DigestType
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.bookkeeper.zookeeper.values import SessionState
from magnetar.broker.clustering.bookie_client import client_options
from magnetar.broker.clustering.pulsar_paths import PulsarPaths
from magnetar.broker.clustering.seen_values import SeenValues
from magnetar.broker.clustering.zookeeper_client_file import zookeeper_options
from magnetar.storage.bookkeeper.ledger_store import BookKeeperSettings, open_bookkeeper_ledgers
from magnetar.storage.embedded.engine_stats import EngineStats, HistogramStats
from magnetar.storage.embedded.health import Health
from magnetar.storage.errors import StorageUnavailableError
from magnetar.storage.histogram import BUCKET_SECONDS
from magnetar.storage.zookeeper.zookeeper_metadata import ZooKeeperMetadataStore

if TYPE_CHECKING:
    from magnetar.broker.clustering.cluster_settings import ClusterServices
    from magnetar.broker.settings import Settings
    from magnetar.storage.bookkeeper.ledger_store import BookKeeperLedgerStore
    from magnetar.storage.entry_cache import EntryCache

__all__ = ["ClusterStores", "open_cluster_stores"]

_CONNECT_S = 30.0
_DIGESTS = {
    "CRC32C": DigestType.CRC32C,
    "CRC32": DigestType.CRC32,
    "MAC": DigestType.HMAC,
    "DUMMY": DigestType.DUMMY,
}
"""The digest types by Apache Pulsar's names."""
_CLUSTERS = "/admin/clusters"


class ClusterStores:
    """The ``Stores`` of a cluster. All of them are remote: a service that does not answer may answer again at any
    time.
    """

    def __init__(self, session: ZooKeeperSession, metadata: PulsarPaths, ledgers: BookKeeperLedgerStore) -> None:
        self.metadata = metadata
        self.ledgers = ledgers
        self.cache: EntryCache = ledgers.cache
        self.health = Health()
        self._session = session
        self._closed = False

    def stats(self) -> EngineStats:
        """Return the figures; those of a local disk are 0."""
        nothing = HistogramStats(BUCKET_SECONDS, (0,) * (len(BUCKET_SECONDS) + 1), 0.0)
        return EngineStats(
            appended_entries=0,
            appended_bytes=0,
            journal_frames=0,
            journal_bytes=0,
            journal_batches=0,
            journal_sync=nothing,
            unwritten_bytes=0,
            checkpoints=0,
            checkpoint_duration=nothing,
            file_reads=0,
            file_read_bytes=0,
            read_aheads=0,
            corrupt_entries=0,
            cache=self.cache.stats(),
            open_files=0,
            loaded_ledgers=0,
            state="running",
            full_sources=(),
            disk_used_part=None,
        )

    def may_roll(self) -> bool:
        """Whether a new ledger can be created: the ZooKeeper session is connected, and enough bookies are
        registered.
        """
        return self._session.state is SessionState.CONNECTED and self.ledgers.has_bookies()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self.ledgers.close()
        await self.metadata.close()
        await self._session.close()


async def open_cluster_stores(
    settings: Settings, services: ClusterServices, cache_bytes: int, max_record_bytes: int
) -> ClusterStores:
    """Return the connected stores. Raises StorageUnavailableError, ValueError for a cluster that was not initialized or
    a file that is not usable.
    """
    options = replace(
        zookeeper_options(services.servers, services.security, settings.metadata_store_session_timeout_millis),
        connect_timeout_s=_CONNECT_S,
        request_timeout_s=float(settings.metadata_store_operation_timeout_seconds),
    )
    client = client_options(settings)
    try:
        session = await ZooKeeperSession.connect(options)
    except BookKeeperError as error:
        raise StorageUnavailableError(str(error)) from error
    try:
        seen = SeenValues(settings.metadata_large_values_in_mb << 20)
        metadata = PulsarPaths(ZooKeeperMetadataStore(session), seen)
        await _check_initialized(metadata, settings.cluster_name, services.servers)
        ledgers = await open_bookkeeper_ledgers(
            session,
            services.ledgers_root,
            BookKeeperSettings(
                ensemble_size=settings.managed_ledger_default_ensemble_size,
                write_quorum=settings.managed_ledger_default_write_quorum,
                ack_quorum=settings.managed_ledger_default_ack_quorum,
                digest_type=_DIGESTS[settings.managed_ledger_digest_type],
                cache_bytes=cache_bytes,
                max_record_bytes=max_record_bytes,
                client=client,
            ),
        )
    except BookKeeperError as error:
        await session.close()
        raise StorageUnavailableError(str(error)) from error
    except BaseException:
        await session.close()
        raise
    return ClusterStores(session, metadata, ledgers)


async def _check_initialized(metadata: PulsarPaths, cluster: str, servers: str) -> None:
    if await metadata.get(f"{_CLUSTERS}/{cluster}") is None:
        raise ValueError(
            f"the metadata at {servers} have no cluster {cluster!r}: set clusterName, or create it with `magnetar "
            "initialize-cluster-metadata`"
        )
