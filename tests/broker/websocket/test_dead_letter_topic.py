"""Dead letters of a consumer session: entries that came too often, published message by message."""

import asyncio
import dataclasses
import json

import pytest

from magnetar.broker.websocket import due_entries
from magnetar.broker.websocket.consumer_session import ConsumerSession
from magnetar.broker.websocket.errors import RequestFailedError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.answers import Answer
from magnetar.protocol.batches import encode_batch, encode_entry
from magnetar.protocol.metadata import split_entry
from tests.broker.websocket.test_topics_session import BASE, World
from tests.waiting import until

_T = pb.BaseCommand


@pytest.fixture(autouse=True)
def _without_pause(monkeypatch):
    monkeypatch.setattr(due_entries, "FAILURE_PAUSE_S", 0)


class Letters(World):
    """A shared consumer whose messages become dead letters after one redelivery. `refusal`: of its producer."""

    def __init__(self, **query):
        super().__init__([BASE + "t"], ConsumerSession, maxRedeliverCount="1", receiverQueueSize="2", **query)
        self.refusal, self.before_producer = None, lambda: None
        at_once = self.link.ask

        async def later(build):
            await asyncio.sleep(0)
            return await at_once(build)

        self.link.ask = later

    def answer(self, command):
        if command.type == _T.PRODUCER:
            self.before_producer()
            if self.refusal is not None:
                raise self.refusal
            return pb.CommandProducerSuccess(request_id=1, producer_name="d", last_sequence_id=-1)
        return super().answer(command)

    def deliver(self, entry, count, messages=1, **fields):
        command = _T(type=_T.MESSAGE)
        command.message.consumer_id, command.message.redelivery_count = 0, count
        command.message.message_id.ledgerId, command.message.message_id.entryId = 7, entry
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=messages)
        single = pb.SingleMessageMetadata(payload_size=1, **fields)
        payload = encode_batch([(single, b"x")] * messages)
        self.link.subscribers[_T.MESSAGE](Answer(command, encode_entry(metadata, payload)))

    def receipt(self, sequence_id):
        command = _T(type=_T.SEND_RECEIPT)
        command.send_receipt.producer_id, command.send_receipt.sequence_id = 1 << 20, sequence_id
        self.link.tell(command)

    def refuse(self, sequence_id):
        command = _T(type=_T.SEND_ERROR)
        command.send_error.producer_id, command.send_error.sequence_id = 1 << 20, sequence_id
        command.send_error.error, command.send_error.message = pb.NotAllowedError, "too large"
        self.link.tell(command)

    def unload(self):
        command = _T(type=_T.CLOSE_PRODUCER)
        command.close_producer.producer_id = command.close_producer.request_id = 1 << 20
        self.link.tell(command)

    @property
    def sent(self):
        return [each.send.sequence_id for each in self.link.of(_T.SEND)]

    async def first_sent(self):
        """Wait for the first turn in which messages are sent, and no turn longer; return their numbers."""
        for _ in range(100):
            if self.sent:
                break
            await asyncio.sleep(0)
        return list(self.sent)

    @property
    def redelivered(self):
        asked = (each.redeliverUnacknowledgedMessages for each in self.link.of(_T.REDELIVER_UNACKNOWLEDGED_MESSAGES))
        return [each.entryId for one in asked for each in one.message_ids]

    @property
    def permits(self):
        return sum(each.flow.messagePermits for each in self.link.of(_T.FLOW))


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_entry_whose_messages_are_all_stored_is_acknowledged():
    world = await Letters().opened()
    world.deliver(0, count=2, messages=2)
    await turns()
    assert world.sent == [1, 2]
    world.receipt(1)
    assert world.acknowledged() == []
    world.receipt(2)
    assert world.acknowledged() == [(0, 7)]


async def test_a_dead_letter_has_the_keys_and_the_event_time_of_its_message():
    world = await Letters().opened()
    given = {"partition_key": "aw==", "partition_key_b64_encoded": True, "ordering_key": b"o", "event_time": 7}
    world.deliver(0, count=2, **given)
    world.deliver(1, count=2)
    await turns()
    letters = [split_entry(each)[0] for each in world.link.entries]
    assert [[getattr(each, name) for name in given] for each in letters] == [[*given.values()], ["", False, b"", 0]]
    assert all(each.HasField("event_time") for each in letters)


async def test_an_entry_with_a_refused_message_is_redelivered_once_and_not_acknowledged():
    world = await Letters().opened()
    world.deliver(0, count=2, messages=3)
    await turns()
    world.refuse(1)
    world.receipt(2)
    world.refuse(3)
    await turns()
    assert (world.redelivered, world.acknowledged()) == ([0], [])


async def test_receipts_of_a_failed_attempt_do_not_count_for_the_next_attempt():
    world = await Letters().opened()
    world.deliver(0, count=2, messages=2)
    await turns()
    world.refuse(1)
    world.deliver(0, count=3, messages=2)
    await turns()
    world.receipt(2)
    world.receipt(3)
    assert world.acknowledged() == []
    world.receipt(4)
    assert world.acknowledged() == [(0, 7)]


async def test_an_entry_whose_topic_is_unloaded_between_its_messages_is_redelivered():
    """All receipts of the messages so far had come: no message waited that named the entry as unstored."""
    world = await Letters().opened()
    world.deliver(0, count=2, messages=100)
    first = await world.first_sent()
    for number in first:
        world.receipt(number)
    world.unload()
    await turns()
    assert (len(first), world.sent) == (64, first)
    assert (world.redelivered, world.acknowledged()) == ([0], [])


async def test_messages_that_the_client_does_not_get_give_their_permits_back():
    world = await Letters().opened()
    world.refusal = RequestFailedError(pb.AuthorizationError, "no right")
    for count in range(2, 12):
        world.deliver(0, count=count, messages=2)
        await turns()
    assert len(world.redelivered) == 10
    assert world.permits == 2 + 20, "the window, and a permit for each message"


async def test_several_entries_at_once_open_one_producer():
    world = await Letters().opened()
    for entry in range(3):
        world.deliver(entry, count=2)
    await turns()
    assert (len(world.link.of(_T.PRODUCER)), len(world.sent)) == (1, 3)


async def test_a_turn_publishes_a_bounded_number_of_messages():
    world = await Letters().opened()
    world.deliver(0, count=2, messages=300)
    for entry in range(1, 200):
        world.deliver(entry, count=2)
    most = 0
    while len(world.sent) < 499:
        before = len(world.sent)
        await asyncio.sleep(0)
        most = max(most, len(world.sent) - before)
    assert most <= 64
    assert world.sent == list(range(1, 500))
    for sequence_id in world.sent:
        world.receipt(sequence_id)
    assert len(world.acknowledged()) == 200
    assert world.session.dead_letters._kept_bytes == 0


async def test_an_unload_between_two_turns_ends_the_publication_of_an_entry():
    world = await Letters().opened()
    world.deliver(0, count=2, messages=300)
    await world.first_sent()
    world.unload()
    await turns()
    await until(lambda: world.redelivered == [0])
    sent = len(world.sent)
    await turns()
    assert sent == len(world.sent) < 300
    world.deliver(0, count=2, messages=300)
    await until(lambda: len(world.sent) == sent + 300)


async def test_a_dead_letter_topic_that_is_unloaded_behind_the_answer_gets_its_producer_again():
    world = await Letters().opened()
    world.before_producer = world.unload
    world.deliver(0, count=2)
    await turns()
    assert (world.sent, world.redelivered) == ([], [0])
    world.before_producer = lambda: None
    world.deliver(0, count=3)
    await turns()
    assert (len(world.link.of(_T.PRODUCER)), world.sent) == (2, [1])


async def test_an_unload_redelivers_each_entry_with_unstored_messages_once():
    world = await Letters().opened()
    world.deliver(0, count=2, messages=3)
    await turns()
    world.unload()
    await turns()
    assert world.redelivered == [0]


async def test_an_entry_that_cannot_be_published_is_redelivered_after_a_pause(monkeypatch):
    """A refused producer, or a terminated topic, had such an entry go round between broker and session without end."""
    monkeypatch.setattr(due_entries, "FAILURE_PAUSE_S", 0.2)
    world = await Letters().opened()
    world.refusal = RequestFailedError(pb.AuthorizationError, "no right")
    began_s = asyncio.get_running_loop().time()
    world.deliver(0, count=2)
    await turns()
    world.refusal = None
    world.deliver(1, count=2)
    await turns()
    world.refuse(1)
    await until(lambda: world.redelivered == [0, 1])
    assert asyncio.get_running_loop().time() - began_s > 0.19


async def test_kept_entries_are_in_the_account_of_memory_and_bounded_by_the_share():
    world = await Letters().opened()
    world.session.parameters = dataclasses.replace(world.session.parameters, window=10_000)
    for entry in range(20):
        world.deliver(entry, count=1, messages=100)
        await turns()
    assert 400 << 10 < world.memory.used_bytes < 1 << 20
    for entry in range(20, 60):
        world.deliver(entry, count=1, messages=100)
        await turns()
    assert 900 << 10 < world.memory.used_bytes <= 1 << 20, "the oldest entries make room"
    for entry in range(60):
        world.session.dead_letters.forget((0, 7, entry))
    assert world.memory.used_bytes == 0


async def test_an_entry_of_a_topic_that_was_unloaded_is_redelivered_and_no_dead_letter():
    """The redelivery counts begin again at 0, so the client gets the entry again; it went to the dead letter topic."""
    world = await Letters(negativeAckRedeliveryDelay="1").opened()
    world.deliver(0, count=1)
    await turns()
    world.close_consumer(0)
    await until(lambda: len(world.link.of(_T.SUBSCRIBE)) == 2)
    await turns()
    world.deliver(0, count=0)
    world.say(type="negativeAcknowledge", messageId=json.loads(world.place.peer.texts[-1])["messageId"])
    await until(lambda: world.redelivered or world.sent)
    assert (world.redelivered, world.sent) == ([0], [])


async def test_a_topic_that_was_unloaded_leaves_no_memory_behind():
    world = await Letters().opened()
    world.deliver(0, count=1, messages=1000)
    await turns()
    world.session.forget(world.session.parts[0], owed=False)
    assert world.memory.used_bytes == 0


async def test_a_turn_has_few_dead_letters_with_many_properties():
    """64 letters with tens of thousands of properties each had one turn of a second."""
    world = await Letters().opened()
    for number in range(40):
        world.deliver(number, count=2, properties=[pb.KeyValue(key="", value="")] * 4096)
    first = await world.first_sent()
    assert 1 <= len(first) <= 4
    await until(lambda: len(world.sent) == 40)
