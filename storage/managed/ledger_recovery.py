"""Opening a ledger list: fences and recovers open ledgers, drops empty ledgers, finds the broker index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.errors import NoSuchLedgerError
from magnetar.storage.managed.entry_index import index_after, with_index
from magnetar.storage.managed.ledger_list import INDEX_PROPERTY
from magnetar.storage.managed.ledger_map import LedgerMap

if TYPE_CHECKING:
    from magnetar.storage.managed.environment import StorageEnv
    from magnetar.storage.managed.ledger_list import LedgerList

__all__ = ["recover_ledgers"]

log = structlog.get_logger(__name__)


async def recover_ledgers(env: StorageEnv, ledger_list: LedgerList) -> int:
    """Close every ledger of the list; returns the broker index of the last entry (-1 when there is no entry).

    Recovers the ledgers in their order, and stores the list before it deletes an empty ledger. Raises
    ManagedLedgerFencedError when another owner opened the managed ledger meanwhile, NoSuchLedgerError when an open
    ledger is lost, unless it is the last ledger and the layout opens without it.
    """
    slots = ledger_list.ledgers.slots
    empty = []
    recovered = [slot for slot in slots if not slot.closed_at_ms]
    for slot in recovered:
        try:
            info = await env.ledgers.open_recover(slot.ledger_id)
        except NoSuchLedgerError as error:
            if slot is not slots[-1] or not env.layout.opens_without_last_ledger:
                raise
            log.warning(events.LEDGER_LOST, managed_ledger=ledger_list.name, error=str(error))
            slot.entries = 0
            continue
        slot.entries, slot.size_bytes = info.last_entry_id + 1, info.length_bytes
        slot.closed_at_ms = env.clock.now_ms()
        if not slot.entries:
            empty.append(slot.ledger_id)
    ledger_list.ledgers = LedgerMap(slot for slot in slots if slot.entries)
    index = int(ledger_list.properties.get(INDEX_PROPERTY, -1))
    last = ledger_list.ledgers.last_confirmed
    index = await index_after(env.ledgers, ledger_list.ledgers.slots, index)
    if recovered and ledger_list.ledgers.slots:
        with_index(ledger_list.ledgers.slots[-1], index)
    ledger_list.index_floor = lambda: index
    if recovered:
        log.info(events.LEDGERS_RECOVERED, managed_ledger=ledger_list.name, ledgers=len(recovered), last=str(last))
    if recovered or env.layout.saves_at_open:
        await ledger_list.save()
        for ledger_id in empty:
            await env.ledgers.delete(ledger_id)
    return index
