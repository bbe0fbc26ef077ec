"""Partitions of messages, whose choice for some keys the recorded scenarios compare with Apache Pulsar, and producers
whose topics are unloaded.
"""

import random

from magnetar.broker.tasks import TaskSet
from magnetar.broker.websocket.parameters import ProducerParameters
from magnetar.broker.websocket.producer_session import ProducerSession, Router
from magnetar.broker.websocket.session import SessionPath
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from tests.broker.websocket.session_link import ScriptedLink, place
from tests.waiting import until


def test_one_partition_or_one_after_the_other():
    single = Router(5, "SinglePartition", "JavaStringHash", random.Random(1))
    assert len({single.partition(None) for _ in range(20)}) == 1
    every = Router(3, "RoundRobinPartition", "JavaStringHash", random.Random(1))
    first = [every.partition(None) for _ in range(6)]
    assert sorted(first[:3]) == [0, 1, 2]
    assert first[:3] == first[3:]


def test_keys_stay_together():
    for hashing in ("JavaStringHash", "Murmur3_32Hash"):
        router = Router(7, "RoundRobinPartition", hashing)
        assert len({router.partition("key") for _ in range(10)}) == 1


async def test_a_topic_that_is_unloaded_behind_the_answer_gets_its_producer_again():
    """The answer to PRODUCER and CLOSE_PRODUCER may come in one turn of the loop: the producer exists no more."""
    unloads = iter([True, True])

    def on(command):
        if command.type != pb.BaseCommand.PRODUCER:
            return pb.CommandPartitionedTopicMetadataResponse(request_id=1, partitions=0)
        if next(unloads, False):
            closed = pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER)
            closed.close_producer.producer_id = closed.close_producer.request_id = command.producer.producer_id
            link.tell(closed)
        return pb.CommandProducerSuccess(request_id=1, producer_name="p", last_sequence_id=-1)

    link = ScriptedLink(on)
    path = SessionPath("producer", TopicName.parse("persistent://public/default/t"))
    session = ProducerSession(place(link, path, TaskSet()), ProducerParameters.of({}))
    await session.open()
    session.start()
    session.on_text('{"payload": ""}')
    assert not link.of(pb.BaseCommand.SEND)
    await until(lambda: len(link.of(pb.BaseCommand.SEND)) == 1)
    assert len(link.of(pb.BaseCommand.PRODUCER)) == 3
