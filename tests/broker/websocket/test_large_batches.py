"""Entries of more messages or properties than a session takes apart in one turn of the event loop."""

import pytest

from magnetar.broker.websocket import consumer_session, incoming
from magnetar.broker.websocket.consumer_session import ConsumerSession
from magnetar.broker.websocket.incoming import (
    MOST_IN_BATCH,
    LargeEntryError,
    UnreadableEntryError,
    opened,
    permits_of,
    take_apart,
)
from magnetar.broker.websocket.outstanding import Outstanding
from magnetar.protocol import entry_columns
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol._pure import entry_fact
from magnetar.protocol.answers import Answer
from magnetar.protocol.batches import encode_batch, encode_entry
from magnetar.protocol.metadata import split_entry
from tests.broker.websocket.test_topics_session import BASE, World


def answer(count, claimed=None, properties=0):
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.num_messages_in_batch = claimed or count
    pairs = [pb.KeyValue(key="", value="")] * properties
    plain = encode_batch([(pb.SingleMessageMetadata(properties=pairs), b"")] * count)
    metadata.uncompressed_size = len(plain)
    command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE)
    command.message.consumer_id = 0
    command.message.message_id.ledgerId, command.message.message_id.entryId = 1, 2
    return Answer(command, encode_entry(metadata, plain))


def test_a_batch_within_the_bound_is_taken_apart_and_counted():
    found = list(take_apart(answer(MOST_IN_BATCH), 0, 5 << 20))
    assert len(found) == MOST_IN_BATCH
    kept = Outstanding()
    kept.arrived(found)
    done = [kept.acknowledge((0, 1, 2), index, is_batch=True) for index in range(MOST_IN_BATCH)]
    assert done.index(True) == MOST_IN_BATCH - 1


def test_a_batch_beyond_it_is_not():
    with pytest.raises(LargeEntryError) as failed:
        next(take_apart(answer(MOST_IN_BATCH + 1), 0, 5 << 20))
    assert "1:2" in str(failed.value)


def test_an_entry_that_only_claims_so_many_is_unreadable():
    with pytest.raises(UnreadableEntryError):
        next(take_apart(answer(10, claimed=MOST_IN_BATCH + 1), 0, 5 << 20))


def test_many_properties_are_not_read_in_one_turn():
    """700,000 pairs in an entry of 5 MiB held the event loop for a second."""
    assert len(list(take_apart(answer(1000, properties=60), 0, 5 << 20))) == 1000
    with pytest.raises(LargeEntryError, match="1:2 has"):
        list(take_apart(answer(1000, properties=70), 0, 5 << 20))


def test_a_compressed_entry_counts_with_its_bytes_without_compression():
    """64 entries of a few KiB that expand to 5 MiB each had one turn of the event loop."""
    plain = answer(1)
    assert opened(plain.entry).plain_bytes(len(plain.entry), 5 << 20) == len(plain.entry)
    for claimed, counted in ((5 << 20, 5 << 20), ((5 << 20) + 1, None), (1, None)):
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, compression=pb.ZSTD)
        metadata.uncompressed_size = claimed
        entry = encode_entry(metadata, b"x")
        assert opened(entry).plain_bytes(len(entry), 5 << 20) == (counted or len(entry))


def single(properties, **fields):
    pairs = [pb.KeyValue(key="", value="")] * properties
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, properties=pairs, **fields)
    return Answer(answer(1).command, encode_entry(metadata, b"x"))


@pytest.mark.skipif(not entry_columns.COMPILED, reason="the pure twin makes an object for each field")
def test_properties_are_counted_before_the_parser_makes_an_object_for_each(monkeypatch):
    """The parser took 80 ms for 5 MB of properties, twice, before the session refused them."""
    monkeypatch.setattr(incoming, "split_entry", None)
    with pytest.raises(LargeEntryError, match="too many parts"):
        next(take_apart(single((1 << 16) + 1), 0, 5 << 20))
    entry = bytearray(single(20_000).entry)
    entry[entry.index(b"\x22\x04")] = 0x23  # a group that has no end
    with pytest.raises(LargeEntryError, match="too many parts"):
        next(take_apart(Answer(answer(1).command, bytes(entry)), 0, 5 << 20))


async def test_the_metadata_of_an_entry_are_parsed_once(monkeypatch):
    parsed = []
    monkeypatch.setattr(incoming, "split_entry", lambda entry: parsed.append(entry) or split_entry(entry))
    world = await World([BASE + "t"], ConsumerSession).opened()
    world.link.subscribers[pb.BaseCommand.MESSAGE](single(3))
    assert (len(parsed), world.session.delivered) == (1, 1)


async def test_a_turn_has_few_entries_with_tens_of_thousands_of_properties(monkeypatch):
    """Four entries with 65,000 properties each had one turn of 0.2 s."""
    turns = []
    monkeypatch.setattr(consumer_session.ConsumerSession, "_pump_later", lambda _: turns.append(0))
    world = await World([BASE + "t"], ConsumerSession, receiverQueueSize="100").opened()
    for _ in range(3):
        world.session._arrived.append(single(30_000))
    world.session.pump()
    assert (world.session.delivered, len(turns)) == (0, 1)
    world.session.pump()
    assert world.session.delivered == 1


@pytest.mark.parametrize(
    "fields", [{"compression": pb.ZSTD}, {"encryption_keys": [pb.EncryptionKeys(key="k", value=b"v")]}]
)
@pytest.mark.parametrize("claimed", [1, 50, 5000, 2**31 - 1])
def test_an_entry_gives_back_the_permits_that_the_broker_counted(fields, claimed):
    """A batch of 5000 compressed messages in 100 bytes gave back 100: after some entries the session stood still."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)
    metadata.num_messages_in_batch = claimed
    entry = encode_entry(metadata, bytes(100))
    assert permits_of(Answer(answer(1).command, entry)) == entry_fact(entry, 0)[0]
