"""Rebuilds ledger lists and cursors from the ledgers when the metadata that held them are lost. Pure.

The properties of a ledger name its managed ledger, and its cursor if it holds a cursor's state; ids ascend in the order
of the entries. Replacements of lost records must neither skip nor delete messages:

* A lost list gets all ledgers whose properties name its managed ledger. They count as open, so the next opening finds
  their last entries.
* A lost cursor whose name is in the properties of a ledger begins at the earliest entry.
* A managed ledger whose list was lost, or that has no cursor left, gets the cursor ``GUARD`` at the earliest entry if
  ledgers were added to its list: without a cursor the entries would be trimmed at once. Operators delete it like any
  subscription.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from google.protobuf.message import DecodeError

from magnetar.storage.managed.cursors.store import cursor_path
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedCursorInfo, ManagedLedgerInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["GUARD", "LedgerOrigin", "rebuild_managed_ledgers"]

GUARD = "magnetar-repair"
"""Name of the cursor that protects recovered entries."""

_BEFORE_FIRST = -1


class LedgerOrigin(Protocol):
    """The properties and entries of a ledger, for a rebuild."""

    @property
    def ledger_id(self) -> int: ...

    @property
    def properties(self) -> Mapping[str, str] | None: ...

    @property
    def created_ms(self) -> int: ...

    @property
    def was_known(self) -> bool:
        """Whether the metadata still have the ledger: then a list that was not lost omits it on purpose."""
        ...


def rebuild_managed_ledgers(
    nodes: Mapping[str, tuple[bytes, int]], ledgers: Sequence[LedgerOrigin], now_ms: int
) -> tuple[list[tuple[str, bytes]], list[str]]:
    """Return (records to write, lines of the report). ``nodes``: the remaining metadata."""
    logs: dict[str, list[LedgerOrigin]] = defaultdict(list)
    cursors: dict[str, set[str]] = defaultdict(set)
    for ledger in sorted(ledgers, key=lambda each: each.ledger_id):
        properties = ledger.properties or {}
        name = properties.get("pulsar/managed-ledger")
        if properties.get("component") != "managed-ledger" or name is None:
            continue
        cursor = properties.get("pulsar/cursor")
        if cursor is None:
            logs[name].append(ledger)
        else:
            cursors[name].add(cursor)
    records: list[tuple[str, bytes]] = []
    said: list[str] = []
    for name in sorted({*logs, *cursors}):
        added, text = _rebuild_one(name, nodes, logs[name], cursors[name], now_ms)
        records += added
        said += text
    return records, said


def _rebuild_one(
    name: str,
    nodes: Mapping[str, tuple[bytes, int]],
    ledgers: Sequence[LedgerOrigin],
    cursors: set[str],
    now_ms: int,
) -> tuple[list[tuple[str, bytes]], list[str]]:
    path = ledger_list_path(name)
    record = _parse(nodes.get(path))
    lost = record is None
    if record is None:
        if not ledgers:
            return [], []  # only cursor ledgers: the managed ledger was deleted, or is empty
        record = ManagedLedgerInfo(createdMs=min((each.created_ms or now_ms for each in ledgers), default=now_ms))
    listed = {info.ledgerId for info in record.ledgerInfo}
    missing = [each.ledger_id for each in ledgers if each.ledger_id not in listed and (lost or not each.was_known)]
    records: list[tuple[str, bytes]] = []
    said: list[str] = []
    if missing:
        infos = [*record.ledgerInfo, *(ManagedLedgerInfo.LedgerInfo(ledgerId=ledger_id) for ledger_id in missing)]
        infos.sort(key=lambda info: info.ledgerId)
        del record.ledgerInfo[:]
        record.ledgerInfo.extend(infos)
        for info in record.ledgerInfo:
            if info.ledgerId in missing:
                info.entries = info.size = info.timestamp = 0
        records.append((path, record.SerializeToString()))
        said.append(f"{name}: {'listed again' if lost else 'completed'} with {len(missing)} ledgers")
    stored = {key for key in nodes if key.startswith(path + "/")}
    new = sorted(cursor for cursor in cursors if cursor_path(name, cursor) not in stored)
    if (lost or not stored) and missing:
        new.append(GUARD)
    if new:
        first = min(info.ledgerId for info in record.ledgerInfo) if record.ledgerInfo else _BEFORE_FIRST
        earliest = ManagedCursorInfo(
            cursorsLedgerId=-1, markDeleteLedgerId=first, markDeleteEntryId=_BEFORE_FIRST, createdMs=now_ms
        ).SerializeToString()
        records += [(cursor_path(name, cursor), earliest) for cursor in new]
        said.append(f"{name}: subscriptions at the earliest entry: {', '.join(new)}; others of it are lost")
    return records, said


def _parse(node: tuple[bytes, int] | None) -> ManagedLedgerInfo | None:
    if node is None:
        return None
    try:
        return ManagedLedgerInfo.FromString(node[0])
    except DecodeError:
        return None
