"""Publishing for the admin API (`admin.api.PublishApi`): messages given over REST."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.broker.errors import BrokerError
from magnetar.broker.slices import sliced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.broker.schemas.registry import SchemaRegistry
    from magnetar.broker.schemas.schema_store import StoredSchema
    from magnetar.broker.topics.append_door import AppendDoor
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.protocol import pulsar_api_pb2 as pb
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.position import Position


class AdminPublishing:
    """The broker's side of `PublishApi`; its docstrings state the guarantees of each call."""

    def __init__(self, topics: Topics, schemas: SchemaRegistry, door: AppendDoor) -> None:
        self._topics = topics
        self._schemas = schemas
        self._door = door

    def now_ms(self) -> int:
        return self._topics.context.now_ms()

    async def schema(self, name: TopicName, schema: pb.Schema) -> StoredSchema:
        topic = await self._topics.get(name, create=True)
        version = int.from_bytes(await self._schemas.for_producer(topic, schema), "big")
        stored = await self._schemas.get(name, version)
        if stored is None:
            raise BrokerError(f"{name}: its schema was deleted in this moment")
        return stored

    async def publish(self, entries: Sequence[tuple[TopicName, bytes]]) -> list[Position | BrokerError]:
        for name in dict.fromkeys(name for name, _ in entries):  # a loaded topic keeps the order of the appends
            try:
                await self._topics.get(name, create=True)
            except BrokerError:
                continue  # each append to the topic returns the error
        outcomes: list[Position | BrokerError] = []
        async for part in sliced(entries):
            outcomes += await asyncio.gather(*(self._append(name, entry) for name, entry in part))
        return outcomes

    async def _append(self, name: TopicName, entry: bytes) -> Position | BrokerError:
        try:
            return await self._door.append(name, entry)
        except BrokerError as e:
            return e
