"""Locators and entries of schemas, compared with those that Apache Pulsar 4.2.4 wrote."""

import pytest

from magnetar.storage.errors import StorageError
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.schema_records import (
    SchemaPlace,
    SchemaRecord,
    decode_entry,
    decode_locator,
    encode_entry,
    encode_locator,
    hash_of,
)
from tests.storage.pulsar_layout.golden_nodes import entries, node, nodes

AVRO = 4
PLACES = decode_locator(node("unloaded", "/schemas/t1/n4/sch"))


def test_locators_are_written_back_byte_for_byte():
    for values in nodes("/schemas").values():
        for value in values:
            assert encode_locator(decode_locator(value)) == value
    assert [(place.version, place.position) for place in PLACES] == [(0, Position(10, 0)), (1, Position(11, 0))]


def test_entries_are_written_back_byte_for_byte():
    for number, ledger_id in enumerate((10, 11)):
        (value,) = entries(ledger_id)
        record = decode_entry(value)
        assert (record.schema_id, record.kind, record.properties) == ("t1/n4/sch", AVRO, {"v": str(number)})
        assert encode_entry(record, PLACES[:number]) == value
        assert hash_of(record) == PLACES[number].digest
    (value,) = entries(3)
    assert decode_entry(value).schema_id == "t1/n4/__change_events"
    assert encode_entry(decode_entry(value), []) == value


def test_a_deletion():
    gone = SchemaRecord("t/n/a", 0, b"", 5, deleted=True)
    assert decode_entry(encode_entry(gone, [SchemaPlace(0, Position(1, 0), b"x")])) == gone
    assert hash_of(gone) == b""


def test_garbage_is_refused():
    for garbage in (b"garbage", b"\x0a"):
        with pytest.raises(StorageError):
            decode_locator(garbage)
        with pytest.raises(StorageError):
            decode_entry(garbage)
    for decode in (decode_locator, decode_entry):
        with pytest.raises(StorageError):
            decode(b"")
