"""The key table against a dict, spilling and cutting its parts again; the keys read from entries."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.compaction import examine as examination
from magnetar.broker.compaction.examine import DROPPED, KEPT, Kind, digest_of, examine, examine_small
from magnetar.broker.compaction.key_table import KeyTable
from magnetar.broker.compaction.record import CompactionRecord
from magnetar.converters.entry import build_entry
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.position import Position
from tests.broker.compaction_for_tests import batch, single


def settle(table):
    found = [place for places in table.newest() for place in places]
    assert len(found) == len(set(found))
    return sorted(found)


@pytest.mark.parametrize("limit", [3, 50, 100_000])
def test_newest_place_of_every_key(limit, tmp_path):
    chance, expected = random.Random(limit), {}
    table = KeyTable(limit, str(tmp_path))
    for place in range(5000):
        digest = digest_of(f"key {chance.randrange(1500)}")
        table.put(digest, place)
        expected[digest] = place
        if table.is_full:
            table.spill()
    assert settle(table) == sorted(expected.values())
    assert bool(table.spilled_bytes) == (limit < 1500)
    table.close()
    table.close()
    assert list(tmp_path.iterdir()) == []


def test_memory_holds_one_part_at_a_time(tmp_path):
    table = KeyTable(100, str(tmp_path))
    for place in range(20_000):
        table.put(digest_of(str(place)), place)
        if table.is_full:
            table.spill()
    sizes = [len(places) for places in table.newest()]
    assert sum(sizes) == 20_000
    assert max(sizes) < 200
    table.close()


def test_keys_that_share_their_first_bytes(tmp_path):
    table = KeyTable(4, str(tmp_path))
    for place in range(64):
        table.put(bytes(15) + bytes([place]), place)
        if table.is_full:
            table.spill()
    assert settle(table) == list(range(64))
    table.close()


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_can_be_looked_at(data):
    assert examine(data).messages >= 1


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.binary(max_size=3)), min_size=1), st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_batches_are_kept_whole(pairs, data):
    body = bytearray(batch(*pairs))
    at = data.draw(st.integers(min_value=40, max_value=len(body) - 1) if len(body) > 41 else st.just(len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    found = examine(bytes(body))
    assert found.kind in (Kind.KEEP, Kind.MESSAGES, Kind.DROP)
    assert found.kind is Kind.MESSAGES or found.messages == 1


def test_kinds_of_entries():
    assert examine(b"") == DROPPED
    assert examine(single("k", marker_type=21)) == DROPPED
    assert examine(single(None)) == DROPPED
    assert examine(batch(("a", b"1"), encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")])).kind is Kind.KEEP
    keyed = examine(batch(("a", b"1"), (None, b"x"), ("b", b"")))
    assert [(k.batch_index, k.is_tombstone) for k in keyed.keyed] == [(0, False), (2, True)]
    assert keyed.messages == 3


@pytest.mark.parametrize("fields", [{}, {"partition_key": "k"}, {"num_messages_in_batch": 2}])
def test_foreign_entries_are_kept_whole(fields):
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)
    metadata.properties.add(key="entry.format", value="kafka")
    assert examine(build_entry(metadata.SerializeToString(), b"")) == KEPT


def test_record_in_properties():
    record = CompactionRecord(7, Position(3, 4), 8, 5, 2)
    assert CompactionRecord.of(record.properties()) == record
    assert CompactionRecord(started=9).properties() == {"CompactionStartedLedger": 9}
    assert CompactionRecord.of({}) == CompactionRecord()


def test_a_batch_that_expands_to_much_is_kept_whole():
    """300 batches of 2 KiB that expand to 128 MiB each had one turn of the event loop."""
    large = batch(("a", bytes(17 << 20)), codec=pb.ZSTD)
    assert len(large) < 8 << 10
    assert examine(large) == KEPT
    small = batch(("a", bytes(1 << 20)), codec=pb.ZSTD)
    assert examine_small(small, 1 << 10) is None, "the caller examines it beside the event loop"
    assert [each.batch_index for each in examine(small).keyed] == [0]


def test_a_batch_of_many_messages_is_kept_whole(monkeypatch):
    """A batch of 22 million messages fits into 5 MiB; its keys take gigabytes."""
    monkeypatch.setattr(examination, "MOST_IN_BATCH", 100)
    many = [("a", b"")] * 101
    assert examine(batch(*many, codec=pb.ZSTD)) == KEPT
    assert len(examine(batch(*many[1:])).keyed) == 100


@pytest.mark.parametrize("over", [0, 1])
def test_an_entry_with_too_many_metadata_is_kept_whole(monkeypatch, over):
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key="k" * 1000)
    monkeypatch.setattr(examination, "MOST_METADATA_BYTES", metadata.ByteSize() - over)
    found = examine(build_entry(metadata.SerializeToString(), b"v" * 2000))
    assert (found == KEPT) == bool(over)
