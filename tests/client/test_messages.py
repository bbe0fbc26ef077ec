"""Entries as a consumer of this project's tools sees them."""

import zlib

from magnetar.client.messages import EntryReader
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry

PLACE = pb.MessageIdData(ledgerId=3, entryId=4)


def metadata(**fields):
    return pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1000, **fields)


def test_a_message_of_its_own():
    made = metadata(partition_key="k", event_time=5, compression=pb.ZLIB, uncompressed_size=3)
    (found,) = EntryReader("t").messages(PLACE, encode_entry(made, zlib.compress(b"abc")), 2)
    assert (found.payload, found.key, found.event_time_ms, found.sequence_id) == (b"abc", b"k", 5, 7)
    assert (found.ledger_id, found.entry_id, found.batch_index, found.redelivery_count) == (3, 4, -1, 2)
    assert found.problem is None


def test_the_messages_of_a_batch_but_for_those_compacted_out():
    singles = [
        (pb.SingleMessageMetadata(payload_size=0, partition_key="eA==", partition_key_b64_encoded=True), b"one"),
        (pb.SingleMessageMetadata(payload_size=0, compacted_out=True), b""),
        (pb.SingleMessageMetadata(payload_size=0, null_value=True), b""),
    ]
    made = encode_entry(metadata(num_messages_in_batch=3), encode_batch(singles))
    first, last = EntryReader("t").messages(PLACE, made)
    assert (first.payload, first.key, first.batch_index, first.batch_size) == (b"one", b"x", 0, 3)
    assert (last.null_value, last.batch_index) == (True, 2)


def test_chunks_become_one_message_with_all_its_entries():
    reader, got = EntryReader("t"), []
    for index, part in enumerate((b"ab", b"cd", b"e")):
        made = metadata(uuid="u", chunk_id=index, num_chunks_from_msg=3, total_chunk_msg_size=5)
        got += reader.messages(pb.MessageIdData(ledgerId=3, entryId=index), encode_entry(made, part))
    (found,) = got
    assert (found.payload, found.entries) == (b"abcde", ((3, 0), (3, 1), (3, 2)))


def test_a_chunk_without_its_begin_is_left_out():
    made = metadata(uuid="u", chunk_id=1, num_chunks_from_msg=2)
    assert list(EntryReader("t").messages(PLACE, encode_entry(made, b"x"))) == []


def test_an_unreadable_entry_comes_unchanged_with_the_reason():
    broken = encode_entry(metadata(num_messages_in_batch=2), b"\x00")
    (found,) = EntryReader("t").messages(PLACE, broken)
    assert found.payload == b"\x00"
    assert "the batch ends" in found.problem
    lying = encode_entry(metadata(compression=pb.ZLIB, uncompressed_size=99), zlib.compress(b"abc"))
    (found,) = EntryReader("t").messages(PLACE, lying)
    assert found.problem is not None
    (found,) = EntryReader("t").messages(PLACE, b"\x00\x00\x00\x05zzzzz")
    assert found.problem == "the metadata cannot be read"
    foreign = metadata(num_messages_in_batch=2)
    foreign.properties.add(key="entry.format", value="kafka")
    (found,) = EntryReader("t").messages(PLACE, encode_entry(foreign, b"\x00"))
    assert found.problem == "not converted from entry.format=kafka: see messageConverters"
    secret = metadata()
    secret.encryption_keys.add(key="k", value=b"v")
    (found,) = EntryReader("t").messages(PLACE, encode_entry(secret, b"?"))
    assert (found.encrypted, found.payload) == (True, b"?")


def test_times_are_signed_as_in_java():
    made = pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=(1 << 64) - 2, event_time=(1 << 64) - 1)
    (found,) = EntryReader("t").messages(PLACE, encode_entry(made, b"x"))
    assert (found.publish_time_ms, found.event_time_ms) == (-2, -1)


def with_raw_texts(field_number):
    """The fields of a property and of a partition key that are not UTF-8; the property has this field number."""
    pair = b"\x0a\x02k\xff\x12\x02v\xfe"
    key_field = 6 if field_number == 4 else 2
    return bytes([field_number << 3 | 2, len(pair)]) + pair + bytes([key_field << 3 | 2, 2]) + b"k\xff"


def test_texts_that_are_not_utf8_are_read_as_in_java():
    plain = pb.MessageMetadata.FromString(metadata().SerializeToString() + with_raw_texts(4))
    (found,) = EntryReader("t").messages(PLACE, encode_entry(plain, b"x"))
    assert (found.properties, found.key_text, found.key) == ({"k�": "v�"}, "k�", "k�".encode())
    single = pb.SingleMessageMetadata.FromString(b"\x18\x01" + with_raw_texts(1))
    batch = encode_entry(metadata(num_messages_in_batch=1), encode_batch([(single, b"x")]))
    (found,) = EntryReader("t").messages(PLACE, batch)
    assert (found.properties, found.key_text, found.payload) == ({"k�": "v�"}, "k�", b"x")
