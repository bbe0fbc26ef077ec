"""The decoder against the reference in plain Python, and each case of docs/pipeline/handling.md by itself."""

import random
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.pipeline.columns import EXTRA, PULSAR
from magnetar.pipeline.damage import Reason
from magnetar.pipeline.decode.decoder import Decoder
from magnetar.pipeline.decode.reference import reference_rows
from magnetar.pipeline.errors import CorruptEntryError
from magnetar.pipeline.values.decoders import value_decoder
from magnetar.pipeline.values.topic_schema import TopicSchema
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.pipeline import entries_for_tests as e
from tests.pipeline.values.values_for_tests import avro_schema, encode_avro

ALL = ["value", *(column.name for column in (*PULSAR, *EXTRA))]


def decoded(bodies, *, first=None, end=None, columns=ALL, decoder=None, **options):
    decoder = decoder or Decoder(columns, **options)
    rows = []
    for batch in decoder.decode(e.chunk_of(bodies), first, end):
        assert batch.schema == decoder.schema
        batch.validate(full=True)
        rows += batch.to_pylist()
    return rows


def one(bodies, **options):
    (row,) = decoded(bodies, **options)
    return row


@given(seed=st.integers(0, 2**60))
@settings(max_examples=120, deadline=None)
def test_rows_are_those_of_the_reference(seed):
    rng = random.Random(seed)
    bodies, end = e.random_bodies(rng, rng.randrange(1, 25))
    chunk = e.chunk_of(bodies, partition=rng.choice((-1, 2)), first=rng.choice((0, 10_000)))
    first, last = sorted((rng.randrange(end + 2), rng.randrange(end + 2)))
    first, last = rng.choice(((None, None), (first, last), (None, last), (first, None)))
    decoder = Decoder(ALL, batch_rows=rng.choice((1, 7, 4096)), batch_bytes=rng.choice((500, 4 << 20)))
    found = [row for batch in decoder.decode(chunk, first, last) for row in batch.to_pylist()]
    assert found == list(reference_rows(chunk, first, last))


@given(seed=st.integers(0, 2**60))
@settings(max_examples=60, deadline=None)
def test_ranges_side_by_side_give_each_message_once(seed):
    rng = random.Random(seed)
    bodies, end = e.random_bodies(rng, rng.randrange(1, 15))
    chunk = e.chunk_of(bodies)
    whole = [row["__messageId"] for row in decoded(bodies)]
    cuts = sorted({0, end, *(rng.randrange(end + 1) for _ in range(3))})
    parts = []
    for first, last in pairwise(cuts):
        parts += [row["__messageId"] for row in decoded(bodies, first=first, end=last)]
    if all(row["__index"] is not None for row in reference_rows(chunk)):
        assert parts == whole


@given(seed=st.integers(0, 2**60))
@settings(max_examples=100, deadline=None)
def test_damage_never_raises_in_quarantine_and_spares_the_others(seed):
    rng = random.Random(seed)
    bodies, _ = e.random_bodies(rng, rng.randrange(2, 10))
    at = rng.randrange(len(bodies))
    broken = bytearray(bodies[at])
    broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
    others = {row["__entryId"] for row in decoded(bodies)} - {at}
    chunked = {i for i, body in enumerate(bodies) if b"u-" in body}
    decoder = Decoder(ALL, on_corrupt="quarantine")
    found = {row["__entryId"] for row in decoded([*bodies[:at], bytes(broken), *bodies[at + 1 :]], decoder=decoder)}
    assert others - chunked <= found


@given(data=st.lists(st.binary(max_size=80), max_size=5), verify=st.booleans())
def test_any_bytes_are_rows_or_quarantined(data, verify):
    decoder = Decoder(ALL, on_corrupt="quarantine", verify=verify)
    rows = decoded(data, decoder=decoder)
    assert len({row["__entryId"] for row in rows} | {q.entry_id for q in decoder.quarantined}) <= len(data)


def test_the_columns_are_in_the_order_of_the_table():
    decoder = Decoder()
    assert decoder.schema.names == ALL[:-1]
    assert Decoder(["__index", "value"]).schema.names == ["value", "__index"]


def test_no_column_at_all_still_counts_rows():
    (batch,) = Decoder([]).decode(e.chunk_of([e.plain(index=0), e.plain(index=1)]))
    assert (batch.num_rows, batch.num_columns) == (2, 0)


def test_kafka_style():
    row = one(
        [e.plain(b"v", index=5, ordering_key=b"o", partition_key="k", properties=[("h", "1"), ("h", "2")])],
        columns=None,
        style="kafka",
        include_headers=True,
    )
    assert row["key"] == b"o"
    assert row["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}]
    assert (row["topic"], row["partition"], row["offset"], row["timestampType"]) == (
        "persistent://public/default/orders",
        2,
        5,
        0,
    )
    assert row["timestamp"].timestamp() * 1000 == e.NOW


def test_headers_of_kafka_records_are_those_of_their_producer():
    headers = [("text", b"a"), ("null", None), ("binary", b"\xff\x00"), ("text", b"b")]
    rows = decoded(
        [
            e.kafka([(b"k", b"v", headers), (None, b"w", ())], index=1),
            e.plain(b"x", properties=[("__kafka.header.b64", "9")]),
        ],
        columns=["headers", "key"],
        style="kafka",
        include_headers=True,
    )
    assert [row["headers"] and [(h["key"], h["value"]) for h in row["headers"]] for row in rows] == [
        headers,
        None,
        [("__kafka.header.b64", b"9")],
    ]


def test_kafka_style_without_headers_has_null():
    row = one([e.plain(event_time=1000)], columns=None, style="kafka", include_headers=True)
    assert (row["headers"], row["offset"], row["key"], row["timestamp"].timestamp()) == (None, None, None, 1)


def test_messages_of_a_batch_count_back_from_the_index_of_the_last():
    body = e.batch([e.single(b"a"), e.single(b"b"), e.single(b"c")], index=12)
    assert [row["__index"] for row in decoded([body])] == [10, 11, 12]
    assert [row["value"] for row in decoded([body], first=11, end=12)] == [b"b"]


def test_compacted_messages_leave_gaps():
    body = e.batch([e.single(compacted_out=True), e.single(b"b"), e.single(compacted_out=True)], index=2)
    row = one([body])
    assert (row["__index"], row["__batchIndex"], row["value"]) == (1, 1, b"b")


def test_an_empty_batch_has_no_rows():
    assert decoded([e.batch([], index=None), e.plain(b"x")])[0]["value"] == b"x"


def test_tombstones_have_no_value():
    row = one([e.plain(b"", null_value=True, partition_key="k")])
    assert (row["value"], row["__nullValue"], row["__size"], row["__key"]) == (None, True, 0, b"k")


def test_times():
    row = one([e.plain(event_time=0, index=1)])
    assert row["__eventTime"] is None
    assert row["__brokerPublishTime"].timestamp() * 1000 == e.NOW + 5
    assert one([e.plain()])["__brokerPublishTime"] is None
    assert one([e.plain(publish_time=2**63)])["__publishTime"] is None


@pytest.mark.parametrize("codec", [pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY])
def test_codecs(codec):
    bodies = [e.plain(b"one" * 50, codec=codec, index=0), e.batch([e.single(b"two")], codec=codec, index=1)]
    assert [row["value"] for row in decoded(bodies)] == [b"one" * 50, b"two"]


def test_markers_are_left_out_unless_asked_for():
    bodies = [e.plain(b"m", marker_type=10, index=0), e.plain(b"v", index=1)]
    assert [row["value"] for row in decoded(bodies)] == [b"v"]
    assert [row["value"] for row in decoded(bodies, include_markers=True)] == [b"m", b"v"]


def test_encrypted_batches_are_one_row_at_the_index_of_their_first_message():
    row = one([e.encrypted(b"cipher", index=9, num_messages_in_batch=4, compression=pb.LZ4, uncompressed_size=99)])
    assert (row["value"], row["__index"], row["__batchIndex"], row["__size"]) == (b"cipher", 6, None, 6)
    assert row["__encryptionContext"] == {
        "keys": [{"name": "app", "value": b"data key", "metadata": [("version", "1")]}],
        "algorithm": "AES/GCM",
        "param": b"iv",
        "compression": "LZ4",
        "uncompressedSize": 99,
        "batchSize": 4,
    }


def test_encrypted_entries_may_be_refused():
    with pytest.raises(CorruptEntryError, match="encrypted"):
        decoded([e.encrypted()], on_encrypted="fail")
    decoder = Decoder(on_encrypted="quarantine")
    assert decoded([e.encrypted(), e.plain(b"x")], decoder=decoder)[0]["value"] == b"x"
    assert decoder.quarantine.counts == {Reason.ENCRYPTED: 1}
    with pytest.raises(ValueError, match="onEncrypted"):
        Decoder(on_encrypted="decrypt")


def test_kafka_entries_are_one_row_a_record():
    rows = decoded([e.kafka([(b"k1", b"a", [("h", b"x")]), (None, None, ())], index=7)])
    assert [(r["__key"], r["value"], r["__nullValue"], r["__index"], r["__batchIndex"]) for r in rows] == [
        (b"k1", b"a", False, 6, 0),
        (None, None, True, 7, 1),
    ]
    assert rows[0]["__messageProperties"] == [("h", "x")]
    assert rows[0]["__eventTime"].timestamp() * 1000 == e.NOW


def test_an_entry_of_another_format_is_decoded_unchanged():
    row = one([e.plain(b"v", properties=[("entry.format", "protobuf")])])
    assert row["value"] == b"v"


def test_of_two_properties_the_later_counts():
    row = one([e.plain(properties=[("a", "1"), ("b", "2"), ("a", "3")])])
    assert row["__messageProperties"] == [("b", "2"), ("a", "3")]


def test_text_that_is_no_utf8_is_replaced():
    meta = e.metadata(producer_name="ab").SerializeToString().replace(b"ab", b"\xffb")
    body = len(meta).to_bytes(4, "big") + meta + b"v"
    assert one([body])["__producerName"] == "\ufffdb"


def test_the_id_is_that_of_the_official_clients():
    bodies = [e.plain(), e.batch([e.single(b"a"), e.single(b"b")])]
    ids = [pb.MessageIdData.FromString(row["__messageId"]) for row in decoded(bodies)]
    assert ids == [
        pb.MessageIdData(ledgerId=9, entryId=0, partition=2),
        pb.MessageIdData(ledgerId=9, entryId=1, partition=2, batch_index=0, batch_size=2),
        pb.MessageIdData(ledgerId=9, entryId=1, partition=2, batch_index=1, batch_size=2),
    ]


def test_batches_are_bounded_by_rows_and_bytes():
    bodies = [e.plain(b"x" * 1000, index=i) for i in range(100)]
    chunk = e.chunk_of(bodies)
    assert [b.num_rows for b in Decoder(batch_rows=30).decode(chunk)] == [30, 30, 30, 10]
    sizes = [b.num_rows for b in Decoder(batch_bytes=10_000).decode(chunk)]
    assert sum(sizes) == 100
    assert max(sizes) < 10
    assert [b.num_rows for b in Decoder(batch_bytes=1).decode(chunk)] == [1] * 100


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_wrong_checksum_is_named_with_its_position():
    broken = bytearray(e.plain(b"value", index=4))
    broken[-1] ^= 1
    bodies = [e.plain(index=3), bytes(broken), e.plain(index=5)]
    with pytest.raises(CorruptEntryError, match=r"orders-partition-2 9:1 \(index 4\): checksum"):
        decoded(bodies)
    decoder = Decoder(on_corrupt="quarantine")
    assert [row["__index"] for row in decoded(bodies, decoder=decoder)] == [3, 5]
    (found,) = decoder.quarantined
    assert (found.reason, found.ledger_id, found.entry_id, found.index) == (Reason.CHECKSUM, 9, 1, 4)
    assert decoded(bodies, verify=False)[1]["value"] == b"valud"


def test_damage_is_reported_by_the_range_that_has_it():
    broken = bytearray(e.plain(index=4))
    broken[-1] ^= 1
    bodies = [e.plain(index=3), bytes(broken), e.plain(index=5)]
    assert len(decoded(bodies, end=4)) == 1
    with pytest.raises(CorruptEntryError):
        decoded(bodies, first=4, end=5)


def test_a_broken_batch_delivers_its_sound_messages():
    data = e.encode_batch([e.single(b"a"), e.single(b"b"), e.single(b"c")])
    meta = e.metadata(num_messages_in_batch=3)
    body = e.stored(meta, data[:-3], index=2)
    decoder = Decoder(on_corrupt="quarantine")
    assert [row["value"] for row in decoded([body, e.plain(b"next", index=3)], decoder=decoder)] == [
        b"a",
        b"b",
        b"next",
    ]
    (found,) = decoder.quarantined
    assert (found.reason, found.batch_index, found.index, found.messages) == (Reason.BATCH, 2, 2, 1)


def test_a_bomb_is_refused_by_its_declared_and_its_real_size():
    bomb = e.compress(pb.ZSTD, bytes(1 << 20))
    bodies = [
        e.stored(e.metadata(compression=pb.ZSTD, uncompressed_size=100), bomb),
        e.stored(e.metadata(compression=pb.ZSTD, uncompressed_size=1 << 31), bomb),
        e.stored(e.metadata(compression=pb.ZSTD, uncompressed_size=1 << 20), bomb),
        e.plain(b"x"),
    ]
    decoder = Decoder(on_corrupt="quarantine", max_message_bytes=1000)
    assert [row["value"] for row in decoded(bodies, decoder=decoder)] == [b"x"]
    assert decoder.quarantine.counts == {Reason.COMPRESSION: 3}


def test_an_unknown_codec_is_damage():
    meta = e.metadata().SerializeToString() + b"\x40\x09"  # compression = 9
    body = len(meta).to_bytes(4, "big") + meta + b"v"
    with pytest.raises(CorruptEntryError, match="unknown codec 9"):
        decoded([body])


def test_a_batch_that_claims_millions_of_messages_makes_no_rows_of_them():
    body = e.stored(e.metadata(num_messages_in_batch=2**31 - 1), e.encode_batch([e.single(b"a")]))
    decoder = Decoder(on_corrupt="quarantine")
    assert [row["value"] for row in decoded([body], decoder=decoder)] == [b"a"]
    assert decoder.quarantine.messages == 2**31 - 2


def test_a_large_batch_is_decoded_in_pieces(monkeypatch):
    monkeypatch.setattr("magnetar.pipeline.decode.block_rows.MAX_ROWS", 10)
    monkeypatch.setattr("magnetar.pipeline.decode.block_rows.MAX_ROWS", 10)
    bodies = [e.plain(b"first"), e.batch([e.single(b"%d" % i) for i in range(95)]), e.plain(b"last")]
    assert [row["value"] for row in decoded(bodies)] == [b"first", *(b"%d" % i for i in range(95)), b"last"]


def test_a_key_that_is_no_base64_is_damage_of_its_message():
    good, bad = e.single(b"a"), e.single(b"b", partition_key="!", partition_key_b64_encoded=True)
    decoder = Decoder(on_corrupt="quarantine")
    assert [row["value"] for row in decoded([e.batch([good, bad], index=1)], decoder=decoder)] == [b"a"]
    (found,) = decoder.quarantined
    assert (found.reason, found.batch_index, found.index) == (Reason.KEY, 1, 1)


def test_a_broken_kafka_entry_is_damage():
    body = e.stored(e.metadata(properties=[("entry.format", "kafka")]), b"no record batch", index=1)
    with pytest.raises(CorruptEntryError, match="conversion"):
        decoded([body])


# --- chunked messages -------------------------------------------------------------------------------------------------


def test_a_chunked_message_stands_at_its_last_chunk():
    bodies = e.chunks(b"0123456789" * 20, [50, 50], first=10, codec=pb.LZ4)
    row = one(bodies)
    assert (row["value"], row["__entryId"], row["__index"]) == (b"0123456789" * 20, 2, 12)
    assert pb.MessageIdData.FromString(row["__messageId"]) == pb.MessageIdData(
        ledgerId=9,
        entryId=2,
        partition=2,
        first_chunk_message_id=pb.MessageIdData(ledgerId=9, entryId=0, partition=2),
    )


def test_chunks_are_joined_across_calls():
    first, second = e.chunks(b"hello world", [5], first=0)
    decoder = Decoder(["value"])
    assert decoded([first], decoder=decoder) == []
    assert decoder.unfinished() == [(9, 0, "1 of 2 chunks so far")]
    assert decoded([second], decoder=decoder) == [{"value": b"hello world"}]
    assert decoder.unfinished() == []


def test_interleaved_chunked_messages():
    a, b = e.chunks(b"aaaaaa", [3], uuid="a", first=0), e.chunks(b"bbbbbb", [3], uuid="b", first=1)
    assert [row["value"] for row in decoded([a[0], b[0], a[1], b[1]])] == [b"aaaaaa", b"bbbbbb"]


def test_repeated_chunks_are_left_out():
    a, b, c = e.chunks(b"abc", [1, 1])
    assert [row["value"] for row in decoded([a, b, b, c, c])] == [b"abc"]
    assert [row["value"] for row in decoded([a, a, b, c])] == [b"abc"]


def test_an_incomplete_message_is_reported_once_and_no_damage():
    a, _, c, d = e.chunks(b"abcd", [1, 1, 1], first=0)
    decoder = Decoder()
    assert decoded([a, c, d, e.plain(b"x", index=4)], decoder=decoder)[0]["value"] == b"x"
    assert decoder.quarantine.counts == {Reason.CHUNKS: 1}
    decoder = Decoder()
    assert decoded([c, d], decoder=decoder) == []
    assert decoder.quarantine.counts == {Reason.CHUNKS: 1}


def test_a_message_belongs_to_the_range_of_its_last_chunk():
    bodies = [*e.chunks(b"abc", [1, 1], first=0), e.plain(b"x", index=3)]
    assert decoded(bodies, end=2) == []
    assert [row["value"] for row in decoded(bodies, first=2)] == [b"abc", b"x"]


def test_chunks_before_the_range_are_looked_for_backwards():
    bodies = [e.plain(b"y", index=0), *e.chunks(b"abc", [1, 1], first=1), e.plain(b"x", index=4)]
    asked = []

    def look_back(topic, ledger_id, entry_id):
        asked.append((topic, ledger_id, entry_id))
        yield e.chunk_of(bodies[2:3], first=2)
        yield e.chunk_of(bodies[:2])

    decoder = Decoder(["value"], look_back=look_back)
    rows = [row for batch in decoder.decode(e.chunk_of(bodies[3:], first=3), 3) for row in batch.to_pylist()]
    assert rows == [{"value": b"abc"}, {"value": b"x"}]
    assert asked == [(e.TOPIC, 9, 3)]
    assert not decoder.quarantine.counts


def test_chunks_not_found_backwards_are_reported():
    _, last = e.chunks(b"ab", [1], first=1)
    decoder = Decoder(look_back=lambda *_: iter([e.chunk_of([e.plain(index=0)])]))
    assert decoded([last], decoder=decoder) == []
    assert decoder.quarantine.counts == {Reason.CHUNKS: 1}


def test_unfinished_messages_are_forgotten_at_the_end():
    decoder = Decoder()
    decoded(e.chunks(b"ab", [1])[:1], decoder=decoder)
    assert list(decoder.finish()) == []
    assert decoder.unfinished() == []
    assert not decoder.quarantine.counts


def test_a_joined_message_has_a_bound():
    decoder = Decoder(max_message_bytes=5)
    assert decoded(e.chunks(b"abcdefgh", [4]), decoder=decoder) == []
    assert decoder.quarantine.counts == {Reason.CHUNKS: 1}


def test_an_encrypted_chunked_message_is_joined_and_handed_over():
    bodies = e.chunks(b"cipher", [3], encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")])
    row = one(bodies)
    assert (row["value"], row["__encryptionContext"]["keys"][0]["name"]) == (b"cipher", "k")


def test_batches_are_lists_that_arrow_knows_how_to_write(tmp_path):
    bodies, _ = e.random_bodies(random.Random(3), 30)
    table = pa.Table.from_batches(list(Decoder(ALL).decode(e.chunk_of(bodies))))
    assert table.num_rows == len(decoded(bodies))


# --- values by schema -------------------------------------------------------------------------------------------------


def test_values_are_typed_by_schema():
    rows = decoded(
        [e.plain(b"\0\0\0\5", index=0), e.plain(b"", null_value=True, index=1)],
        columns=["__index", "value"],
        value=value_decoder(TopicSchema("INT32")),
    )
    assert rows == [{"value": 5, "__index": 0}, {"value": None, "__index": 1}]


def test_fields_of_a_record_stand_before_our_columns():
    schema = avro_schema({"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]})
    decoder = Decoder(value=value_decoder(schema))
    assert decoder.schema.names[:3] == ["id", "name", "__key"]
    payload = encode_avro(schema, {"id": 5, "name": "a"})[0]
    assert decoded([e.plain(payload)], columns=["name"], value=value_decoder(schema)) == [{"name": "a"}]


def test_a_value_that_does_not_fit_its_schema_is_quarantined_with_its_message():
    bodies = [e.batch([e.single(b"\0\0\0\1"), e.single(b"short"), e.single(b"\0\0\0\2")], index=2)]
    with pytest.raises(CorruptEntryError, match=r"9:0:1 \(index 1\): value: 5 bytes, INT32 has 4"):
        decoded(bodies, columns=["value"], value=value_decoder(TopicSchema("INT32")))
    decoder = Decoder(["value"], value=value_decoder(TopicSchema("INT32")), on_corrupt="quarantine")
    assert decoded(bodies, decoder=decoder) == [{"value": 1}, {"value": 2}]
    assert decoder.quarantine.counts == {Reason.VALUE: 1}


def test_an_encrypted_message_has_no_typed_value():
    decoder = Decoder(["value"], value=value_decoder(TopicSchema("INT32")), on_corrupt="quarantine")
    assert decoded([e.encrypted(b"\0\0\0\1")], decoder=decoder) == []
    assert decoder.quarantine.counts == {Reason.ENCRYPTED: 1}


def test_values_that_no_query_selects_are_not_decoded():
    decoder = Decoder(["__index"], value=value_decoder(TopicSchema("INT32")))
    assert decoded([e.plain(b"short", index=3)], decoder=decoder) == [{"__index": 3}]


# --- checksums --------------------------------------------------------------------------------------------------------


def test_entries_verified_by_the_reader_are_not_verified_again():
    body = bytearray(e.plain(b"value"))
    body[-1] ^= 1
    chunk = e.chunk_of([bytes(body)])
    with pytest.raises(CorruptEntryError, match="CRC32C"):
        list(Decoder(["value"]).decode(chunk))
    for part in (replace(chunk, verified=True), replace(chunk, verified=True).slice(0, 1)):
        (batch,) = Decoder(["value"]).decode(part)
        assert batch.num_rows == 1
