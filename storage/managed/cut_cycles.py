"""Clears the references of the parts of a managed ledger to each other that form cycles.

A closed log, with the topic around it, then does not wait for the garbage collector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.storage.managed.appender import Appender
    from magnetar.storage.managed.cursors.cursor_set import CursorSet
    from magnetar.storage.managed.ledger_list import LedgerList
    from magnetar.storage.managed.ledger_switch import LedgerSwitch

__all__ = ["cut_cycles", "nothing"]


def cut_cycles(ledger_list: LedgerList, cursors: CursorSet, appender: Appender, switch: LedgerSwitch) -> None:
    """Clear the references. Precondition: the managed ledger is closed, and no background work of it is under way."""
    index = appender.confirmed_index
    ledger_list.index_floor = lambda: index
    cursors.on_advanced = nothing
    appender.listeners.clear()
    switch.detach()


def nothing(*_: object) -> None:
    """Do nothing."""
