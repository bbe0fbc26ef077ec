"""Random topics, compactions, drops and restarts against a model that knows every message ever published."""

from __future__ import annotations

import random

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.broker.compaction_for_tests import Bench, batch, len_prefix, messages_of, read_on, single

KEYS = [f"k{i}" for i in range(12)]
CODECS = [pb.NONE, pb.NONE, pb.LZ4, pb.ZSTD]


class Model:
    def __init__(self):
        self.messages = []
        """(position, batch index, key, value) of every published message."""

    def compacted(self, horizon):
        """The expected output of a compacted reader: the newest of each key up to the horizon, and all later messages."""
        newest = {m[2]: m for m in self.messages if m[0] <= horizon and m[2] is not None}
        left = [m for m in self.messages if m[0] <= horizon and newest.get(m[2]) is m and m[3]]
        return left + [m for m in self.messages if m[0] > horizon]


class Work:
    def __init__(self, seed, directory):
        self.chance = random.Random(seed)
        self.model = Model()
        self.bench = Bench(keys_in_memory=self.chance.choice([3, 1000]), directory=directory)
        self.acked = None

    def pair(self):
        value = self.chance.choice([b"", b"v%d" % self.chance.randrange(1000), bytes(50)])
        return self.chance.choice([*KEYS, None]), value

    async def publish(self):
        bodies, contents = [], []
        for _ in range(self.chance.randint(1, 15)):
            codec = self.chance.choice(CODECS)
            if self.chance.random() < 0.5:
                key, value = self.pair()
                bodies.append(single(key, value, codec=codec))
                contents.append([(-1, key, value)])
            else:
                pairs = [self.pair() for _ in range(self.chance.randint(1, 5))]
                bodies.append(batch(*pairs, codec=codec))
                contents.append([(k, *pair) for k, pair in enumerate(pairs)])
        for position, content in zip(await self.bench.publish(*bodies), contents, strict=True):
            self.model.messages += [(position, *message) for message in content]

    def horizon(self):
        current = self.bench.compaction.current()
        return (-1, -1) if current is None else current.horizon

    async def check(self):
        expected = self.model.compacted(self.horizon())
        assert await self.bench.values() == expected
        if self.model.messages:
            start = self.chance.choice(self.model.messages)[0]
            assert await self.bench.values(start) == [m for m in expected if m[0] >= start]

    async def consume(self):
        """A durable subscription reads some messages and acknowledges some of them; none is skipped or delivered twice."""
        reader, cursor = await self.bench.subscription()
        if self.acked is None:
            self.acked = set()
        found = await read_on(reader, self.chance.randint(1, 20))
        positions = [position for position, _ in found]
        values = [(p, *m) for p, body in found for m in messages_of(body[len_prefix(body) :])]
        expected = [m for m in self.model.compacted(self.horizon()) if m[0] not in self.acked]
        assert values == expected
        count = self.chance.randint(0, len(positions))
        if positions and self.chance.random() < 0.5:
            cursor.ack_cumulative(positions[count - 1] if count else positions[0])
            self.acked.update(p for p in positions if p <= (positions[count - 1] if count else positions[0]))
        else:
            cursor.ack_many(positions[:count])
            self.acked.update(positions[:count])
        await cursor.flush()

    async def step(self):
        kind = self.chance.choices(
            ["publish", "compact", "drop", "check", "consume", "restart", "crash"], [8, 4, 3, 3, 3, 1, 1]
        )[0]
        if kind in ("publish", "check", "consume"):
            await getattr(self, kind)()
        elif kind == "compact":
            await self.bench.compact()
        elif kind == "drop":
            if self.bench.compaction.current() is not None:
                await self.bench.drop_consumed()
        elif kind == "restart":
            self.bench = await self.bench.restart()
        else:
            self.bench = await self.bench.crash()


@pytest.mark.parametrize("seed", range(30))
async def test_random_topics(seed, tmp_path):
    work = Work(seed, str(tmp_path))
    await work.bench.open()
    for _ in range(60):
        await work.step()
    await work.bench.compact()
    await work.check()
    await work.consume()
