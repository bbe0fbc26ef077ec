"""Batches of entries as records: the compiled reader and its twin agree on good, damaged and arbitrary bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.errors import WireError
from magnetar.bookkeeper.wire.digests import Digester, DigestType, master_key
from magnetar.bookkeeper.wire.entries import decode_entry, encode_run
from magnetar.bookkeeper.wire.packed_batches import records_of_batch, records_of_batch_pure, records_of_entries
from magnetar.protocol.checksum import crc32c

CRC32C = Digester(DigestType.CRC32C, b"")
LEDGER, FIRST = 7, 40


def batch(payloads, digester=CRC32C, first=FIRST):
    """As a bookie answers: the entries of add frames, each behind its length."""
    run = encode_run(LEDGER, first, first - 1, 1000, payloads, digester, master_key(b""))
    entries = [bytes(run.part(k, k))[28:] for k in range(first, first + len(payloads))]
    return b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries), entries


def outcome(read, *arguments):
    try:
        return read(*arguments)
    except WireError:
        return WireError


PAYLOADS = st.lists(st.binary(max_size=300), min_size=1, max_size=8)


@given(PAYLOADS, st.sampled_from(DigestType), st.integers(1, 9))
def test_both_give_the_records_of_single_entries(payloads, kind, most):
    digester = Digester(kind, b"secret")
    packed, entries = batch(payloads, digester)
    single = [decode_entry(entry, LEDGER, FIRST + k, digester) for k, entry in enumerate(entries[:most])]
    expected = records_of_entries(single)
    assert records_of_batch(packed, LEDGER, FIRST, most, digester) == expected
    assert records_of_batch_pure(packed, LEDGER, FIRST, most, digester) == expected
    offsets = memoryview(expected.offsets).cast("q")
    for k, payload in enumerate(payloads[:most]):
        record = expected.data[offsets[k] : offsets[k + 1]]
        assert record[32:] == payload
        assert int.from_bytes(record[4:8], "little") == crc32c(record[8:], crc32c(record[:4]))
        assert [int.from_bytes(record[at : at + 8], "little") for at in (8, 16, 24)] == [LEDGER, FIRST + k, FIRST - 1]


@given(PAYLOADS, st.data())
def test_both_end_a_damaged_batch_at_the_same_entry(payloads, data):
    packed = bytearray(batch(payloads)[0])
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= 1 << data.draw(st.integers(0, 7))
    cut = bytes(packed[: data.draw(st.integers(0, len(packed)))])
    for damaged in (bytes(packed), cut):
        if damaged:
            found = outcome(records_of_batch, damaged, LEDGER, FIRST, 100, CRC32C)
            assert found == outcome(records_of_batch_pure, damaged, LEDGER, FIRST, 100, CRC32C)


@given(st.binary(max_size=200), st.integers(-2, 2**63 - 1), st.integers(-2, 2**63 - 1), st.integers(0, 5))
def test_any_bytes_are_records_or_an_error(packed, ledger_id, first, most):
    for read in (records_of_batch, records_of_batch_pure):
        with contextlib.suppress(WireError):
            read(packed, ledger_id, first, most, CRC32C)


@pytest.mark.parametrize(("ledger_id", "first"), [(8, FIRST), (LEDGER, FIRST + 1), (LEDGER, FIRST - 1)])
def test_entries_of_others_are_an_error(ledger_id, first):
    with pytest.raises(WireError, match="came for"):
        records_of_batch(batch([b"a"])[0], ledger_id, first, 10, CRC32C)
