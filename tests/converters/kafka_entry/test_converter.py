import json
import pathlib

import pytest

from magnetar.converters.chain import ConverterChain, loaded
from magnetar.converters.entry import Entry, build_entry
from magnetar.converters.errors import ConverterSettingsError
from magnetar.converters.interface import ConverterSettings, ExpansionLimits
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Header, Record
from magnetar.converters.kafka_entry.converter import KafkaConverter
from magnetar.converters.kafka_entry.options import Compression, KafkaOptions, Mode
from magnetar.converters.kafka_entry.planning import plan_entry
from magnetar.converters.kafka_entry.to_kafka import to_kafka_records
from magnetar.converters.outcome import ConversionFailure, FailureReason
from magnetar.protocol.pulsar_api_pb2 import LZ4, NONE, MessageMetadata

FOLDER = pathlib.Path(__file__).parents[2] / "vectors" / "kafka"
VECTORS = json.loads((FOLDER / "vectors.json").read_text())["vectors"]


def chain_of(options=None, **limits):
    converter = KafkaConverter(options)
    limits = ExpansionLimits(**limits)
    converter.init(ConverterSettings({}, limits))
    return ConverterChain([loaded(converter)], limits)


def entry(payload, fmt="kafka", properties=(), **fields):
    made = MessageMetadata(producer_name="p", sequence_id=4, publish_time=9, **fields)
    for key, value in (*properties, ("entry.format", fmt)):
        made.properties.add(key=key, value=value)
    return build_entry(made.SerializeToString(), payload)


def convert(data, chain=None):
    chain = chain or chain_of()
    return chain.convert(data, chain.select(data))


ONE = [Record(7, 50, b"k", b"value", (Header("h", b"x"), Header("b", b"\xff")))]
GOOD = [v for v in VECTORS if v["expect"] in {"ok", "partial", "inner_crc"} and v["batches"]]


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in GOOD])
def test_every_vector_reaches_pulsar_and_comes_back(vector):
    data = (FOLDER / vector["file"]).read_bytes()
    batches = list(RecordSet(data).batches())
    # The recorded last offset of a wrapper as producers send it is 0: then the records tell.
    span = sum(
        b["last_offset"] - b["base_offset"] + 1 if b["last_offset"] else len(vector["records"])
        for b in vector["batches"]
    )
    result = convert(entry(data, num_messages_in_batch=span))
    assert not isinstance(result, ConversionFailure), result
    assert result.messages == span
    got = Entry(result.entry)
    got.verify_checksum()
    assert got.metadata.num_messages_in_batch == span
    wanted = [record for batch in batches if not batch.is_control for record in batch.records()]
    view = list(to_kafka_records(result.entry, 0))
    assert [r._replace(offset=0) for r in view] == [r._replace(offset=0) for r in wanted]
    if len(batches) == 1:
        assert [r.offset + batches[0].base_offset for r in view] == [r.offset for r in wanted]


BAD = [v for v in VECTORS if v["expect"] in {"corrupt", "java_rejects", "unspecified"}]


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in BAD])
def test_entries_that_kafka_rejects_are_failures_of_their_own(vector):
    result = convert(entry((FOLDER / vector["file"]).read_bytes(), num_messages_in_batch=4))
    assert isinstance(result, ConversionFailure)
    assert not result.defect


def test_metadata_is_kept_and_the_format_replaced():
    data = entry(
        build_record_batch(ONE),
        properties=[("own", "1")],
        num_messages_in_batch=1,
        deliver_at_time=99,
        ordering_key=b"o",
    )
    result = convert(data)
    metadata = Entry(result.entry).metadata
    assert [(p.key, p.value) for p in metadata.properties] == [("own", "1"), ("entry.format.origin", "kafka")]
    assert (metadata.producer_name, metadata.sequence_id, metadata.publish_time) == ("p", 4, 9)
    assert (metadata.deliver_at_time, metadata.ordering_key) == (99, b"o")
    assert metadata.compression == NONE


def test_without_a_batch_count_one_record_becomes_a_plain_message():
    metadata = Entry(convert(entry(build_record_batch(ONE))).entry).metadata
    assert not metadata.HasField("num_messages_in_batch")
    assert (metadata.partition_key, metadata.partition_key_b64_encoded, metadata.ordering_key) == ("aw==", True, b"k")
    assert metadata.event_time == 50
    assert [p.key for p in metadata.properties] == ["entry.format.origin", "h", "b", "__kafka.header.b64"]
    null = convert(entry(build_record_batch([Record(0, -1, None, None)])))
    metadata = Entry(null.entry).metadata
    assert metadata.null_value
    assert not metadata.HasField("event_time")
    assert list(to_kafka_records(null.entry, 5)) == [Record(5, -1, None, None)]


def test_without_a_batch_count_more_records_are_an_error():
    two = build_record_batch([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")])
    result = convert(entry(two))
    assert (result.reason, result.defect) == (FailureReason.EXCEPTION, False)
    assert "declared" in result.message


def test_entries_that_declare_their_records_have_no_holes():
    sparse = [Record(offset, 5, None, b"%d" % offset) for offset in (0, 4, 9)]
    planned = plan_entry(build_record_batch(sparse), publish_time=1, gaps=False)
    result = convert(planned.data)
    assert (result.messages, result.holes) == (3, ())
    assert [r.value for r in to_kafka_records(result.entry, 0)] == [b"0", b"4", b"9"]
    alone = convert(entry(build_record_batch([sparse[0]], BatchOptions(base_offset=0, last_offset_delta=5))))
    assert Entry(alone.entry).payload == b"0"


def test_a_lone_control_record_is_an_empty_entry():
    control = build_record_batch([Record(0, 1, b"\0\0\0\1", b"")], BatchOptions(control=True))
    for data in (entry(control), entry(control, num_messages_in_batch=1)):
        result = convert(data)
        assert result.is_empty
        assert (result.messages, result.holes) == (1, (0,))


@pytest.mark.parametrize("payload", [b"", b"short", build_record_batch(ONE)[:-1], b"\xff" * 200])
def test_no_complete_batch_is_an_error(payload):
    assert isinstance(convert(entry(payload)), ConversionFailure)


def test_large_outputs_of_compressed_batches_are_compressed():
    records = [Record(n, 5, None, b"value " * 100) for n in range(300)]
    packed = entry(build_record_batch(records, BatchOptions(codec=Codec.ZSTD)), num_messages_in_batch=300)
    result = convert(packed)
    metadata = Entry(result.entry).metadata
    assert metadata.compression == LZ4
    assert metadata.uncompressed_size > 180_000 > len(result.entry)
    assert list(to_kafka_records(result.entry, 0)) == records
    plain = convert(packed, chain_of(KafkaOptions(compression=Compression.NONE)))
    assert Entry(plain.entry).metadata.compression == NONE
    stored_plain = entry(build_record_batch(records), num_messages_in_batch=300)
    assert Entry(convert(stored_plain).entry).metadata.compression == NONE


def test_bombs_are_oversize():
    bomb = build_record_batch([Record(0, 5, None, bytes(1 << 22))], BatchOptions(codec=Codec.GZIP))
    assert convert(entry(bomb, num_messages_in_batch=1)).reason is FailureReason.OVERSIZE
    declared = entry(build_record_batch(ONE), num_messages_in_batch=(1 << 31) - 1)
    assert convert(declared).reason is FailureReason.OVERSIZE


def test_negative_counts_are_an_error():
    assert isinstance(convert(entry(build_record_batch(ONE), num_messages_in_batch=-1)), ConversionFailure)


def test_entries_as_kop_wrote_them():
    """No 0x0e01, producer name empty, sequence id 0 (KoP entry formats)."""
    made = MessageMetadata(producer_name="", sequence_id=0, publish_time=9, num_messages_in_batch=1)
    made.properties.add(key="entry.format", value="kafka")
    body = made.SerializeToString()
    result = convert(len(body).to_bytes(4, "big") + body + build_record_batch(ONE))
    assert list(to_kafka_records(result.entry, 7)) == ONE


def test_settings_reach_the_records():
    converter = KafkaConverter()
    converter.init(ConverterSettings({"mode": "kop", "offset": "true"}, ExpansionLimits()))
    data = entry(build_record_batch(ONE), num_messages_in_batch=1)
    chain = ConverterChain([loaded(converter)])
    kop = convert(data, chain)
    assert kop.entry == convert(data, chain_of(KafkaOptions(mode=Mode.KOP, offset_property=True))).entry
    assert kop.entry != convert(data).entry
    with pytest.raises(ConverterSettingsError):
        converter.init(ConverterSettings({"mode": "x"}, ExpansionLimits()))


def test_one_instance_serves_many_threads():
    from concurrent.futures import ThreadPoolExecutor

    chain = chain_of()
    entries = [
        plan_entry(build_record_batch([Record(n, 1000 * i + n, b"k", b"v") for n in range(50)]), publish_time=1).data
        for i in range(20)
    ]
    alone = [convert(each, chain) for each in entries]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda each: convert(each, chain), entries)) == alone


def test_a_flood_of_tiny_things_is_converted_in_bounded_memory():
    """Small stored entries that unfold into very many objects: the peak stays a few times the limit of the output."""
    import tracemalloc

    limit = 1 << 20
    chain = chain_of(free_bytes=limit, max_entry_bytes=limit)
    empty = [Record(n, 5, None, b"") for n in range(20_000)]
    header = Header("", b"")
    floods = [
        build_record_batch(empty, BatchOptions(codec=Codec.ZSTD)),
        build_message_set(empty, 1, codec=Codec.GZIP),
        build_record_batch([Record(0, 5, None, None, (header,) * 60_000)], BatchOptions(codec=Codec.ZSTD)),
        build_record_batch([Record(0, 5, None, None, (header,) * 300_000)], BatchOptions(codec=Codec.ZSTD)),
    ]
    for flood in floods:
        data = entry(flood, num_messages_in_batch=60_000)
        tracemalloc.start()
        convert(data, chain)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 32 * limit
