from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.storage import records
from magnetar.storage.records import (
    Damage,
    Run,
    find_entry,
    find_exactly,
    is_placeholder,
    peek_record,
    placeholder,
    valid_record_at,
    walk,
    with_ids,
)
from tests.storage.records_for_tests import record, slab_of

BODIES = [b"alpha", b"b" * 70, b"", b"gamma" * 8, b"e"]


def parts(buffer: bytes, first: int = 10, start: int = 0):
    return [
        (part.first_entry_id, part.first_entry_id + part.entries - 1)
        if isinstance(part, Run)
        else ("damage", part.first_entry_id, part.last_entry_id)
        for part in walk(buffer, start, len(buffer), 3, first)
    ]


DATA = slab_of(3, 10, BODIES).data


def test_walk_of_whole_records():
    assert parts(DATA) == [(10, 14)]
    assert parts(b"") == []
    assert parts(b"junk" + DATA, start=4) == [(10, 14)]


@pytest.mark.parametrize("bit", range(0, len(DATA) * 8, 3))
def test_one_flipped_bit_costs_one_entry(bit):
    data = bytearray(DATA)
    data[bit // 8] ^= 1 << (bit % 8)
    found = walk(bytes(data), 0, len(data), 3, 10)
    intact = {
        entry
        for part in found
        if isinstance(part, Run)
        for entry in range(part.first_entry_id, part.first_entry_id + part.entries)
    }
    assert len(set(range(10, 15)) - intact) == 1
    damage = [part for part in found if isinstance(part, Damage)]
    assert len(damage) == 1
    assert damage[0].first_entry_id in set(range(10, 15)) - intact


def test_a_cut_off_end_is_damage_of_unknown_extent():
    assert parts(DATA[:-1]) == [(10, 13), ("damage", 14, 13)]
    assert parts(DATA[:5]) == [("damage", 10, 9)]


def test_missing_entries_are_damage():
    without_12 = slab_of(3, 10, BODIES[:2]).data + slab_of(3, 13, BODIES[3:]).data
    assert parts(without_12) == [(10, 11), ("damage", 12, 12), (13, 14)]


def test_records_of_another_ledger_do_not_count():
    assert parts(slab_of(4, 10, BODIES).data) == [("damage", 10, 9)]


def test_placeholder_is_damage_and_the_next_entry_follows():
    data = slab_of(3, 10, BODIES[:2]).data + placeholder(3, 12) + slab_of(3, 13, BODIES[3:]).data
    assert parts(data) == [(10, 11), ("damage", 12, 12), (13, 14)]
    at = len(slab_of(3, 10, BODIES[:2]).data)
    assert is_placeholder(data, at)
    assert not is_placeholder(data, 0)
    assert not is_placeholder(b"", 0)
    assert valid_record_at(data, at, len(data)) is None


def test_find_entry():
    assert find_entry(DATA, 0, len(DATA), 3, 10) == (0, 10)
    offset, entry = find_entry(DATA, 0, len(DATA), 3, 12)
    assert entry == 12
    assert peek_record(DATA, offset).entry_id == 12
    assert find_entry(DATA, 0, len(DATA), 3, 15) is None
    assert find_entry(DATA, 0, len(DATA), 4, 0) is None


def test_ids_can_be_put_right():
    damaged = bytearray(DATA)
    damaged[17] ^= 8
    assert with_ids(bytes(damaged), 0, 3, 10) == DATA[:37]
    assert with_ids(bytes(damaged), 0, 3, 11) is None
    assert with_ids(bytes(damaged[:30]), 0, 3, 10) is None


@given(st.lists(st.binary(max_size=200), max_size=8), st.data())
def test_a_walk_finds_the_records_that_random_damage_spares(bodies, data):
    whole = slab_of(5, 0, bodies).data
    start = data.draw(st.integers(0, max(0, len(whole) - 1)))
    size = data.draw(st.integers(0, 60))
    broken = bytearray(whole)
    junk = random.Random(start).randbytes(size)
    broken[start : start + size] = junk[: max(0, len(whole) - start)]
    offsets = memoryview(slab_of(5, 0, bodies).offsets).cast("q")
    touched = {
        k for k in range(len(bodies)) if whole[offsets[k] : offsets[k + 1]] != broken[offsets[k] : offsets[k + 1]]
    }
    intact = {
        entry
        for part in walk(bytes(broken), 0, len(broken), 5, 0)
        if isinstance(part, Run)
        for entry in range(part.first_entry_id, part.first_entry_id + part.entries)
    }
    assert intact == set(range(len(bodies))) - touched


def test_peek_needs_a_whole_header():
    assert peek_record(record(1, 2, b"")[:31], 0) is None


@given(
    st.lists(st.sampled_from([bytes(1), bytes(7), bytes(64), b"\x01", b"\xff\x00", DATA]), max_size=12),
    st.integers(0, 40),
    st.sampled_from([0, 3]),
    st.integers(0, 3),
)
def test_entries_are_found_behind_whatever_stands_before_them(parts, start, ledger_id, least):
    """The same as looking at every byte: runs of zeros are passed over for ledger 0."""
    data = b"".join(parts) + record(0, 1, b"x") + bytes(20) + record(0, 2, b"")
    slow = [
        (at, header.entry_id)
        for at in range(start, len(data))
        if (header := valid_record_at(data, at, len(data))) is not None
        and header.ledger_id == ledger_id
        and header.entry_id >= least
    ]
    assert find_entry(data, start, len(data), ledger_id, least) == (slow[0] if slow else None)


@pytest.mark.parametrize("least", [0, 1])
def test_a_torn_tail_of_zeros_costs_no_look_at_each_byte(monkeypatch, least):
    looked = []
    look = records._entry_id_at
    monkeypatch.setattr(records, "_entry_id_at", lambda *place: looked.append(1) or look(*place))
    assert find_entry(bytes(1 << 20), 0, 1 << 20, 0, least) is None
    assert len(looked) < 20


@pytest.mark.parametrize("ledger_id", [0, 3])
def test_one_entry_is_found_without_a_check_of_the_others(monkeypatch, ledger_id):
    whole = b"".join(record(ledger_id, number, b"%d" % number * 40) for number in range(1000))
    behind = whole.index(record(ledger_id, 7, b"7" * 40))
    last = whole.index(record(ledger_id, 999, b"999" * 40))
    assert find_exactly(whole, 0, len(whole), ledger_id, 0) == 0
    assert find_exactly(whole, 1, len(whole), ledger_id, 0) is None
    checked = []
    check = records.valid_record_at
    monkeypatch.setattr(records, "valid_record_at", lambda *place: checked.append(1) or check(*place))
    assert find_exactly(whole, 5, len(whole), ledger_id, 7) == behind
    assert find_exactly(whole, 5, len(whole), ledger_id, 999) == last
    assert find_exactly(whole, 5, len(whole) - 1, ledger_id, 999) is None
    assert len(checked) <= 3


def test_a_page_of_later_records_of_the_same_ledger_costs_only_the_records_under_it():
    """The page, written at a wrong place by the device, has intact records as well."""
    whole = b"".join(record(3, number, b"%d" % number * 40) for number in range(300))
    starts = [whole.index(record(3, number, b"%d" % number * 40)) for number in range(300)]
    later = b"".join(record(3, number, b"%d" % number * 40) for number in range(80, 140))[:4096]
    far = b"".join(record(3, number, b"%d" % number * 40) for number in range(5000, 5060))[:4096]
    for page in (later, far):
        broken = whole[:4096] + page + whole[8192:]
        intact = set()
        for part in walk(broken, 0, len(broken), 3, 0):
            if isinstance(part, Run):
                intact.update(range(part.first_entry_id, part.first_entry_id + part.entries))
        untouched = {k for k in range(299) if starts[k + 1] <= 4096 or starts[k] >= 8192} | {299}
        assert untouched <= intact <= set(range(300))


def test_a_later_record_inside_a_long_entry_costs_that_entry_alone():
    """The record is followed by bytes of the long body, which read as a length beyond the end of the file."""
    sizes = [40] * 87 + [10_000] + [40] * 140
    found = [record(3, number, b"\xff" * size) for number, size in enumerate(sizes)]
    moved = found[164]
    place = len(b"".join(found[:87])) + 4096
    broken = b"".join([*found[:164], bytes(len(moved)), *found[165:]])
    broken = broken[:place] + moved + broken[place + len(moved) :]
    assert parts(broken, first=0) == [(0, 86), ("damage", 87, 87), (88, 163), ("damage", 164, 164), (165, 227)]


def test_the_entry_asked_for_is_found_behind_records_of_others():
    data = record(3, 0, b"zero") + b"damage" * 9 + record(3, 1, b"one") + record(3, 2, b"two")
    assert [part.first_entry_id for part in walk(data, 0, len(data), 3, 0)] == [0, 1]
