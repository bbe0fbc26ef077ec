"""Ledger lists and cursors from the properties of ledgers."""

from __future__ import annotations

from magnetar.storage.embedded.verify.identities import LedgerIdentity
from magnetar.storage.managed.cursors.store import cursor_path
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from magnetar.storage.managed.rebuild import GUARD, rebuild_managed_ledgers

NAME = "t/n/persistent/topic"


def ledger(ledger_id, cursor=None, *, known=False, name=NAME):
    properties = {"component": "managed-ledger", "pulsar/managed-ledger": name}
    if cursor is not None:
        properties["pulsar/cursor"] = cursor
    return LedgerIdentity(ledger_id, properties, 1000 + ledger_id, in_file=True, was_known=known)


def listed(*ledger_ids):
    record = ManagedLedgerInfo(createdMs=1)
    for ledger_id in ledger_ids:
        record.ledgerInfo.add(ledgerId=ledger_id, entries=5, size=50, timestamp=9)
    return {ledger_list_path(NAME): (record.SerializeToString(), 3)}


def rebuilt(nodes, ledgers):
    records, said = rebuild_managed_ledgers(nodes, ledgers, 5000)
    found = dict(records)
    record = found.pop(ledger_list_path(NAME), None)
    infos = ManagedLedgerInfo.FromString(record).ledgerInfo if record is not None else None
    cursors = {path: ManagedCursorInfo.FromString(value) for path, value in found.items()}
    return [(i.ledgerId, i.entries, i.timestamp) for i in infos] if infos is not None else None, cursors, said


def test_a_lost_list_has_all_ledgers_in_order_and_a_guard():
    infos, cursors, said = rebuilt({}, [ledger(9), ledger(3), ledger(5, "jobs"), ledger(6, "a/b")])
    assert infos == [(3, 0, 0), (9, 0, 0)]
    assert set(cursors) == {cursor_path(NAME, each) for each in ("jobs", "a/b", GUARD)}
    for cursor in cursors.values():
        assert (cursor.cursorsLedgerId, cursor.markDeleteLedgerId, cursor.markDeleteEntryId) == (-1, 3, -1)
    assert GUARD in "\n".join(said)


def test_a_list_that_lost_ledgers_is_completed_and_cursors_keep_their_places():
    nodes = listed(3, 9) | {cursor_path(NAME, "jobs"): (b"where it was", 1)}
    infos, cursors, _ = rebuilt(nodes, [ledger(3, known=True), ledger(7), ledger(9, known=True), ledger(4, "jobs")])
    assert infos == [(3, 5, 9), (7, 0, 0), (9, 5, 9)]
    assert cursors == {}


def test_a_known_ledger_that_is_not_listed_was_trimmed_or_never_used():
    assert rebuilt(listed(9), [ledger(3, known=True), ledger(9, known=True)]) == (None, {}, [])


def test_a_record_that_does_not_parse_is_lost():
    infos, cursors, _ = rebuilt({ledger_list_path(NAME): (b"\xff\xff", 0)}, [ledger(3, known=True)])
    assert infos == [(3, 0, 0)]
    assert set(cursors) == {cursor_path(NAME, GUARD)}


def test_ledgers_of_other_owners_and_of_cursors_alone_make_no_topic():
    other = LedgerIdentity(1, {"component": "bucket", "pulsar/managed-ledger": NAME}, 0, in_file=True)
    unnamed = LedgerIdentity(2, None, 0, in_file=True)
    assert rebuild_managed_ledgers({}, [other, unnamed, ledger(3, "jobs")], 1) == ([], [])
