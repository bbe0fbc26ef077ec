"""Reads the last entry that each bookie of a ledger's last segment holds, with or without fencing the ledger there,
until bookies of every possible ack quorum have answered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.bookkeeper.errors import (
    BookieRefusedError,
    BookKeeperError,
    ClientClosedError,
    RecoveryFailedError,
    WireError,
    WrongPasswordError,
)
from magnetar.bookkeeper.ledgers.quorum import covers
from magnetar.bookkeeper.wire.entries import decode_entry
from magnetar.bookkeeper.wire.frames import ABSENT, DO_FENCING, HIGH_PRIORITY, LAST_ENTRY, Code, code_name

if TYPE_CHECKING:
    from magnetar.bookkeeper.ledgers.ledger_context import LedgerContext
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata
    from magnetar.bookkeeper.wire.digests import Digester
    from magnetar.bookkeeper.wire.entries import Entry

__all__ = ["read_last_confirmed"]


async def read_last_confirmed(
    context: LedgerContext,
    ledger_id: int,
    metadata: LedgerMetadata,
    digester: Digester,
    key: bytes,
    *,
    fence: bool,
    seen: dict[int, Entry] | None = None,
) -> int:
    """Return the greatest last-add-confirmed in the bookies' last entries, but at least the last entry of the earlier
    segments, which no longer change. With `fence`, on return no writer can reach an ack quorum (exception: a bookie
    that holds no entry of the ledger may lose the fence in a crash, see ``owned_metadata``). The bookies' last entries
    go to `seen`.

    Raises RecoveryFailedError when too few bookies answered, WrongPasswordError.
    """
    bookies = metadata.last_segment.bookies
    last = metadata.last_segment.first - 1
    answered: set[int] = set()
    errors: list[str] = []
    tasks = {
        context.background.awaited(
            _ask(context, bookie, ledger_id, digester, key if fence else b"", seen), f"fence ledger {ledger_id}"
        ): place
        for place, bookie in enumerate(bookies)
    }
    try:
        waiting = list(tasks)
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in waiting if task in done]  # in the order of the ensemble
            waiting = [task for task in waiting if task not in done]
            for task in ended:
                error = task.exception()
                if error is None:
                    answered.add(tasks[task])
                    last = max(last, task.result())
                elif isinstance(error, BookieRefusedError) and error.code == Code.UNAUTHORIZED:
                    raise WrongPasswordError(ledger_id, str(error))
                elif isinstance(error, BookKeeperError) and not isinstance(error, ClientClosedError):
                    errors.append(str(error))
                else:
                    raise error
            if covers(answered, metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum):
                return last
    finally:
        for task in tasks:
            task.cancel()
    raise RecoveryFailedError(ledger_id, f"{len(answered)} of {len(bookies)} bookies answered: {'; '.join(errors)}")


async def _ask(
    context: LedgerContext,
    bookie: str,
    ledger_id: int,
    digester: Digester,
    key: bytes,
    seen: dict[int, Entry] | None,
) -> int:
    """Return the last-add-confirmed in the bookie's last entry of the ledger; -1 when the bookie holds no entry."""
    connection = await context.pool.get(bookie, at_once=True)
    flags = DO_FENCING | HIGH_PRIORITY if key else 0
    answer = await connection.read(ledger_id, LAST_ENTRY, flags, key)
    if answer.code in ABSENT:
        return -1
    if answer.code != Code.OK:
        raise BookieRefusedError(bookie, answer.code, code_name(answer.code))
    try:
        entry = decode_entry(answer.entry, ledger_id, None, digester)
    except WireError as error:
        raise WireError(f"bookie {bookie}: {error}") from error
    if seen is not None:
        seen[entry.entry_id] = entry
    return entry.last_add_confirmed
