from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.errors import WireError
from magnetar.bookkeeper.wire.digests import Digester, DigestType, master_key
from magnetar.bookkeeper.wire.entries import decode_entry, encode_run, frame_overhead
from magnetar.bookkeeper.wire.frames import HIGH_PRIORITY, RECOVERY_ADD

CRC32C = Digester(DigestType.CRC32C, b"")
ENTRY = (
    "0000000000000007" "0000000000000003" "0000000000000002" "00000000000003ed" "e19672ef" "68656c6c6f2d626b"
)  # fmt: skip


def test_an_add_frame_as_real_bookies_take_it():
    run = encode_run(7, 3, 2, 1005 - 8, [b"hello-bk"], CRC32C, master_key(b""))
    assert run.frames.hex() == "00000044" + "02010000" + master_key(b"").hex() + ENTRY
    assert (run.first, run.last, run.length) == (3, 3, 1005)
    assert len(run.frames) == frame_overhead(CRC32C) + 8


def test_flags_of_a_recovery_stand_in_the_header():
    run = encode_run(7, 3, 2, 0, [b""], CRC32C, master_key(b""), RECOVERY_ADD | HIGH_PRIORITY)
    assert run.frames[4:8].hex() == "02010006"


@given(
    st.sampled_from(list(DigestType)),
    st.lists(st.binary(max_size=40), min_size=1, max_size=8),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
)
def test_a_run_equals_its_single_entries(kind, payloads, ledger_id, first):
    digester, key = Digester(kind, b"pw"), master_key(b"pw")
    run = encode_run(ledger_id, first, first - 1, 10, payloads, digester, key)
    length = 10
    for index, payload in enumerate(payloads):
        length += len(payload)
        entry_id = first + index
        one = encode_run(ledger_id, entry_id, first - 1, length - len(payload), [payload], digester, key)
        assert bytes(run.part(entry_id, entry_id)) == one.frames
        entry = decode_entry(one.frames[28:], ledger_id, entry_id, digester)
        assert (entry.entry_id, entry.last_add_confirmed, entry.length) == (entry_id, first - 1, length)
        assert bytes(entry.payload) == payload
        assert run.length_at(entry_id) == length
    assert (run.last, run.length) == (first + len(payloads) - 1, length)


def test_a_negative_id_never_leaves_this_process():
    for ledger_id, entry_id in ((-1, 0), (0, -1)):
        with pytest.raises(AssertionError):
            encode_run(ledger_id, entry_id, -1, 0, [b"x"], CRC32C, master_key(b""))


@given(st.integers(0, 8 * 44 - 1))
def test_one_flipped_bit_is_noticed(bit):
    data = bytearray.fromhex(ENTRY)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError):
        decode_entry(bytes(data), 7, 3, CRC32C)


def test_another_entry_than_asked_for_is_refused():
    good = bytes.fromhex(ENTRY)
    assert decode_entry(good, 7, None, CRC32C).entry_id == 3
    for ledger_id, entry_id in ((8, 3), (7, 4)):
        with pytest.raises(WireError):
            decode_entry(good, ledger_id, entry_id, CRC32C)


@given(st.binary(max_size=80))
def test_any_bytes_are_an_entry_or_an_error(data):
    for kind in DigestType:
        try:
            decode_entry(data, 0, 0, Digester(kind, b""))
        except WireError:
            continue
