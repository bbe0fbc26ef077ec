"""The environment that all managed ledgers of a factory share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.interfaces import Clock, LedgerStore, MetadataStore, Scheduler
    from magnetar.storage.managed.stored_layout import StoredLayout

__all__ = ["StorageEnv"]


@dataclass(frozen=True, slots=True)
class StorageEnv:
    """The store of ledgers, the metadata, the time, and the layout of records."""

    ledgers: LedgerStore
    metadata: MetadataStore
    clock: Clock
    scheduler: Scheduler
    layout: StoredLayout
    may_roll: Callable[[], bool] = lambda: True
    """Whether the store can seal a ledger and create the next ledger now. Otherwise a full ledger takes more entries,
    within bounds.
    """
