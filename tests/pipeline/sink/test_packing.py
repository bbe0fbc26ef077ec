import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.sink.message import Chunks, Message
from magnetar.pipeline.sink.options import SinkOptions
from magnetar.pipeline.sink.packing import MessageTooLargeError, Packer, key_text
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import walk_batch
from magnetar.protocol.compression import decompress
from magnetar.protocol.message_id import signed
from magnetar.protocol.metadata import split_entry


def packer(now_ms=lambda: 5, max_bytes=1 << 20, schema_version=b"", **options):
    options = {name: str(value) for name, value in options.items()} | {"topic": "t"}
    parsed = SinkOptions.parse(options, streaming=False)
    return Packer("p", parsed, now_ms, max_bytes=max_bytes, schema_version=schema_version)


def pack(packer, messages, first=0):
    packed = [each for i, message in enumerate(messages) for each in packer.add(first + i, message)]
    packed += packer.flush()
    return [entry for each in packed for entry in (each.entries() if isinstance(each, Chunks) else [each])]


def unpack(entry):
    """(sequence id, message) of each message of an entry."""
    metadata, payload = split_entry(entry.data)
    if not metadata.HasField("num_messages_in_batch"):
        plain = bytes(payload)
        if metadata.compression:
            plain = decompress(metadata.compression, plain, metadata.uncompressed_size)
        yield metadata.sequence_id, _message(metadata, plain, metadata.deliver_at_time, _version(metadata))
        return
    assert (entry.first, entry.last) == (metadata.sequence_id, metadata.highest_sequence_id)
    assert entry.messages == metadata.num_messages_in_batch
    for single in walk_batch(metadata, payload):
        yield single.metadata.sequence_id, _message(single.metadata, bytes(single.payload), 0, _version(metadata))


def _version(metadata):
    return metadata.schema_version if metadata.HasField("schema_version") else None


def _message(metadata, payload, deliver_at, version):
    from binascii import a2b_base64

    key = metadata.partition_key.encode() if metadata.HasField("partition_key") else None
    if metadata.partition_key_b64_encoded:
        key = a2b_base64(key)
    return Message(
        None if metadata.null_value else payload,
        key,
        metadata.ordering_key if metadata.HasField("ordering_key") else None,
        tuple((p.key, p.value) for p in metadata.properties),
        signed(metadata.event_time),
        deliver_at,
        version,
    )


texts = st.text(st.characters(codec="utf-8"), max_size=5)
messages = st.builds(
    Message,
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=5),
    st.none() | st.binary(max_size=5),
    st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    st.integers(0, 1 << 40),
    st.sampled_from([0, 0, 0, 1 << 41]),
    st.sampled_from([None, None, None, b"version1"]),
)


@given(
    st.lists(messages, max_size=30),
    st.sampled_from(["NONE", "LZ4", "ZSTD", "ZLIB", "SNAPPY"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 7),
    st.integers(100, 700),
)
def test_packed_messages_are_unpacked(some, codec, batching, by_key, limit, limit_bytes):
    made = packer(
        compressionType=codec,
        batchingEnabled=str(batching).lower(),
        batchByKey=str(by_key).lower(),
        batchingMaxMessages=limit,
        batchingMaxBytes=limit_bytes,
    )
    entries = pack(made, some, first=1 << 32)
    assert [pair for entry in entries for pair in unpack(entry)] == [((1 << 32) + i, m) for i, m in enumerate(some)]
    for entry in entries:
        metadata, _ = split_entry(entry.data)
        assert metadata.producer_name == "p"
        assert entry.messages <= (limit if batching else 1)
        keys = {m.ordering_key or m.key for _, m in unpack(entry)}
        assert not by_key or len(keys) <= 1
        assert entry.messages == 1 or not metadata.HasField("deliver_at_time")


@given(st.lists(messages, max_size=40), st.integers(0, 40))
def test_a_repetition_that_begins_behind_an_entry_has_the_same_entries(some, cut):
    options = {"batchingMaxMessages": 4, "batchingMaxBytes": 300}
    entries = pack(packer(**options), some)
    ends = [entry.last + 1 for entry in entries]
    start = max((end for end in ends if end <= cut), default=0)
    again = pack(packer(now_ms=lambda: 9, **options), some[start:], first=start)
    assert [(e.first, e.last) for e in again] == [(e.first, e.last) for e in entries if e.first >= start]


def test_a_message_beyond_the_brokers_limit_is_refused():
    with pytest.raises(MessageTooLargeError, match="maxMessageSize"):
        list(packer(max_bytes=1000).add(0, Message(bytes(1000))))


def test_entries_stay_within_the_brokers_limit():
    entries = pack(packer(max_bytes=1000), [Message(bytes(300))] * 10)
    assert [entry.messages for entry in entries] == [2] * 5


def test_a_key_of_a_batch_by_key_stands_on_the_entry_too():
    entries = pack(packer(batchByKey="true"), [Message(b"1", b"a"), Message(b"2", b"a"), Message(b"3", b"b")])
    assert [split_entry(entry.data)[0].partition_key for entry in entries] == ["a", "b"]
    assert [entry.messages for entry in entries] == [2, 1]


def test_the_schema_version_is_that_of_the_producer():
    (entry,) = pack(packer(schema_version=b"\x01"), [Message(b"x")])
    assert split_entry(entry.data)[0].schema_version == b"\x01"


def test_keys():
    assert key_text(b"order-1") == ("order-1", False)
    assert key_text(b"\xff\x00") == ("/wA=", True)


def test_unbatched_entries_are_no_batches():
    (entry,) = pack(packer(batchingEnabled="false"), [Message(None, b"k", None, (("a", "b"),), 7)])
    metadata, payload = split_entry(entry.data)
    assert not metadata.HasField("num_messages_in_batch")
    assert (metadata.null_value, bytes(payload), metadata.compression) == (True, b"", pb.NONE)


def test_a_message_that_is_too_large_is_cut_into_chunks():
    large = Message(bytes(range(256)) * 40, b"k", None, (("p", "v"),), 7, 0)
    made = packer(max_bytes=3000, chunkingEnabled="true", batchingMaxMessages=10)
    small = Message(b"x", None, None, (), 0, 0)
    entries = pack(made, [small, large, small], first=5)
    assert [(e.first, e.last, e.messages, e.chunks is not None) for e in entries] == [
        (5, 5, 1, False),
        *[(6, 6, 0, True)] * 3,
        (6, 6, 1, True),
        (7, 7, 1, False),
    ]
    chunks = [split_entry(entry.data) for entry in entries[1:5]]
    assert b"".join(bytes(part) for _, part in chunks) == large.value
    assert all(len(entry.data) < 3200 for entry in entries)
    metadata = [each for each, _ in chunks]
    assert [m.chunk_id for m in metadata] == [0, 1, 2, 3]
    assert {(m.num_chunks_from_msg, m.total_chunk_msg_size, m.partition_key) for m in metadata} == {(4, 10240, "k")}
    assert len({m.uuid for m in metadata}) == 1
    again = list(entries[1].chunks.entries())
    assert split_entry(again[0].data)[0].uuid != metadata[0].uuid, "an attempt that broke off is never joined with it"


def test_messages_small_enough_after_compression_are_one_entry():
    made = packer(max_bytes=3000, chunkingEnabled="true", compressionType="ZSTD")
    [entry] = pack(made, [Message(bytes(100_000), None, None, (), 0, 0)])
    assert (entry.messages, entry.chunks) == (1, None)
    assert [each.value for _, each in unpack(entry)] == [bytes(100_000)]


def test_without_chunking_or_with_huge_properties_it_is_refused():
    with pytest.raises(MessageTooLargeError, match="chunkingEnabled"):
        pack(packer(max_bytes=3000), [Message(bytes(5000), None, None, (), 0, 0)])
    with pytest.raises(MessageTooLargeError, match=r"raise maxMessageSize of the broker$"):
        pack(
            packer(max_bytes=3000, chunkingEnabled="true"),
            [Message(b"x", None, None, (("p", "v" * 3000),), 0, 0)],
        )


@pytest.mark.parametrize("batching", ["true", "false"])
def test_times_before_1970_travel_as_in_java_clients(batching):
    """A signed number in an unsigned field: a copy of such a message must not fail."""
    given_ = [Message(b"a", event_time_ms=-1), Message(b"b", event_time_ms=-(1 << 63), deliver_at_ms=-5)]
    found = [message for entry in pack(packer(batchingEnabled=batching), given_) for _, message in unpack(entry)]
    assert [message.event_time_ms for message in found] == [-1, -(1 << 63)]
