"""The contexts of a burst are those that a parser of its messages finds, and finding them is bounded work."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.traces.bursts import MOST_LOOKED_AT, MOST_TRACES, SEARCHED_BYTES, TraceContext, contexts_in
from magnetar.protocol import pulsar_api_pb2 as pb

IDS = st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1)
CONTEXTS = st.tuples(*IDS, st.sampled_from([0, 1, 3]))


def text_of(trace_id, span_id, flags):
    return f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"


def single(*contexts, payload=b"payload", key="traceparent"):
    """Metadata and payload of one message."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    for context in contexts:
        metadata.properties.add(key="before", value="traceparent")
        metadata.properties.add(key=key, value=text_of(*context))
    encoded = metadata.SerializeToString()
    return struct.pack(">I", len(encoded)) + encoded + payload


def batch(contexts):
    """Metadata and payload of one batch, uncompressed."""
    body = b""
    for context in contexts:
        part = pb.SingleMessageMetadata(payload_size=1, partition_key="k")
        part.properties.add(key="traceparent", value=text_of(*context))
        encoded = part.SerializeToString()
        body += struct.pack(">I", len(encoded)) + encoded + b"x"
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=max(1, len(contexts))
    ).SerializeToString()
    return struct.pack(">I", len(metadata)) + metadata + body


@given(st.lists(CONTEXTS, max_size=MOST_TRACES), st.booleans())
def test_those_of_all_messages_are_found(contexts, batched):
    data = batch(contexts) if batched else b"".join(single(each) for each in contexts)
    expected = {}
    for trace_id, span_id, flags in contexts:
        if flags & 1:
            expected.setdefault(trace_id, TraceContext(trace_id, span_id))
    found = contexts_in(data, 0, len(data))
    assert list(found.sampled) == list(expected.values())
    assert found.has_any == bool(contexts)


@given(st.binary(max_size=300))
def test_any_bytes_are_searched(data):
    assert contexts_in(data, 0, len(data)) == ((), False)


def test_other_keys_versions_and_all_zero_ids_are_no_context():
    for data in (
        single((1, 1, 1), key="Traceparent"),
        single((1, 1, 1), key="x-traceparent"),
        single((0, 1, 1)),
        single((1, 0, 1)),
        single((1, 1, 1)).replace(b"00-0", b"ff-0"),
    ):
        assert not contexts_in(data, 0, len(data)).has_any


def test_only_the_entries_of_the_burst_count():
    before, own, behind = single((1, 1, 1)), single((2, 2, 1)), single((3, 3, 1))
    data = before + own + behind
    assert contexts_in(data, len(before), len(before) + len(own)).sampled == (TraceContext(2, 2),)


def test_the_work_for_one_burst_is_bounded():
    many = b"".join(single((n, n, 1)) for n in range(1, 1000))
    assert len(contexts_in(many, 0, len(many)).sampled) == MOST_TRACES
    unsampled = b"".join(single((n, n, 0)) for n in range(1, MOST_LOOKED_AT + 1)) + single((7, 7, 1))
    assert contexts_in(unsampled, 0, len(unsampled)) == ((), True)
    far = bytes(SEARCHED_BYTES) + single((7, 7, 1))
    assert contexts_in(far, 0, len(far)) == ((), False)
