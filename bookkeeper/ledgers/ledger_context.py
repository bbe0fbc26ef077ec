"""The context of every part of a ledger's work: the services of the client, handed down as one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random

    from magnetar.bookkeeper.background import Background
    from magnetar.bookkeeper.bookies.pool import BookiePool
    from magnetar.bookkeeper.metadata.ports import BookieRegistry, LedgerMetadataStore
    from magnetar.bookkeeper.options import ClientOptions

__all__ = ["LedgerContext"]


class LedgerContext(NamedTuple):
    store: LedgerMetadataStore
    registry: BookieRegistry
    pool: BookiePool
    options: ClientOptions
    background: Background
    chance: Random

    def writable_bookies(self, *, quarantined: bool = False) -> list[str]:
        """Bookies for new ensembles: without those in quarantine unless asked for."""
        return [b for b in self.registry.writable if quarantined or not self.pool.is_quarantined(b)]
