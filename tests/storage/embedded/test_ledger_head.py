"""The head of a ledger file: every flipped bit and cut is seen, and the records are still found."""

from __future__ import annotations

import pytest

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES, LEDGER_MAGIC, FileHeader
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.ledger_files import LedgerFiles
from magnetar.storage.embedded.ledger_format import encode_index
from magnetar.storage.embedded.ledger_head import (
    BIRTH_ENTRY_ID,
    birth_record,
    encode_ledger_head,
    parse_ledger_head,
    parse_properties,
)
from magnetar.storage.embedded.ledger_index import LedgerIndex
from magnetar.storage.errors import DamagedFileError
from magnetar.storage.records import valid_record_at
from tests.storage.engine_for_tests import ROOT, ManualClock
from tests.storage.records_for_tests import record
from tests.twins.sim_files import SimDisk

STORE = b"s" * 16
PROPERTIES = {"component": "managed-ledger", "pulsar/managed-ledger": "public/default/persistent/ü"}
HEADER = FileHeader(LEDGER_MAGIC, STORE, 7, created_ms=5)


def test_round_trip():
    for properties in ({}, PROPERTIES, {"long": "x" * 9000}):
        head = encode_ledger_head(HEADER, properties)
        assert len(head) % 4096 == 0
        found = parse_ledger_head("f", head + b"records")
        assert (found.properties, found.data_offset, found.damage) == (properties, len(head), [])
        assert (found.header.file_id, found.header.store_id, found.header.created_ms) == (7, STORE, 5)


def test_a_file_of_format_1_has_no_properties():
    found = parse_ledger_head("f", HEADER.pack() + b"records")
    assert (found.properties, found.data_offset, found.damage) == (None, FILE_HEADER_BYTES, [])


def test_every_flipped_bit_is_seen_and_the_records_are_found():
    data = encode_ledger_head(HEADER, PROPERTIES) + record(7, 0, b"body")
    layout = Layout(ROOT)
    for bit in range(4096 * 8):
        if bit > 2000 and bit % 61 and bit < (4096 - 64) * 8:
            continue
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << (bit % 8)
        found = parse_ledger_head("f", bytes(flipped))
        assert found.damage, f"bit {bit}"
        assert found.data_offset == 4096
        assert found.properties in (PROPERTIES, None)
        disk = SimDisk()
        disk.make_dir(layout.ledgers)
        disk.put(layout.ledger(7), bytes(flipped))
        files = LedgerFiles(disk, layout, STORE, ManualClock(), max_open=2)
        assert files.read(7, 1000, FILE_HEADER_BYTES) == record(7, 0, b"body")


def test_without_either_header_the_first_record_tells_where_records_begin():
    data = bytearray(encode_ledger_head(HEADER, PROPERTIES) + record(7, 0, b"body"))
    data[0:64] = data[4032:4096] = bytes(64)
    with pytest.raises(DamagedFileError):
        parse_ledger_head("f", bytes(data))
    disk, layout = SimDisk(), Layout(ROOT)
    disk.make_dir(layout.ledgers)
    disk.put(layout.ledger(7), bytes(data))
    files = LedgerFiles(disk, layout, STORE, ManualClock(), max_open=2)
    assert files.read(7, 1000, FILE_HEADER_BYTES) == record(7, 0, b"body")


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("properties", [PROPERTIES, {"long": "x" * 9000}], ids=["a page", "three pages"])
def test_a_lost_write_of_the_head_and_the_first_record_costs_no_other(sealed, properties):
    first, second = record(7, 0, b"body"), record(7, 1, b"another")
    head = encode_ledger_head(HEADER, properties)
    data = bytes(len(head) + len(first)) + second
    if sealed:
        data += encode_index(7, 2, len(first) + len(second), LedgerIndex())
    elif len(head) > 4096:
        pytest.skip("nothing tells how long it was")
    disk, layout = SimDisk(), Layout(ROOT)
    disk.make_dir(layout.ledgers)
    disk.put(layout.ledger(7), data)
    files = LedgerFiles(disk, layout, STORE, ManualClock(), max_open=2)
    assert files.read(7, len(second), FILE_HEADER_BYTES + len(first)) == second


def test_a_head_that_says_it_is_smaller_than_any_is_damaged():
    data = HEADER._replace(generation=128).pack() * 2
    with pytest.raises(DamagedFileError):
        parse_ledger_head("f", data)


def test_birth_record():
    data = birth_record(7, PROPERTIES)
    header = valid_record_at(data, 0, len(data))
    assert header is not None
    assert (header.ledger_id, header.entry_id) == (7, BIRTH_ENTRY_ID)
    assert parse_properties(data[32:]) == PROPERTIES
    assert parse_properties(b"[]") is None
    assert parse_properties(b"\xff") is None
