"""Reads of a topic for the records of earlier imports."""

import pytest

from magnetar.client import connection as wire
from magnetar.client.address import Credentials
from magnetar.client.errors import RefusedError, RetryError
from magnetar.converters.entry import build_entry
from magnetar.importing.topic_memory import no_right_to_read, read_stored_sequence_ids
from magnetar.importing.topic_session import Target, open_session
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from tests.importing.scripted_broker import KIND, ScriptedBroker, answer, error


def stored(name, sequence_id, highest=None, messages=1):
    metadata = pb.MessageMetadata(
        producer_name=name, sequence_id=sequence_id, publish_time=1, num_messages_in_batch=messages
    )
    if highest is not None:
        metadata.highest_sequence_id = highest
    return build_entry(metadata.SerializeToString(), b"payload")


class Topic(ScriptedBroker):
    """A topic of entries; delivers as many entries as it has permits for."""

    def __init__(self, entries, **script):
        super().__init__(
            SUBSCRIBE=Topic.subscribe,
            GET_LAST_MESSAGE_ID=Topic.last,
            FLOW=Topic.flow,
            CLOSE_CONSUMER=Topic.done,
            **script,
        )
        self.entries, self.given, self.permits, self.flows, self.properties = entries, 0, 0, 0, {}

    def subscribe(self, command):
        self.properties = {pair.key: pair.value for pair in command.subscribe.metadata}
        return answer(KIND.SUCCESS, success=pb.CommandSuccess(request_id=command.subscribe.request_id))

    def last(self, command):
        entry_id = (len(self.entries) - 1) % (1 << 64)
        response = pb.CommandGetLastMessageIdResponse(
            request_id=command.getLastMessageId.request_id,
            last_message_id=pb.MessageIdData(ledgerId=1, entryId=entry_id),
        )
        return answer(KIND.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=response)

    def flow(self, command):
        self.permits += command.flow.messagePermits
        self.flows += 1
        out = []
        while self.permits > 0 and self.given < len(self.entries):
            message = pb.CommandMessage(consumer_id=command.flow.consumer_id)
            message.message_id.ledgerId, message.message_id.entryId = 1, self.given
            out.append(answer(KIND.MESSAGE, self.entries[self.given][0], message=message))
            self.permits -= self.entries[self.given][1]
            self.given += 1
        return b"".join(out)

    def done(self, command):
        return answer(KIND.SUCCESS, success=pb.CommandSuccess(request_id=command.close_consumer.request_id))


async def read(broker):
    session = await open_session(Target(broker.address, Credentials(), TopicName.parse("t")))
    progress = []
    try:
        return await read_stored_sequence_ids(session, progress.append), progress
    finally:
        session.close()


async def test_an_empty_topic():
    async with Topic([]) as broker:
        assert await read(broker) == ({}, [])
        assert broker.flows == 0
        assert broker.seen[-1] == KIND.CLOSE_CONSUMER


async def test_the_highest_id_of_every_import_and_of_no_other_producer():
    entries = [
        (stored("kafka-import-a", 0, 9, 10), 10),
        (stored("other", 500), 1),
        (stored("kafka-import-b", 7), 1),
        (b"\x00\x00\xff", 1),  # nothing that can be parsed
        (stored("kafka-import-a", 10, 30, 5), 5),
        (stored("kafka-import-b", 3), 1),
    ]
    async with Topic(entries) as broker:
        found, _ = await read(broker)
        assert found == {"kafka-import-a": 30, "kafka-import-b": 7}
        assert broker.properties == {"entry.format.raw": "true"}


async def test_permits_are_renewed_by_messages():
    entries = [(stored("kafka-import-a", n, messages=900), 900) for n in range(40)]
    async with Topic(entries) as broker:
        found, progress = await read(broker)
        assert found == {"kafka-import-a": 39}
        assert broker.flows > 5
        assert progress == sorted(progress) != []


async def test_silence_ends_it(monkeypatch):
    monkeypatch.setattr(wire, "TIMEOUT_S", 0.5)
    async with Topic([(stored("kafka-import-a", 1), 1)]) as broker:
        broker.script[KIND.FLOW] = lambda *_: b""
        with pytest.raises(RetryError, match="--first-import"):
            await read(broker)


async def test_a_broker_that_closes_the_reader_or_refuses_it():
    def close(broker, command):
        closed = pb.CommandCloseConsumer(consumer_id=command.flow.consumer_id, request_id=(1 << 64) - 1)
        return answer(KIND.CLOSE_CONSUMER, close_consumer=closed)

    async with Topic([(stored("kafka-import-a", 1), 1)]) as broker:
        broker.script[KIND.FLOW] = close
        with pytest.raises(RetryError, match="closed the reader"):
            await read(broker)
        broker.script[KIND.SUBSCRIBE] = lambda _, command: error(command.subscribe.request_id, pb.AuthorizationError)
        with pytest.raises(RefusedError, match="AuthorizationError") as refused:
            await read(broker)
    assert "--first-import" in str(no_right_to_read(refused.value))
