"""The next ledger of a log whose owner was writing when it ended: created while the log opens, because producers come
back at once and the creation takes as many answers of the metadata store as the recovery.

No list names the ledger yet, so its creation needs no ownership; the log takes it as its reserve (``LedgerSwitch``).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.errors import StorageError
from magnetar.storage.managed.background import Background

if TYPE_CHECKING:
    from magnetar.storage.interfaces import LedgerWriter
    from magnetar.storage.managed.environment import StorageEnv
    from magnetar.storage.managed.ledger_list import LedgerList

__all__ = ["KEPT_S", "EarlyReserve", "Opened", "early_reserve", "ledger_properties"]

KEPT_S = 60.0
"""The time for which a log keeps the reserve of its opening: a ledger that is used later may have lost its bookies."""


def ledger_properties(managed_ledger: str) -> dict[str, str]:
    """The properties of a ledger of the log, with Pulsar's names."""
    return {"application": "pulsar", "component": "managed-ledger", "pulsar/managed-ledger": managed_ledger}


def early_reserve(env: StorageEnv, ledger_list: LedgerList) -> EarlyReserve | None:
    """Begin the creation if the log's owner left a ledger open, the layout needs the reserve, and the store can create
    ledgers now.
    """
    takes_appends = ledger_list.terminated is None and not ledger_list.doomed
    if ledger_list.was_open and takes_appends and env.layout.one_open_ledger and env.may_roll():
        return EarlyReserve(env, ledger_list.name)
    return None


class EarlyReserve:
    """The creation, under way from the begin. Its owner awaits ``writer`` or ``give_up``."""

    def __init__(self, env: StorageEnv, name: str) -> None:
        self._env, self._name = env, name
        creation = env.ledgers.create(ledger_properties(name))
        self._creation = Background(name).begun(creation, "create ledger")

    async def writer(self) -> LedgerWriter:
        """Return the writer of the new ledger. Raises StorageError."""
        return await self._creation

    async def give_up(self) -> None:
        """Delete the ledger, created or not: the log did not open. A ledger that cannot be deleted stays."""
        self._env.give_up_creation(self._name)
        with contextlib.suppress(StorageError):
            await self._env.ledgers.delete((await self._creation).ledger_id)


class Opened(NamedTuple):
    """The results of an opening."""

    last_index: int
    """The broker index of the last entry; -1 without entries."""
    reserve: EarlyReserve | None = None
