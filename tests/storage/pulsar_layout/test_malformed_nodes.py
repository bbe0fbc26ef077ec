"""Nodes that another program has changed: each is read, or refused with a typed error that names the fault."""

from __future__ import annotations

import pytest

from magnetar.storage.errors import CursorStateError, LedgerListError, StorageError
from magnetar.storage.managed.entry_index import LEDGER_INDEX
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.cursor_records import decode_position_info
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from magnetar.storage.pulsar_layout.pulsar_records_pb2 import (
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from magnetar.storage.pulsar_layout.schema_records import (
    SchemaPlace,
    SchemaRecord,
    decode_entry,
    decode_locator,
    encode_entry,
    encode_locator,
)
from tests.storage.engine_for_tests import settle
from tests.storage.managed_for_tests import NAME, Ground, append, message

LAYOUT = PulsarLayout()
LIST, CURSOR = f"/managed-ledgers/{NAME}", f"/managed-ledgers/{NAME}/s"
HUGE = "9" * 40


async def stored():
    """A topic of 25 messages in ledgers of ten, and a cursor with acknowledgements."""
    world = Ground(layout=LAYOUT)
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", "earliest", {"k": "v"})
    for count in (10, 10, 5):
        places = await append(ledger, [message()] * count)
        cursor.ack(places[1])
        await settle()
    await cursor.flush()
    return await world.restart()


def list_with(change):
    def changed(value):
        info = ManagedLedgerInfo.FromString(value)
        change(info)
        return info.SerializeToString()

    return changed


def set_first(**fields):
    return list_with(lambda info: info.ledgerInfo[0].MergeFrom(ManagedLedgerInfo.LedgerInfo(ledgerId=0, **fields)))


def note_first(value):
    def change(info):
        (note,) = info.ledgerInfo[0].properties
        note.value = value

    return list_with(change)


def note_last(value):
    def change(info):
        (note,) = [each for each in info.ledgerInfo[-1].properties if each.key == LEDGER_INDEX]
        note.value = value

    return list_with(change)


def index(value):
    def change(info):
        (found,) = [each for each in info.properties if each.key == "index"]
        found.value = value

    return list_with(change)


def no_text(name):
    return lambda value: value.replace(name, b"\xff" + name[1:], 1)


REFUSED = {
    "negative entries": set_first(entries=-3),
    "negative size": set_first(size=-1),
    "more entries than a ledger can have": set_first(entries=1 << 40),
    "an index that is no number": index("1e5"),
    "an index beyond all messages": index(HUGE),
    "an index of thousands of digits": index("9" * 5000),
    "a property that is no text": no_text(LEDGER_INDEX.encode()),
}


@pytest.mark.parametrize("fault", REFUSED)
async def test_a_malformed_list_is_refused_and_stays(fault):
    world = await stored()
    value, version = await world.metadata.get(LIST)
    changed = REFUSED[fault](value)
    assert changed != value
    await world.metadata.put(LIST, changed)
    with pytest.raises(LedgerListError):
        await world.open()
    assert await world.metadata.get(LIST) == (changed, version + 1)


@pytest.mark.parametrize("note", ["x", "1e5", HUGE, "", "-7"])
async def test_an_unreadable_note_of_a_ledger_does_not_count(note):
    """The entries have the index too."""
    world = await stored()
    value, _ = await world.metadata.get(LIST)
    await world.metadata.put(LIST, note_last(note)(note_first(note)(value)))
    ledger = await world.open()
    assert (await append(ledger, [message()]))[0] > Position(2, 4)
    assert ledger.confirmed_index == 25


def test_a_cursor_with_a_name_that_is_no_text_is_refused():
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=1, markDeleteEntryId=2)
    info.properties.add(name="producer", value=1)
    info.cursorProperties.add(name="property", value="x")
    value = info.SerializeToString()
    for name in (b"producer", b"property"):
        with pytest.raises(LedgerListError, match="no text in UTF-8"):
            LAYOUT.decode_cursor(no_text(name)(value))
    state = PositionInfo(ledgerId=1, entryId=2)
    state.properties.add(name="producer", value=1)
    with pytest.raises(CursorStateError, match="no text in UTF-8"):
        decode_position_info(no_text(b"producer")(state.SerializeToString()))


def test_a_schema_with_a_text_that_is_no_text_is_refused():
    entry = encode_entry(SchemaRecord("t/n/s", 4, b"{}", 5, properties={"name": "x"}), [])
    for name in (b"t/n/s", b"name"):
        with pytest.raises(StorageError, match="no UTF-8"):
            decode_entry(no_text(name)(entry))


@pytest.mark.parametrize("place", [Position(-1, 0), Position(3, -1), Position(-(1 << 62), 0)])
def test_a_locator_that_names_no_entry_is_refused(place):
    with pytest.raises(StorageError, match="names no entry"):
        decode_locator(encode_locator([SchemaPlace(0, place, b"")]))
