"""Append one slab and wait for it: for callers that keep records in ledgers without pipelining."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.storage.errors import StorageError
    from magnetar.storage.interfaces import LedgerWriter
    from magnetar.storage.slab import Slab

__all__ = ["append_slab"]


async def append_slab(writer: LedgerWriter, slab: Slab) -> None:
    """Append the slab; it is on disk on return. Raises: StorageError."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: StorageError | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    writer.append(slab, done)
    await future
