"""Partitions of messages, whose choice for some keys the recorded scenarios compare with Apache Pulsar, and producers
whose topics are unloaded.
"""

import json
import random

from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.tasks import TaskSet
from magnetar.broker.websocket.errors import RequestFailedError
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


class World:
    """A producer session on partitions, whose share of memory is `memory`."""

    def __init__(self, partitions=0, **query):
        self.partitions, self.memory = partitions, MemoryAccount(MemoryLimits(1 << 20, 1 << 20, 1 << 20))
        self.link = ScriptedLink(self.answer)
        path = SessionPath("producer", TopicName.parse("persistent://public/default/t"))
        self.place = place(self.link, path, TaskSet(), self.memory.share("here"))
        self.place.peer.wait_for_memory = lambda: None
        self.session = ProducerSession(self.place, ProducerParameters.of(query))

    def answer(self, command):
        if command.type == pb.BaseCommand.PRODUCER:
            return pb.CommandProducerSuccess(request_id=1, producer_name="p", last_sequence_id=-1)
        return pb.CommandPartitionedTopicMetadataResponse(request_id=1, partitions=self.partitions)

    async def opened(self):
        await self.session.open()
        self.session.start()
        return self

    def store_all(self):
        for each in self.link.of(pb.BaseCommand.SEND):
            command = pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT)
            receipt = command.send_receipt
            receipt.producer_id, receipt.sequence_id = each.send.producer_id, each.send.sequence_id
            self.link.tell(command)


LONG_DELAY = {"batchingEnabled": "true", "batchingMaxPublishDelay": "2000000000"}


async def test_messages_in_batches_and_their_contexts_are_in_the_account_of_memory():
    world = await World(3, messageRoutingMode="RoundRobinPartition", **LONG_DELAY).opened()
    context = "c" * (64 << 10)
    for _ in range(6):
        world.session.on_text(json.dumps({"payload": "", "context": context}))
    assert not world.link.of(pb.BaseCommand.SEND)
    assert 6 << 16 < world.memory.used_bytes < 14 << 16
    for _ in range(2):
        world.session.on_text(json.dumps({"payload": "", "context": context}))
    assert len(world.link.of(pb.BaseCommand.SEND)) == 3, "the share is used up: all batches are sent"
    assert world.memory.used_bytes > 8 << 16, "until their answers"
    world.store_all()
    assert (len(world.place.peer.texts), world.memory.used_bytes) == (8, 0)


async def test_contexts_of_unstored_messages_are_in_the_account_of_memory():
    world = await World().opened()
    world.session.on_text(json.dumps({"payload": "", "context": "c" * (64 << 10)}))
    assert world.memory.used_bytes > 1 << 16
    world.store_all()
    assert world.memory.used_bytes == 0


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


async def test_messages_go_to_added_partitions_too(monkeypatch):
    monkeypatch.setattr("magnetar.broker.websocket.session.PARTITIONS_EVERY_S", 0.001)
    world = await World(2, messageRoutingMode="RoundRobinPartition").opened()
    world.partitions = 3
    await until(lambda: len(world.link.of(pb.BaseCommand.PRODUCER)) == 3)
    await until(lambda: len(world.session._parts) == 3 and world.session._parts[2].is_open)
    assert world.link.of(pb.BaseCommand.PRODUCER)[2].producer.topic == "persistent://public/default/t-partition-2"
    for _ in range(3):
        world.session.on_text('{"payload": ""}')
    assert {each.send.producer_id for each in world.link.of(pb.BaseCommand.SEND)} == {0, 1, 2}


async def test_an_added_partition_that_cannot_be_opened_is_tried_again_and_gets_no_message(monkeypatch):
    monkeypatch.setattr("magnetar.broker.websocket.session.PARTITIONS_EVERY_S", 0.001)
    world = await World(1, messageRoutingMode="RoundRobinPartition").opened()
    at_once = world.link.on

    def refuse(command):
        if command.type == pb.BaseCommand.PRODUCER:
            raise RequestFailedError(pb.AuthorizationError, "no right")
        return at_once(command)

    world.link.on, world.partitions = refuse, 2
    await until(lambda: len(world.link.of(pb.BaseCommand.PRODUCER)) >= 3)
    for _ in range(3):
        world.session.on_text('{"payload": ""}')
    assert {each.send.producer_id for each in world.link.of(pb.BaseCommand.SEND)} == {0}
    world.link.on = at_once
    await until(lambda: len(world.session._parts) == 2 and world.session._parts[1].is_open)


async def test_each_of_several_added_partitions_that_cannot_be_opened_is_tried_again(monkeypatch):
    monkeypatch.setattr("magnetar.broker.websocket.session.PARTITIONS_EVERY_S", 0.001)
    world = await World(1, messageRoutingMode="RoundRobinPartition").opened()
    at_once = world.link.on

    def refuse(command):
        if command.type == pb.BaseCommand.PRODUCER:
            raise RequestFailedError(pb.AuthorizationError, "no right")
        return at_once(command)

    world.link.on, world.partitions = refuse, 3
    await until(lambda: len(world.link.of(pb.BaseCommand.PRODUCER)) >= 5)
    world.link.on = at_once
    await until(lambda: [part.is_open for part in world.session._parts] == [True] * 3)
    assert [part.partition for part in world.session._parts] == [0, 1, 2]
    for _ in range(3):
        world.session.on_text('{"payload": ""}')
    assert {each.send.producer_id for each in world.link.of(pb.BaseCommand.SEND)} == {0, 1, 2}


def test_a_router_keeps_its_single_partition_when_partitions_are_added():
    router = Router(5, "SinglePartition", "JavaStringHash", random.Random(1))
    before = router.partition(None)
    router.grow(500)
    assert router.partition(None) == before
    assert max(router.partition(str(i)) for i in range(100)) > 5
