"""A converting service by hand: the test moves the time and makes the workers answer."""

from __future__ import annotations

import asyncio

from magnetar.broker.foreign_entries.config import ConvertingConfig
from magnetar.broker.foreign_entries.converting_service import Converting
from magnetar.broker.foreign_entries.frames import Described
from magnetar.broker.foreign_entries.loading import ForeignConverter
from magnetar.converters.chain import ConverterChain, LoadedConverter, loaded
from magnetar.converters.entry import build_entry
from magnetar.converters.examples import BytesConverter
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName

TOPIC = TopicName.parse("persistent://public/default/t")


def foreign(payload=b"x", entry_format="bytes", messages=None, **fields):
    """Headers and payload with entry.format; None: without that property."""
    metadata = pb.MessageMetadata(**({"producer_name": "p", "sequence_id": 0, "publish_time": 1} | fields))
    if entry_format is not None:
        metadata.properties.add(key="entry.format", value=entry_format)
    if messages is not None:
        metadata.num_messages_in_batch = messages
    return build_entry(metadata.SerializeToString(), payload)


def remote(name, formats=None):
    """A converter that lives in worker processes."""
    formats = [name] if formats is None else formats
    return LoadedConverter(ForeignConverter(Described(name, f"{name}/1", formats, False)), name, f"{name}/1")


class Pool:
    """Keeps submitted jobs; tests answer them."""

    def __init__(self):
        self.jobs = []
        self.busy = 0

    def submit(self, topic, converter, entry):
        future = asyncio.get_running_loop().create_future()
        self.jobs.append((topic, converter, entry, future))
        return future

    async def answer(self, answer, job=0):
        """Answer the oldest job, and let all waiting tasks run."""
        self.jobs.pop(job)[3].set_result(answer)
        await rounds()

    async def close(self):
        pass


class Letters:
    """Sent dead letters; `stored` is their outcome."""

    def __init__(self):
        self.sent = []

    def send(self, letter):
        future = asyncio.get_running_loop().create_future()
        self.sent.append((letter, future))
        return future


async def rounds(count=10):
    """Let tasks go on."""
    for _ in range(count):
        await asyncio.sleep(0)


class World:
    """A service with a chain of the bytes converter and remote converters."""

    def __init__(self, *remotes, properties=None, **config):
        self.now_ms = 1_000_000
        self.properties = properties or {}
        self.service = Converting(
            ConvertingConfig((), **config), lambda: self.now_ms, lambda _name: ({},), lambda: self.now_ms / 1000
        )
        self.service.tools.pool = self.pool = Pool()
        self.service.tools.dead_letters = self.letters = Letters()
        self.use(ConverterChain([loaded(BytesConverter()), *map(remote, remotes)]))
        self.topic = self.service.topic(TOPIC, lambda: self.properties)

    def use(self, chain):
        self.service.tools.use(chain)

    def counters(self, name="bytes"):
        return self.topic.counters_of(name)
