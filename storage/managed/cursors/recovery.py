"""Finding the newest complete state in a cursor ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.errors import CorruptEntryError, CursorStateError
from magnetar.storage.managed.cursors.state import CursorState, StateEntry, decode_state, parse_entry

if TYPE_CHECKING:
    from magnetar.storage.interfaces import LedgerStore

__all__ = ["read_newest_state"]

log = structlog.get_logger(__name__)

_READ_BYTES = 1 << 20


async def read_newest_state(ledgers: LedgerStore, ledger_id: int, last_entry_id: int) -> CursorState | None:
    """Return the state of the last entry, or the newest state before damaged entries; None if there is no state.

    Each damaged entry is logged. The broker redelivers the messages that were acknowledged after the returned state.
    """
    end = last_entry_id
    while end >= 0:
        entry = await _entry(ledgers, ledger_id, end)
        if entry is None:
            end -= 1
            continue
        if not 0 <= entry.base <= end or not (entry.is_last or entry.is_increment):
            end = min(entry.base, end) - 1  # a full state without its last chunk: use the state before it
            continue
        state = await _state_at(ledgers, ledger_id, entry.base, end)
        if state is not None:
            return state
        end = entry.base - 1
    return None


async def _entry(ledgers: LedgerStore, ledger_id: int, entry_id: int) -> StateEntry | None:
    try:
        slab = (await ledgers.read(ledger_id, entry_id, entry_id, 1))[0]
        return parse_entry(slab.body(entry_id - slab.first_entry_id))
    except (CorruptEntryError, CursorStateError) as error:
        log.warning(events.CURSOR_STATE_DAMAGED, ledger_id=ledger_id, entry_id=entry_id, error=str(error))
        return None


async def _state_at(ledgers: LedgerStore, ledger_id: int, base: int, end: int) -> CursorState | None:
    """Return the full state that begins at ``base``, with its intact increments up to entry ``end``."""
    entries = await _entries(ledgers, ledger_id, base, end)
    chunks = bytearray()
    at = 0
    while at < len(entries):
        entry = entries[at]
        at += 1
        if entry.is_increment or entry.base != base:
            return None
        chunks += entry.payload
        if entry.is_last:
            break
    else:
        return None
    try:
        state = decode_state(bytes(chunks))
    except CursorStateError as error:
        log.warning(events.CURSOR_STATE_DAMAGED, ledger_id=ledger_id, entry_id=base, error=str(error))
        return None
    for entry in entries[at:]:
        if not entry.is_increment or entry.base != base:
            break
        try:
            state.add(decode_state(entry.payload))
        except CursorStateError as error:
            log.warning(events.CURSOR_STATE_DAMAGED, ledger_id=ledger_id, entry_id=base, error=str(error))
            break
    return state


async def _entries(ledgers: LedgerStore, ledger_id: int, first: int, last: int) -> list[StateEntry]:
    """Consecutive entries from ``first`` on, up to ``last`` or the first damaged entry."""
    found: list[StateEntry] = []
    entry_id = first
    while entry_id <= last:
        try:
            slabs = await ledgers.read(ledger_id, entry_id, last, _READ_BYTES)
            for slab in slabs:
                span = slab.span(entry_id, last)
                found += [parse_entry(span.body(k)) for k in range(span.entries)]
                entry_id += span.entries
        except (CorruptEntryError, CursorStateError) as error:
            log.warning(events.CURSOR_STATE_DAMAGED, ledger_id=ledger_id, entry_id=entry_id, error=str(error))
            break
    return found
