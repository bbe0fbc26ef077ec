"""Producers and consumers count in the memory account with the texts of their commands."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.broker.errors import TooManyRequestsError
from magnetar.broker.limits import kept_bytes
from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.network.client_memory import CLIENT_BYTES, ClientMemory
from magnetar.protocol import pulsar_api_pb2 as pb

MIB = 1 << 20
LIMIT = 8 * MIB
LARGE = pb.CommandProducer(topic="t", producer_id=1, request_id=1, metadata=[pb.KeyValue(key="k", value="x" * 60_000)])
SMALL = pb.CommandProducer(topic="t", producer_id=1, request_id=1)


class Owner:
    def __init__(self):
        self.producers, self.consumers, self.watchers = {}, {}, {}

    def add(self, command):
        self.producers[len(self.producers)] = SimpleNamespace(kept_bytes=kept_bytes(command))


@pytest.fixture
def owner():
    return Owner()


@pytest.fixture
def share():
    return MemoryAccount(MemoryLimits(10 * LIMIT, 10 * LIMIT, LIMIT)).share("here")


@pytest.fixture
def memory(owner, share):
    return ClientMemory(owner, share)


def opened(owner, memory, command):
    """How many clients come until one is refused."""
    for number in range(10_000):
        try:
            memory.require_room(command)
        except TooManyRequestsError:
            return number
        owner.add(command)
    raise AssertionError("no limit")


def test_metadata_of_producers_count(owner, memory):
    """Each producer counted as 4 KiB: a connection with a share of 64 MiB could hold a GiB of metadata."""
    assert opened(owner, memory, LARGE) == LIMIT // (CLIENT_BYTES + kept_bytes(LARGE))


def test_producers_without_metadata_count_as_before(owner, memory):
    assert opened(owner, memory, SMALL) > 0.9 * LIMIT / CLIENT_BYTES


async def test_memory_of_clients_that_left_is_free_at_the_limit_and_at_each_recount(owner, share, memory):
    opened(owner, memory, LARGE)
    owner.producers.clear()
    memory.require_room(LARGE)
    owner.add(LARGE)
    memory.recount()
    assert share.used == CLIENT_BYTES + kept_bytes(LARGE)
    owner.producers = {1: asyncio.Future()}
    memory.recount()
    assert share.used == CLIENT_BYTES


async def test_clients_that_left_do_not_count_where_the_memory_is_over_its_limit(owner, share, memory):
    opened(owner, memory, LARGE)
    share.set("frame", LIMIT // 2)
    full = share.used
    assert memory.are_over()
    assert share.used == full
    owner.producers.clear()
    assert not memory.are_over()
    assert share.used == LIMIT // 2


def test_the_memory_of_a_command():
    pairs = [pb.KeyValue(key=f"{number}", value="") for number in range(100)]
    ranges = pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=1, end=2)] * 1000)
    schema = pb.Schema(name="s", type=pb.Schema.Json, schema_data=b"x" * 100_000)
    least = {"topic": "t", "subscription": "s", "subType": 1, "consumer_id": 1, "request_id": 1}
    assert kept_bytes(pb.CommandSubscribe(**least, metadata=pairs)) > 100 * 200
    assert kept_bytes(pb.CommandSubscribe(**least, subscription_properties=pairs)) > 100 * 200
    assert kept_bytes(pb.CommandSubscribe(**least, keySharedMeta=ranges)) > 1000 * 100
    assert kept_bytes(pb.CommandSubscribe(**least, schema=schema)) < 1000  # the registry has it
    assert kept_bytes(pb.CommandWatchTopicList(namespace="n", topics_pattern="p", watcher_id=1, request_id=1)) == 0


def test_patterns_of_watchers_count(owner, memory, share):
    for number in range(LIMIT // (CLIENT_BYTES + MIB)):
        memory.require(MIB)
        owner.watchers[number] = SimpleNamespace(kept_bytes=MIB)
    with pytest.raises(TooManyRequestsError):
        memory.require(MIB)
    owner.watchers.clear()
    memory.recount()
    memory.require(MIB)
    assert not share.is_over
