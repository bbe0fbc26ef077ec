"""States of cursors in Pulsar's records, against bytes that Apache Pulsar 4.2.4 wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from magnetar.storage.errors import CursorStateError
from magnetar.storage.managed.cursors.state import CursorState
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.cursor_records import (
    decode_position_info,
    encode_position_info,
    fill_cursor_info,
    range_count,
    state_of_cursor_info,
)
from magnetar.storage.pulsar_layout.pulsar_records_pb2 import ManagedCursorInfo, PositionInfo
from tests.storage.pulsar_layout.golden_nodes import entries

ROOM = 1 << 20
HOLES = bytes.fromhex(  # mark-delete 7:0, acknowledged 3, 4 and 7
    "08ffffffffffffffffff0110071800220c0a0408071002120408071004220c0a040807100612040807100730b8db8182a034"
)
BATCH = bytes.fromhex("08ffffffffffffffffff01100818093a090a04080a100010f603")
DEDUPLICATION = bytes.fromhex("08ffffffffffffffffff01100818092a060a02706110042a060a0270621004")
CURSOR_ENTRY = bytes.fromhex("083310ffffffffffffffffff0132060833100a1000")


def of_node(value):
    return state_of_cursor_info(ManagedCursorInfo.FromString(value))


def to_node(state):
    message = ManagedCursorInfo(cursorsLedgerId=-1)
    fill_cursor_info(message, state)
    return message


def test_holes_of_a_node():
    state = of_node(HOLES)
    assert state == CursorState(Position(7, 0), {7: BitMap([3, 4, 7])})
    message = to_node(state)
    message.lastActive = ManagedCursorInfo.FromString(HOLES).lastActive
    assert message.SerializeToString() == HOLES


def test_the_messages_of_a_batch_still_to_come():
    state = of_node(BATCH)
    assert state.partial == {Position(10, 0): 0b111110110}
    assert to_node(state).SerializeToString() == BATCH


def test_properties_of_the_position():
    state = of_node(DEDUPLICATION)
    assert state.properties == {"pa": 4, "pb": 4}
    assert to_node(state).SerializeToString() == DEDUPLICATION


def test_entries_of_cursor_ledgers():
    state = decode_position_info(CURSOR_ENTRY)
    assert state == CursorState(Position(51, -1), {51: BitMap([1, 3])})
    assert encode_position_info(state, ROOM) == CURSOR_ENTRY
    (recorded,) = entries(9)
    assert decode_position_info(recorded) == CursorState(Position(6, -1), {6: BitMap([3, 4, 7])})
    assert encode_position_info(decode_position_info(recorded), ROOM) == recorded


def test_a_compacted_topic_of_pulsar_reaches_to_the_place_of_its_cursor():
    value = bytes.fromhex(
        "08ffffffffffffffffff01101c180b2a180a14436f6d706163746564546f7069634c6564676572101e30c8cbd788a034"
    )
    properties = {"CompactedTopicLedger": 30, "CompactionHorizonLedger": 28, "CompactionHorizonEntry": 11}
    assert of_node(value).properties == properties
    assert of_node(to_node(of_node(value)).SerializeToString()).properties == properties


def test_ranges_that_cross_ledgers():
    message = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=1, markDeleteEntryId=3)
    each = message.individualDeletedMessages.add()
    each.lowerEndpoint.ledgerId, each.lowerEndpoint.entryId = 1, 8
    each.upperEndpoint.ledgerId, each.upperEndpoint.entryId = 2, 1
    deleted = state_of_cursor_info(message).deleted
    assert list(deleted[2]) == [0, 1]
    assert deleted[1].min() == 9
    assert deleted[1].max() == 2**32 - 1


def test_a_record_without_a_position_stands_at_the_beginning():
    assert state_of_cursor_info(ManagedCursorInfo(cursorsLedgerId=-1)) == CursorState(Position(-1, -1))


def test_garbage_is_refused():
    for garbage in (b"", b"\x08", b"garbage", b"\x43\x01\x01\x00"):
        with pytest.raises(CursorStateError):
            decode_position_info(garbage)


def test_acks_that_do_not_fit_are_delivered_again():
    state = CursorState(Position(1, 0), {ledger: BitMap(range(1, 5000, 2)) for ledger in range(1, 9)})
    entry = encode_position_info(state, 3000)
    assert len(entry) <= 3000
    kept = decode_position_info(entry).deleted
    assert 0 < len(kept) < 8
    assert all(kept[ledger] == state.deleted[ledger] for ledger in kept)
    batches = CursorState(Position(1, 0), {}, {Position(1, k): 1 << 500 for k in range(1, 400)})
    entry = encode_position_info(batches, 3000)
    assert len(entry) <= 3000
    assert decode_position_info(entry).partial.items() < batches.partial.items()


entry_ids = st.integers(0, 300)
states = st.builds(
    CursorState,
    st.builds(Position, st.integers(-1, 5), st.integers(-1, 50)),
    st.dictionaries(st.integers(0, 9), st.sets(entry_ids, min_size=1).map(BitMap), max_size=4),
    st.dictionaries(st.builds(Position, st.integers(0, 9), entry_ids), st.integers(1, 2**130), max_size=4),
    st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1), max_size=3),
)


@given(states)
def test_both_forms_hold_the_whole_state(state):
    assert decode_position_info(encode_position_info(state, ROOM)) == state
    message = to_node(state)
    assert of_node(message.SerializeToString()) == state
    assert len(message.individualDeletedMessages) == range_count(state)


@given(states)
def test_cursor_entries_may_hold_ranges_as_well(state):
    node, entry = to_node(state), PositionInfo(ledgerId=state.mark_delete.ledger_id, entryId=state.mark_delete.entry_id)
    entry.individualDeletedMessages.extend(node.individualDeletedMessages)
    assert decode_position_info(entry.SerializeToString()).deleted == state.deleted
