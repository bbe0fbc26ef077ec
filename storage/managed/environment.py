"""The environment that all managed ledgers of a factory share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.storage.managed.cursors.parts_room import PartsRoom

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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
    created_ms: Callable[[str], Awaitable[int]] | None = None
    """Reads the time when the node of a path was created, for a layout whose records have no such time."""
    may_roll: Callable[[], bool] = lambda: True
    """Whether the store can seal a ledger and create the next ledger now. Otherwise a full ledger takes more entries,
    within bounds.
    """
    give_up_creation: Callable[[str], None] = lambda _name: None
    """Has the creation of the managed ledger's next ledger fail now if the creation waits for its store."""
    on_unsaved: Callable[[], None] = lambda: None
    """Called when a cursor ends whose last acknowledgements could not be saved."""
    parts_room: PartsRoom = field(default_factory=PartsRoom)
    """The memory of partial acknowledgements, which all cursors share."""
