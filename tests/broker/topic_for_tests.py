"""A persistent topic on the in-memory stores: time moved by hand, policies set as an administrator sets them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec

from magnetar.broker.entry_interceptors import LoadedInterceptors, load
from magnetar.broker.policies.effective import NO_POLICIES, NO_TOPIC_POLICIES, effective_config
from magnetar.broker.settings import Settings
from magnetar.broker.tasks import TaskSet
from magnetar.broker.topics.context import TopicContext
from magnetar.broker.topics.ledger_config import ledger_config
from magnetar.broker.topics.producer import Producer, ProducerRequest
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.broker.topics.topic import Topic
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata
from magnetar.protocol.runs import EntryRun
from magnetar.protocol.topic_name import TopicName
from tests.storage.managed_for_tests import Ground, append, message, settle

NAME = TopicName.parse("persistent://public/default/t")


class TopicBench:
    """One topic with the broker's settings, its namespace's policies and its own."""

    def __init__(
        self, ground: Ground | None = None, interceptors: LoadedInterceptors | None = None, **settings
    ) -> None:
        self.ground = ground or Ground()
        self.settings = Settings(**settings)
        self.namespace, self.own = NO_POLICIES, NO_TOPIC_POLICIES
        self.tasks = TaskSet()
        self.interceptors = interceptors or load(self.settings.broker_entry_metadata_interceptors)
        clock = self.ground.clock
        self.context = TopicContext(
            settings=self.settings,
            now_ms=clock.now_ms,
            monotonic=clock.now_s,
            call_later=self.ground.scheduler.call_later,
            effective=lambda _: effective_config(self.settings, self.namespace, self.own),
            ledger_config=lambda config: ledger_config(self.settings, config, self.interceptors),
        )
        self.topic: Topic

    async def open(self) -> Topic:
        config = self.context.ledger_config(self.context.effective(NAME))
        ledger = await self.ground.open(config, NAME.persistence_name)
        self.topic = Topic(NAME, ledger, self.context, self.tasks)
        await self.topic.open()
        return self.topic

    async def reopen(self) -> Topic:
        """Unload and load again."""
        await self.topic.close()
        return await self.open()

    async def set_namespace(self, **policies) -> None:
        self.namespace = msgspec.structs.replace(self.namespace, **policies)
        await self.topic.config_changed()

    async def set_topic(self, **policies) -> None:
        self.own = msgspec.structs.replace(self.own, **policies)
        await self.topic.config_changed()

    async def publish(self, *payloads: bytes, size: int = 0):
        """One entry each, with the clock's time as publish time; their positions."""
        now_ms = self.ground.clock.now_ms()
        return await append(self.topic.ledger, [message(p.ljust(size, b"."), now_ms) for p in payloads])

    async def subscribe(self, name: str = "s", *, earliest: bool = True):
        return await self.topic.subscriptions.create(SubscribeRequest(name, from_earliest=earliest))

    def pass_time(self, seconds: float) -> None:
        self.ground.scheduler.advance(seconds)

    async def roll(self) -> None:
        await self.topic.ledger.roll()

    async def trim(self) -> list[int]:
        return await self.topic.ledger.trim(self.ground.clock.now_ms())

    async def close(self) -> None:
        await self.topic.close()
        await self.tasks.close()


async def settled(turns: int = 30) -> None:
    await settle(turns)
    await asyncio.sleep(0)


def publish(topic, sequence_id):
    """Publish one message as a new producer on a connection of its own."""
    connection = SimpleNamespace(
        gate=SimpleNamespace(started=lambda *_: None, finished=lambda *_: None),
        output=SimpleNamespace(write_now=lambda _data: True),
        write=lambda _data: None,
        early_read=None,
    )
    request = ProducerRequest(
        1, "p", user_provided_name=True, epoch=0, access_mode=0, topic_epoch=None, encrypted=False
    )
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1).SerializeToString()
    entry = len(metadata).to_bytes(4, "big") + metadata
    Producer(connection, topic, request, 1).publish(EntryRun.single(entry, sequence_id=sequence_id))
