"""The deletion of a managed ledger: steps that a crash may cut off, and that a later owner or start completes.

::

    mark      in the list of ledgers (``LedgerList.doom``): from here on the deletion is certain
    note      names the managed ledger and its ledgers; brokers find the deletion by the note
    cursors, list, ledgers
    note      removed

The owner that opens a marked log calls ``ManagedLedger.delete`` and serves nothing of the log. A note is a JSON array
of ledger ids at ``/deleted-managed-ledgers/<encoded name>;<creation of the list in ms>``: the logs that had one name
one after the other have a note each.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

import msgspec
import structlog

from magnetar.storage import events
from magnetar.storage.errors import NoNodeError, NoSuchLedgerError, NotEmptyError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.storage.interfaces import LedgerStore, MetadataStore
    from magnetar.storage.managed.cursors.cursor_set import CursorSet
    from magnetar.storage.managed.environment import StorageEnv
    from magnetar.storage.managed.ledger_list import LedgerList

__all__ = [
    "NotedLog",
    "begin_deletion",
    "complete_deletion",
    "delete_noted",
    "end_deletion",
    "note_deletion",
    "noted_deletions",
]

log = structlog.get_logger(__name__)

_NOTES = "/deleted-managed-ledgers"
_BEFORE_TIME = ";"
"""Encoded names have no such character."""


class NotedLog(NamedTuple):
    """A managed ledger with a note."""

    name: str
    created_ms: int = 0
    """The creation of its list; 0 when unknown, as in notes of earlier versions."""

    def may_have(self, created_ms: int) -> bool:
        """Whether a list of this name, created at this time, may be that of the log."""
        return not self.created_ms or not created_ms or self.created_ms == created_ms


async def begin_deletion(env: StorageEnv, ledger_list: LedgerList, others: Iterable[int]) -> None:
    """Mark the list, and note its ledgers and the ``others``; the deletion is certain on return. Raises
    ManagedLedgerFencedError: another owner has the log, and the list has no mark; StorageError: the next opening finds
    whether the list has the mark.
    """
    if env.created_ms is not None:  # the list of a log that this owner has created has the time of its own clock
        ledger_list.created_ms = await env.created_ms(ledger_list.path)
    await ledger_list.doom()
    await _note_more(env.metadata, _noted_log(ledger_list), {*_ledger_ids(ledger_list), *others})


async def complete_deletion(env: StorageEnv, ledger_list: LedgerList, cursors: CursorSet) -> None:
    """Delete the list of a marked log behind its cursors; then all noted ledgers, which no record names any more.
    Raises StorageError while the list exists: its next owner deletes the rest. Without the list the log is gone, and
    ``delete_noted`` or ``sweep_orphans`` deletes ledgers that the store does not delete now.
    """
    log_of_list = _noted_log(ledger_list)
    noted = await _note_more(env.metadata, log_of_list, _ledger_ids(ledger_list))
    try:
        await ledger_list.delete()
    except NotEmptyError:
        await cursors.delete_strays()
        await ledger_list.delete()
    try:
        await _delete_ledgers(env.ledgers, sorted(noted))
        await end_deletion(env.metadata, log_of_list)
    except StorageError as error:  # the note stays
        log.warning(events.LEDGER_NOT_DELETED, managed_ledger=ledger_list.name, error=str(error))


async def delete_noted(
    ledgers: LedgerStore, metadata: MetadataStore, noted: NotedLog, ledger_ids: Iterable[int]
) -> None:
    """Delete the noted ledgers of a managed ledger whose list is gone, and the note. The note stays when the store does
    not delete a ledger now.
    """
    try:
        await _delete_ledgers(ledgers, sorted(ledger_ids))
        await end_deletion(metadata, noted)
    except StorageError as error:
        log.warning(events.LEDGER_NOT_DELETED, managed_ledger=noted.name, error=str(error))
    else:
        log.info(events.DELETION_COMPLETED, managed_ledger=noted.name)


def _noted_log(ledger_list: LedgerList) -> NotedLog:
    return NotedLog(ledger_list.name, ledger_list.created_ms)


def _ledger_ids(ledger_list: LedgerList) -> list[int]:
    return [slot.ledger_id for slot in ledger_list.ledgers.slots]


async def _delete_ledgers(ledgers: LedgerStore, ledger_ids: Iterable[int]) -> None:
    for ledger_id in ledger_ids:
        with contextlib.suppress(NoSuchLedgerError):  # the start of another broker deletes noted ledgers as well
            await ledgers.delete(ledger_id)


# --- notes ------------------------------------------------------------------------------------


async def note_deletion(metadata: MetadataStore, noted: NotedLog, ledger_ids: Iterable[int]) -> None:
    """This managed ledger and these ledgers of it are about to be deleted. Durable on return."""
    await metadata.put(_path(noted), msgspec.json.encode(sorted(ledger_ids)))


async def _note_more(metadata: MetadataStore, noted: NotedLog, ledger_ids: Iterable[int]) -> frozenset[int]:
    """Add these ledgers to the note, which may be of an earlier attempt; return all noted ledgers."""
    before = await _noted(metadata, _path(noted))
    ids = frozenset(ledger_ids).union(before or ())
    if ids != before:
        await note_deletion(metadata, noted, ids)
    return ids


async def end_deletion(metadata: MetadataStore, noted: NotedLog) -> None:
    """Remove the note: the ledgers are deleted."""
    with contextlib.suppress(NoNodeError):
        await metadata.delete(_path(noted))


async def noted_deletions(metadata: MetadataStore) -> dict[NotedLog, frozenset[int]]:
    """Managed ledgers whose deletion had begun, and their ledgers; without notes that cannot be read."""
    found = {}
    for child in await metadata.children(_NOTES):
        if (ledger_ids := await _noted(metadata, f"{_NOTES}/{child}")) is not None:
            name, _, created_ms = child.partition(_BEFORE_TIME)
            found[NotedLog(unquote(name), int(created_ms) if created_ms.isdecimal() else 0)] = ledger_ids
    return found


async def _noted(metadata: MetadataStore, path: str) -> frozenset[int] | None:
    """The ledgers of the note; None without a note, or with a note that cannot be read."""
    record = await metadata.get(path)
    if record is None:
        return None
    try:
        return frozenset(msgspec.json.decode(record[0], type=list[int]))
    except msgspec.MsgspecError as error:
        log.warning(events.RECORD_UNREADABLE, path=path, error=str(error))
        return None


def _path(noted: NotedLog) -> str:
    time = f"{_BEFORE_TIME}{noted.created_ms}" if noted.created_ms else ""
    return f"{_NOTES}/{quote(noted.name, safe='')}{time}"
