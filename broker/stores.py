"""The stores that a broker needs, independent of the engine: embedded, or the services of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from magnetar.storage.embedded.engine_stats import EngineStats
    from magnetar.storage.embedded.health import Health
    from magnetar.storage.entry_cache import CacheStats
    from magnetar.storage.interfaces import LedgerStore, MetadataStore

__all__ = ["SizedCache", "Stores"]


class SizedCache(Protocol):
    """Recent entries in memory."""

    max_bytes: int

    def stats(self) -> CacheStats: ...


class Stores(Protocol):
    """Open until ``close``."""

    @property
    def ledgers(self) -> LedgerStore: ...

    @property
    def metadata(self) -> MetadataStore: ...

    @property
    def cache(self) -> SizedCache: ...

    @property
    def health(self) -> Health: ...

    def stats(self) -> EngineStats:
        """Counters since start and present sizes, for metrics."""
        ...

    async def close(self) -> None:
        """Finish pending operations. Idempotent."""
        ...
