"""Deletes ledgers that a crash left behind: their owner had created and not yet listed them, or had removed them from
its list and not yet deleted them.

The properties of a ledger name its owner, and the owner's record decides whether the ledger is still needed. The sweep
examines only ledgers that existed when the store was opened: an owner adds only new ledgers to its list, so no record
will name an old ledger that no record names now. In doubt a ledger stays: the record of its owner does not parse, the
kind of its owner is unknown, or the ledger has entries and its owner has neither a record nor a note of a deletion. A
cursor without a record has been deleted if the list of its log exists.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

import structlog
from google.protobuf.message import DecodeError

from magnetar.storage import events
from magnetar.storage.errors import LedgerListError, NoSuchLedgerError
from magnetar.storage.managed.cursors.store import cursor_path
from magnetar.storage.managed.deletion import end_deletion, noted_deletions
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from magnetar.storage.managed.stored_layout import OwnLayout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from magnetar.storage.interfaces import LedgerStore, MetadataStore
    from magnetar.storage.managed.deletion import NotedLog

__all__ = ["ManagedLedgerReferences", "References", "Verdict", "sweep_orphans"]

log = structlog.get_logger(__name__)


class Verdict(Enum):
    """Whether the record of a ledger's owner names the ledger."""

    NAMED = auto()
    FREE = auto()
    """The record exists and does not name the ledger."""
    OWNERLESS = auto()
    """The owner has no record."""
    UNKNOWN = auto()
    """The owner of the ledger is unknown; the ledger stays."""


class References(Protocol):
    """Decides for one kind of owner whether an owner's record names a ledger."""

    async def verdict(self, ledger_id: int, properties: Mapping[str, str]) -> Verdict | None:
        """Return the verdict; None when the ledger has another kind of owner."""
        ...


class ManagedLedgerReferences:
    """Verdicts for ledgers of managed ledgers and of their cursors. For a single sweep: it caches the lists that it has
    read.
    """

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._listed: dict[str, frozenset[int] | Verdict] = {}

    async def verdict(self, ledger_id: int, properties: Mapping[str, str]) -> Verdict | None:
        if properties.get("component") != "managed-ledger":
            return None
        name, cursor = properties.get("pulsar/managed-ledger"), properties.get("pulsar/cursor")
        if name is None:
            return Verdict.UNKNOWN
        if cursor is not None:
            found = await self._named(cursor_path(name, cursor), _cursor_ledger)
            if found is Verdict.OWNERLESS and await self._has_list(name):
                return Verdict.FREE
        else:
            known = self._listed.get(name)
            found = self._listed[name] = known or await self._named(ledger_list_path(name), _listed_ledgers)
        if isinstance(found, Verdict):
            return found
        return Verdict.NAMED if ledger_id in found else Verdict.FREE

    async def _has_list(self, name: str) -> bool:
        """Whether the list of this managed ledger exists. A cursor of the log without a record was deleted then, and
        the failure or crash came before the deletion of its ledger: a repair of the metadata makes the lost record of a
        cursor with a ledger anew.
        """
        return await self._metadata.get(ledger_list_path(name)) is not None

    async def _named(self, path: str, parse: _Parse) -> frozenset[int] | Verdict:
        record = await self._metadata.get(path)
        if record is None:
            return Verdict.OWNERLESS
        try:
            return parse(record[0])
        except DecodeError as error:
            log.warning(events.RECORD_UNREADABLE, path=path, error=str(error))
            return Verdict.UNKNOWN


class _Parse(Protocol):
    def __call__(self, value: bytes) -> frozenset[int]: ...


def _cursor_ledger(value: bytes) -> frozenset[int]:
    return frozenset({ManagedCursorInfo.FromString(value).cursorsLedgerId})


def _listed_ledgers(value: bytes) -> frozenset[int]:
    return frozenset(info.ledgerId for info in ManagedLedgerInfo.FromString(value).ledgerInfo)


async def sweep_orphans(
    ledgers: LedgerStore, metadata: MetadataStore, references: Sequence[References], newest_id: int
) -> list[int]:
    """Delete orphans with ids up to ``newest_id`` (the newest when the store was opened); returns their ids.

    Raises StorageError; it may be repeated.
    """
    noted = await noted_deletions(metadata)
    deleted = frozenset().union(*noted.values())
    gone = []
    for ledger_id in await ledgers.list_ledgers():
        if ledger_id > newest_id:
            break
        try:
            properties = await ledgers.properties(ledger_id)
            verdict = await _ask(references, ledger_id, properties)
            if verdict is Verdict.FREE or (
                verdict is Verdict.OWNERLESS and (ledger_id in deleted or await _is_empty(ledgers, ledger_id))
            ):
                await ledgers.delete(ledger_id)
                gone.append(ledger_id)
                log.info(events.ORPHAN_DELETED, ledger_id=ledger_id, **_owner(properties))
            elif verdict is Verdict.OWNERLESS:
                log.warning(events.ORPHAN_KEPT, ledger_id=ledger_id, **_owner(properties))
        except NoSuchLedgerError:
            continue  # deleted by its owner meanwhile
    await _forget_deletions(ledgers, metadata, noted)
    return gone


async def _ask(references: Sequence[References], ledger_id: int, properties: Mapping[str, str]) -> Verdict:
    for each in references:
        verdict = await each.verdict(ledger_id, properties)
        if verdict is not None:
            return verdict
    return Verdict.UNKNOWN


async def _is_empty(ledgers: LedgerStore, ledger_id: int) -> bool:
    """Whether the ledger has no entries. Precondition: its writer is gone."""
    return (await ledgers.open_recover(ledger_id)).entries == 0


def _owner(properties: Mapping[str, str]) -> dict[str, str]:
    return {key.rpartition("/")[2].replace("-", "_"): value for key, value in properties.items()}


async def _forget_deletions(
    ledgers: LedgerStore, metadata: MetadataStore, noted: Mapping[NotedLog, frozenset[int]]
) -> None:
    """Remove the notes of deletions that are complete, or that did not happen because the list still exists without the
    mark of a deletion.
    """
    left = frozenset(await ledgers.list_ledgers()) if noted else frozenset()
    for noted_log, ledger_ids in noted.items():
        record = await metadata.get(ledger_list_path(noted_log.name))
        if (not ledger_ids & left) if record is None else not _is_doomed(record[0]):
            await end_deletion(metadata, noted_log)


def _is_doomed(value: bytes) -> bool:
    try:
        return OwnLayout().decode_list(value).doomed
    except LedgerListError:
        return True  # in doubt the note stays
