import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry, keep_messages, walk_batch
from magnetar.protocol.compression import compress
from magnetar.protocol.errors import MalformedEntryError
from magnetar.protocol.metadata import metadata_bytes, split_entry
from magnetar.protocol.speed import entry_prefix

PAYLOADS = [b"one", b"", b"three"]


def batch(codec=pb.NONE, **fields):
    plain = encode_batch([(pb.SingleMessageMetadata(partition_key=f"k{i}"), p) for i, p in enumerate(PAYLOADS)])
    meta = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=3, **fields)
    if codec != pb.NONE:
        meta.compression, meta.uncompressed_size = codec, len(plain)
    return encode_entry(meta, compress(codec, plain))


@pytest.mark.parametrize("codec", [pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY])
def test_messages_of_a_batch(codec):
    metadata, payload = split_entry(batch(codec))
    found = [(m.batch_index, m.metadata.partition_key, bytes(m.payload)) for m in walk_batch(metadata, payload)]
    assert found == [(0, "k0", b"one"), (1, "k1", b""), (2, "k2", b"three")]


@pytest.mark.parametrize("codec", [pb.NONE, pb.ZSTD])
def test_kept_messages_keep_their_index(codec):
    metadata, payload = split_entry(keep_messages(batch(codec), {2}))
    found = [(m.metadata.compacted_out, bytes(m.payload)) for m in walk_batch(metadata, payload)]
    assert found == [(True, b""), (True, b""), (False, b"three")]
    assert metadata.num_messages_in_batch == 3
    assert list(metadata.compacted_batch_indexes) == [2]


def test_messages_are_taken_out_in_several_rounds():
    prefix = entry_prefix(1_700_000_000_000, 7)
    once = keep_messages(prefix + batch(pb.LZ4), {0, 2})
    twice = keep_messages(once, {0})
    assert twice[: len(prefix)] == prefix
    metadata, payload = split_entry(twice)
    assert list(metadata.compacted_batch_indexes) == [0]
    assert [bytes(m.payload) for m in walk_batch(metadata, payload)] == [b"one", b"", b""]


def test_a_batch_without_messages_left_is_none():
    assert keep_messages(batch(), set()) is None


def test_broken_batches_are_refused():
    metadata, payload = split_entry(batch())
    for broken in (payload[:-1], payload[:3], b"\xff" * 20):
        with pytest.raises(MalformedEntryError):
            list(walk_batch(metadata, broken))
    with pytest.raises(MalformedEntryError):
        keep_messages(b"\x00", {0})


def test_an_encrypted_batch_is_not_looked_into():
    metadata, payload = split_entry(batch())
    metadata.encryption_keys.add(key="k", value=b"v")
    with pytest.raises(MalformedEntryError):
        list(walk_batch(metadata, payload))


def test_the_size_of_the_metadata_is_known_without_parsing_them():
    body, prefix = batch(), entry_prefix(1_700_000_000_000, 7)
    size = split_entry(body)[0].ByteSize()
    assert [metadata_bytes(each) for each in (body, memoryview(prefix + body), body[6:])] == [size] * 3
    assert [metadata_bytes(each) for each in (b"", b"\x00", b"\x00\x00\x00\x05abcd", body[:12])] == [0] * 4
