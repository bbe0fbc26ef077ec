"""SUBSCRIBE of a role that loses its right meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.errors import AuthorizationError
from magnetar.broker.handlers.consume import on_subscribe
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.broker.topic_for_tests import NAME, TopicBench
from tests.twins.fake_connection import FakeConnection


class Client(FakeConnection):
    """A client of consumers, whose rights are gone once its topic is loaded."""

    def __init__(self, topic) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.services = SimpleNamespace(
            topics=self,
            settings=topic.context.settings,
            make_consumer=Consumer.from_command,
        )
        self._topic = topic

    async def get(self, _name, *, create):
        assert create
        self.allowed = False
        return self._topic

    def authorize(self, _command_type: int, _name, _subscription: str) -> None:
        if not self.allowed:
            raise AuthorizationError("no right")


async def test_a_role_that_lost_its_right_while_its_topic_was_loaded_gets_no_consumer():
    bench = TopicBench()
    client = Client(await bench.open())
    command = pb.CommandSubscribe(
        topic=str(NAME), subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=2
    )
    with pytest.raises(AuthorizationError):
        await on_subscribe(client, command)
    assert client.consumers == {}
    assert not bench.topic.subscriptions.consumer_count
    await bench.close()
