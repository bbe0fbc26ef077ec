"""Kept parts of a stored list: always equal to those of the ledgers as they are now, and made once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.storage.managed import managed_ledger_records_pb2, stored_layout
from magnetar.storage.managed.entry_index import with_index
from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot
from magnetar.storage.managed.stored_layout import ListRecord, OwnLayout
from magnetar.storage.pulsar_layout import pulsar_records_pb2
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from magnetar.storage.slab import RECORD_HEADER_BYTES

LAYOUTS = [(OwnLayout(), managed_ledger_records_pb2, 0), (PulsarLayout(), pulsar_records_pb2, RECORD_HEADER_BYTES)]
CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "close", "grow", "recover", "note", "remove"]), st.integers(0, 5)), max_size=12
)


def change(ledgers, what, number):
    if what == "add":
        ledgers.add(LedgerSlot(ledgers.slots[-1].ledger_id + 1 + number if ledgers.slots else number))
    elif ledgers.slots:
        slot = ledgers.slots[number % len(ledgers.slots)]
        if what == "close" and not slot.closed_at_ms:
            slot.closed_at_ms = 1000 + number
        elif what == "grow" and slot is ledgers.slots[-1] and not slot.closed_at_ms:
            slot.entries, slot.size_bytes = slot.entries + number, slot.size_bytes + 100 * number
        elif what == "recover" and slot is ledgers.slots[-1] and not slot.closed_at_ms:
            slot.entries, slot.size_bytes, slot.closed_at_ms = number, 90 * number, 2000 + number
        elif what == "note":
            with_index(slot, number)
        elif what == "remove":
            ledgers.remove({slot.ledger_id})


def ledger_of(message, header_bytes, slot):
    """The facts that the list must have of a ledger."""
    closed = bool(slot.closed_at_ms)
    assert (message.ledgerId, message.timestamp) == (slot.ledger_id, slot.closed_at_ms)
    assert message.entries == (slot.entries if closed else 0)
    assert message.size == (slot.size_bytes - header_bytes * slot.entries if closed else 0)
    assert {item.key: item.value for item in message.properties} == slot.properties


@given(CHANGES)
@settings(max_examples=60)
@pytest.mark.parametrize(("layout", "records", "header_bytes"), LAYOUTS)
def test_each_list_has_the_ledgers_as_they_are(layout, records, header_bytes, changes):
    ledgers = LedgerMap()
    for what, number in [("add", 0), *changes]:
        change(ledgers, what, number)
        value = layout.encode_list(ListRecord(ledgers.slots, None, {"a": "b"}, 7))
        message = records.ManagedLedgerInfo.FromString(value)
        assert message.SerializeToString(deterministic=True) == value, "in the order of a whole message"
        for found, slot in zip(message.ledgerInfo, ledgers.slots, strict=True):
            ledger_of(found, header_bytes, slot)
        counted = LedgerMap(ledgers.slots)
        assert (ledgers._ids, ledgers._before, ledgers._by_id) == (counted._ids, counted._before, counted._by_id)


def test_a_list_encodes_the_ledgers_that_changed(monkeypatch):
    """With 6,000 ledgers a new ledger once took 80 ms of processor time."""
    encoded = []
    encode = stored_layout._encode_ledger

    def noted(slot):
        encoded.append(slot.ledger_id)
        return encode(slot)

    monkeypatch.setattr(stored_layout, "_encode_ledger", noted)
    slots = [LedgerSlot(number, 5, 500, 1000) for number in range(100)] + [LedgerSlot(100)]
    layout = OwnLayout()
    first = layout.encode_list(ListRecord(slots, None, {}, 7))
    assert layout.encode_list(ListRecord(slots, None, {}, 7)) == first
    assert encoded == [*range(101), 100], "the open ledger again"
