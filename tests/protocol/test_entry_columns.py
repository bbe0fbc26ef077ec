"""Entries as columns: the compiled helper, its twin and the protobuf library agree."""

import random
from array import array
from types import SimpleNamespace

import column_twins
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.protocol import entry_columns
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, EntryStatus, MessageColumn
from magnetar.protocol.message_id import signed
from magnetar.protocol.metadata import split_entry


@pytest.mark.parametrize("check", column_twins.CHECKS, ids=lambda check: check.__name__)
@given(seed=st.integers(0, 2**60))
@settings(max_examples=150, deadline=None)
def test_twins_agree(check, seed):
    compiled = pytest.importorskip("magnetar.protocol._entry_columns")
    check(compiled, random.Random(seed))


def test_the_comparison_notices_a_difference():
    wrong = SimpleNamespace(
        entry_columns=lambda *_: b"",
        message_columns=lambda *_: (b"", 0, 0, 0, True),
        property_columns=lambda *_: b"",
        gather=lambda *_: (),
    )
    for check in column_twins.CHECKS:
        with pytest.raises(AssertionError):
            repeat(check, wrong)


def repeat(check, helper):
    for seed in range(20):
        check(helper, random.Random(seed))


def one_row(table, columns):
    return dict(zip(columns, memoryview(table).cast("q"), strict=True))


def as_bytes(value):
    """The library gives text that is no UTF-8 as bytes."""
    return value.encode() if isinstance(value, str) else value


def cut(data, row, start):
    length = row[start + 1]
    return None if length < 0 else data[row[start] : row[start] + length]


@given(seed=st.integers(0, 2**60))
@settings(max_examples=300, deadline=None)
def test_columns_of_an_entry_agree_with_the_protobuf_library(seed):
    rng = random.Random(seed)
    sound = rng.random() < 0.5
    data = column_twins.body(rng, sound=sound)
    table = entry_columns.entry_columns(data, array("q", [0]), array("q", [len(data)]), False)
    row = one_row(table, EntryColumn)
    metadata, payload = split_entry(data)
    if sound:
        assert row[EntryColumn.STATUS] == EntryStatus.FINE
    if row[EntryColumn.STATUS] != EntryStatus.FINE:
        return  # only groups are read by the library and not by the tables
    assert metadata is not None
    assert data[row[EntryColumn.METADATA_END] :] == payload
    assert cut(data, row, EntryColumn.PRODUCER_START) == as_bytes(metadata.producer_name)
    assert row[EntryColumn.SEQUENCE_ID] == signed(metadata.sequence_id)
    assert row[EntryColumn.PUBLISH_TIME] == signed(metadata.publish_time)
    assert row[EntryColumn.PROPERTIES] == len(metadata.properties)
    assert row[EntryColumn.MESSAGES] == metadata.num_messages_in_batch
    assert row[EntryColumn.EVENT_TIME] == signed(metadata.event_time)
    assert row[EntryColumn.HIGHEST_SEQUENCE_ID] == signed(metadata.highest_sequence_id)
    assert row[EntryColumn.UNCOMPRESSED_SIZE] == metadata.uncompressed_size
    for start, name in (
        (EntryColumn.KEY_START, "partition_key"),
        (EntryColumn.ORDERING_START, "ordering_key"),
        (EntryColumn.SCHEMA_START, "schema_version"),
        (EntryColumn.REPLICATED_START, "replicated_from"),
        (EntryColumn.UUID_START, "uuid"),
    ):
        value = getattr(metadata, name) if metadata.HasField(name) else None
        assert cut(data, row, start) == as_bytes(value)
    flags = row[EntryColumn.FLAGS]
    assert bool(flags & ColumnFlag.BATCHED) == metadata.HasField("num_messages_in_batch")
    assert bool(flags & ColumnFlag.MARKER) == metadata.HasField("marker_type")
    assert bool(flags & ColumnFlag.IS_CHUNK) == metadata.HasField("chunk_id")
    assert bool(flags & ColumnFlag.NAMES_FORMAT) == any(p.key == "entry.format" for p in metadata.properties)
    assert bool(flags & ColumnFlag.KEY_IS_BASE64) == metadata.partition_key_b64_encoded
    assert bool(flags & ColumnFlag.NULL_VALUE) == metadata.null_value


@given(seed=st.integers(0, 2**60))
@settings(max_examples=300, deadline=None)
def test_columns_of_messages_agree_with_the_protobuf_library(seed):
    metadata = column_twins.single(random.Random(seed))
    metadata.payload_size = 3
    encoded = metadata.SerializeToString()
    data = b"ab" + len(encoded).to_bytes(4, "big") + encoded + b"xyz"
    arrays = [array("q", [value]) for value in (2, len(data), 1)]
    table, entry, at, _, broken = entry_columns.message_columns(data, *arrays, 10, 0, 2, 0)
    assert (entry, at, broken) == (1, len(data), False)
    row = one_row(table, MessageColumn)
    assert data[row[MessageColumn.METADATA_END] :][: row[MessageColumn.PAYLOAD_LENGTH]] == b"xyz"
    assert row[MessageColumn.EVENT_TIME] == signed(metadata.event_time)
    assert row[MessageColumn.SEQUENCE_ID] == signed(metadata.sequence_id)
    assert cut(data, row, MessageColumn.KEY_START) == (
        metadata.partition_key.encode() if metadata.HasField("partition_key") else None
    )
    assert bool(row[MessageColumn.FLAGS] & ColumnFlag.COMPACTED_OUT) == metadata.compacted_out
    count = row[MessageColumn.PROPERTIES]
    place = [array("q", [row[c]]) for c in (MessageColumn.METADATA_START, MessageColumn.METADATA_END)]
    pairs = memoryview(entry_columns.property_columns(data, *place, 1, count)).cast("q").tolist()
    columns = [pairs[c * count : (c + 1) * count] for c in range(5)]
    assert [(data[k : k + n].decode(), data[v : v + m].decode()) for _, k, n, v, m in zip(*columns, strict=True)] == [
        (p.key, p.value) for p in metadata.properties
    ]


def test_rows_are_bounded_by_the_caller_not_by_the_batch():
    data = b"\0\0\0\2\x18\0" * 10
    arrays = [array("q", [value]) for value in (0, len(data), 2**31)]
    table, entry, at, index, broken = entry_columns.message_columns(data, *arrays, 4, 0, 0, 0)
    assert (len(table) // 8 // len(MessageColumn), entry, at, index, broken) == (4, 0, 24, 4, False)
    table, entry, at, index, broken = entry_columns.message_columns(data, *arrays, 1000, entry, at, index)
    assert (len(table) // 8 // len(MessageColumn), entry, at, index, broken) == (6, 0, 60, 10, True)
