"""Whether other brokers answer, and lookups that wait for the end of a silent broker."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.ownership.ownership import BrokerAddresses
from magnetar.broker.ownership.peers import FRESH_S, LONGEST_WAIT_S, Peers, probe
from magnetar.broker.tasks import TaskSet
from tests.model.virtual_loop import VirtualLoop
from tests.twins.memory_cluster import MemoryCluster

OWNER = BrokerAddresses("pulsar://h:1")
PATH = "/namespace/t/n/0x00000000_0xffffffff"


class World:
    def __init__(self, session_s=6.0):
        self.cluster = MemoryCluster()
        self.session, self.owner = self.cluster.connect(), self.cluster.connect()
        self.session.session_timeout_s = session_s
        self.alive, self.probes = True, 0
        self.peers = Peers(self.session, TaskSet(), self.connects)

    async def connects(self, url):
        assert url == OWNER.service_url
        self.probes += 1
        await asyncio.sleep(0.01)
        return self.alive

    async def own(self):
        await self.owner.create_ephemeral(PATH, b"owner")

    def until_gone(self):
        return asyncio.ensure_future(self.peers.until_gone(OWNER, PATH, b"owner"))


def in_virtual_time(test):
    def run():
        loop = VirtualLoop()
        try:
            loop.run_until_complete(test())
        finally:
            loop.close()

    run.__name__ = test.__name__
    return run


@in_virtual_time
async def test_many_questions_are_one_probe_a_second():
    world = World()
    assert all(await asyncio.gather(*(world.peers.answers(OWNER) for _ in range(50))))
    assert await world.peers.answers(OWNER)
    assert world.probes == 1
    await asyncio.sleep(FRESH_S)
    assert await world.peers.answers(OWNER)
    assert world.probes == 2


@in_virtual_time
async def test_a_silent_broker_whose_node_outlives_its_session_is_taken_to_be_alive():
    world = World(session_s=6.0)
    world.alive = False
    for _ in range(6):
        assert not await world.peers.answers(OWNER)
        await asyncio.sleep(FRESH_S)
    await asyncio.sleep(2 * FRESH_S)
    assert await world.peers.answers(OWNER)


@in_virtual_time
async def test_a_silent_broker_is_not_taken_to_be_alive_while_the_service_keeps_its_session():
    """Without the service no session ends, and behind the service's return each session has its whole time again."""
    world = World(session_s=6.0)
    world.alive = False
    assert not await world.peers.answers(OWNER)
    world.session.suspend()
    await asyncio.sleep(20)
    assert not await world.peers.answers(OWNER)
    world.session.reconnect()
    await asyncio.sleep(6)
    assert not await world.peers.answers(OWNER)
    await asyncio.sleep(2 * FRESH_S)
    assert await world.peers.answers(OWNER)


@in_virtual_time
async def test_waiting_ends_with_the_owners_session():
    world = World()
    await world.own()
    world.alive = False
    assert not await world.peers.answers(OWNER)
    waiting = [world.until_gone() for _ in range(20)]
    await asyncio.sleep(3)
    assert not any(each.done() for each in waiting)
    await world.owner.expire()
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*waiting)
    assert asyncio.get_running_loop().time() - began < 0.1


@in_virtual_time
async def test_waiting_ends_when_the_owner_answers_again():
    world = World()
    await world.own()
    world.alive = False
    assert not await world.peers.answers(OWNER)
    waiting = world.until_gone()
    await asyncio.sleep(1.5)
    world.alive = True
    await waiting
    assert await world.peers.answers(OWNER)


@in_virtual_time
async def test_waiting_has_a_limit_and_ends_when_the_service_does_not_answer():
    world = World(session_s=3600.0)
    await world.own()
    world.alive = False
    assert not await world.peers.answers(OWNER)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ServiceNotReadyError):
        await world.until_gone()
    assert LONGEST_WAIT_S <= asyncio.get_running_loop().time() - began < LONGEST_WAIT_S + 1
    world.session.suspend()
    with pytest.raises(ServiceNotReadyError):
        await world.until_gone()


@in_virtual_time
async def test_waiting_has_the_same_limit_while_a_read_of_the_service_has_no_answer():
    world = World()
    await world.own()
    world.alive = False
    assert not await world.peers.answers(OWNER)
    world.session.get = lambda _path: asyncio.sleep(30)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ServiceNotReadyError):
        await world.until_gone()
    assert LONGEST_WAIT_S <= asyncio.get_running_loop().time() - began < LONGEST_WAIT_S + 1


async def test_a_probe_wants_an_answer_not_only_a_connection():
    async def answer(reader, writer):
        await reader.read(4)
        writer.write(b"\0\0\0\1")
        await writer.drain()
        writer.close()

    async def hang_up(_reader, writer):
        writer.close()

    for handler, answers in ((answer, True), (hang_up, False)):
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert await probe(f"pulsar://127.0.0.1:{port}") is answers
        assert await probe(f"pulsar+ssl://127.0.0.1:{port}") is True
        server.close()
        await server.wait_closed()
        assert await probe(f"pulsar://127.0.0.1:{port}") is False
    assert await probe("") is False
    assert await probe("pulsar://[h:1") is False
