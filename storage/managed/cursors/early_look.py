"""The look at the stored cursors that an opening takes while it recovers the ledgers of the log.

Until the opening has stored the list, the former owner may still change the records of cursors, so the opening reads
them behind that save (``records``). The ends of cursor ledgers are another matter: a recovered ledger never changes, so
the look recovers the ledgers that the records name now, and the later record that names the same ledger finds its end.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from magnetar.storage.errors import StorageError
from magnetar.storage.managed.stored_layout import NO_LEDGER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.interfaces import LedgerInfo
    from magnetar.storage.managed.background import Background
    from magnetar.storage.managed.environment import StorageEnv

__all__ = ["EarlyLook"]

_MOST_CURSORS = 64
"""The cursors that a look includes; the others of the log load as without a look."""


class EarlyLook:
    """A look at the cursors of the log at this path of the metadata."""

    def __init__(self, env: StorageEnv, path: str, background: Background) -> None:
        self.ends: dict[int, LedgerInfo] = {}
        """Cursor ledgers that are recovered."""
        self.records: dict[str, tuple[bytes, int] | None] = {}
        """Node -> its record, read behind the save of the list."""
        self._env, self._path, self._background = env, path, background

    async def recover_ledgers(self, nodes: Sequence[str]) -> None:
        """Recover the cursor ledgers of these nodes, as far as that goes: the load of a cursor reports failures."""
        await self._background.together(*(self._recover_ledger(node) for node in nodes[:_MOST_CURSORS]))

    async def _recover_ledger(self, node: str) -> None:
        with contextlib.suppress(StorageError):
            found = await self._env.metadata.get(f"{self._path}/{node}")
            ledger_id = NO_LEDGER if found is None else self._env.layout.decode_cursor(found[0]).ledger_id
            if ledger_id != NO_LEDGER:
                self.ends[ledger_id] = await self._env.ledgers.open_recover(ledger_id)

    async def read(self, nodes: Sequence[str]) -> list[str]:
        """Return the nodes that exist now, and keep the records of those known before. Raises StorageError."""
        known = nodes[:_MOST_CURSORS]
        get = self._env.metadata.get
        reads = (get(f"{self._path}/{node}") for node in known)
        now, *records = await self._background.together(self._env.metadata.children(self._path), *reads)
        self.records = dict(zip(known, records, strict=True))
        return list(now)
