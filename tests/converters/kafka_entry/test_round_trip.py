"""Kafka -> stored entry -> Pulsar view -> Kafka view: faithful mode changes no record, with any content."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.converters.chain import ConverterChain, loaded
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Header, Record
from magnetar.converters.kafka_entry.converter import KafkaConverter
from magnetar.converters.kafka_entry.options import KafkaOptions, KeyText
from magnetar.converters.kafka_entry.planning import plan_entry
from magnetar.converters.kafka_entry.to_kafka import to_kafka_records
from magnetar.converters.outcome import ConversionFailure, Converted

FIELD = st.none() | st.binary(max_size=30)
KEY = st.binary(max_size=8).map(lambda b: b.decode("utf-8", "surrogateescape")) | st.sampled_from(
    ["__kafka.headers", "__kafka.header.b64", "entry.format", "entry.format.origin", ""]
)
HEADERS = st.lists(st.builds(Header, KEY, FIELD), max_size=3).map(tuple)
TIME = st.integers(-1, 1 << 50) | st.integers(-(1 << 62), 1 << 62)
ROWS = st.lists(st.tuples(st.integers(1, 4), TIME, FIELD, FIELD, HEADERS), min_size=1, max_size=6)
BATCHES = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.sampled_from(list(Codec)), st.none() | st.integers(0, 1 << 40), ROWS),
    min_size=1,
    max_size=3,
)
OPTIONS = st.builds(KafkaOptions, key=st.sampled_from(KeyText), offset_property=st.booleans())


def build(batches, first):
    """A record set whose batches follow each other without gaps between them."""
    parts, offset = [], first
    for magic, codec, append_time, rows in batches:
        records = []
        for gap, *fields in rows:
            records.append(Record(offset, *fields))
            offset += gap
        offset = records[-1].offset + 1
        if magic == 2:
            parts.append(build_record_batch(records, BatchOptions(codec=codec, append_time=append_time)))
        else:
            packing = Codec.GZIP if codec in (Codec.NONE, Codec.ZSTD) else codec  # plain messages have no gaps
            bare = [record._replace(headers=()) for record in records]
            parts.append(build_message_set(bare, 1, codec=packing, append_time=append_time))
    return b"".join(parts)


@given(BATCHES, st.integers(1, 1 << 40), OPTIONS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_kafka_view_equals_the_stored_set(batches, first, options):
    data = build(batches, first)
    planned = plan_entry(data, publish_time=123)
    chain = ConverterChain([loaded(KafkaConverter(options))])
    chosen = chain.select(planned.data)
    result = chain.convert(planned.data, chosen)
    assert isinstance(result, Converted), result
    assert list(to_kafka_records(result.entry, first)) == list(RecordSet(data))
    assert chain.convert(planned.data, chosen).entry == result.entry
    assert chain.select(result.entry) is None, "a converted entry is no foreign entry any more"


@given(st.binary(max_size=400), st.integers(-2, 50) | st.none())
def test_any_stored_payload_gives_an_entry_or_a_failure(payload, declared):
    chain = ConverterChain([loaded(KafkaConverter())])
    data = entry_of(payload, declared)
    result = chain.convert(data, chain.select(data))
    assert isinstance(result, Converted | ConversionFailure)
    assert not getattr(result, "defect", False)


@given(BATCHES, st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_entries_are_never_a_defect(batches, data):
    stored = bytearray(build(batches, 1))
    for at, mask in data.draw(
        st.lists(st.tuples(st.integers(0, len(stored) - 1), st.integers(1, 255)), min_size=1, max_size=3)
    ):
        stored[at] ^= mask
    del stored[data.draw(st.integers(1, len(stored)) | st.just(len(stored))) :]
    chain = ConverterChain([loaded(KafkaConverter())])
    entry = entry_of(bytes(stored), data.draw(st.integers(1, 60)))
    result = chain.convert(entry, chain.select(entry))
    assert isinstance(result, Converted | ConversionFailure)
    assert not getattr(result, "defect", False)


def entry_of(payload, declared):
    from magnetar.converters.entry import build_entry
    from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.properties.add(key="entry.format", value="kafka")
    if declared is not None:
        metadata.num_messages_in_batch = declared
    return build_entry(metadata.SerializeToString(), payload)
