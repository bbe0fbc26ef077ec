"""The bytes that all connections together read in a round of the event loop, and the memory of commands that wait."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from magnetar.broker.network.read_buffer import SHARED_BYTES
from magnetar.broker.network.read_rounds import READ_IN_ONE_ROUND
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.broker.network.test_connection import Client, encoded, many
from tests.model.simulated_broker import Peer


@pytest.fixture
def client():
    made = Client()
    yield made
    made.world.close()


def test_a_round_of_the_event_loop_reads_a_bounded_number_of_bytes_of_all_connections(client):
    """A hundred connections that sent as much made a message wait for 100 MiB: 0.2 s of processor time."""
    world, large = client.world, (5 << 20).to_bytes(4, "big")

    async def flood() -> None:
        connections = [Peer(world.broker, world.network).connection for _ in range(20)]
        await asyncio.sleep(0)
        read = 0
        for connection in connections:
            connection.get_buffer(-1)[:4] = large
            connection.buffer_updated(4)
            for _ in range(32):
                if connection.is_reading:
                    room = connection.get_buffer(-1)
                    read += len(room)
                    connection.buffer_updated(len(room))
        assert READ_IN_ONE_ROUND <= read < READ_IN_ONE_ROUND + 2 * SHARED_BYTES
        assert not connections[-1].is_reading
        await asyncio.sleep(0)
        assert all(connection.is_reading for connection in connections)

    world.run(flood())


def test_commands_that_wait_for_a_turn_count_in_the_memory_account_and_free_it_though_it_is_full(client):
    """Connections whose commands fill the memory of an address would wait for each other until keep-alive ends them."""
    world = client.world
    memory = world.broker.resources.memory
    before = memory.used_bytes

    async def flood() -> None:
        peers = [Peer(world.broker, world.network) for _ in range(8)]
        empty = memory.used_bytes
        world.network.take()
        for peer in peers:
            peer.send_bytes(encoded(ping=pb.CommandPing()) * 1000)
        assert memory.used_bytes - empty > 8 * 700 * 100
        memory.limits = dataclasses.replace(memory.limits, total=empty, per_address=empty)
        for peer in peers:
            peer.connection._wait_for_memory()
            assert peer.connection.waits_for_memory
        for _ in range(40):
            await asyncio.sleep(0)
        assert sum(each.command.type == pb.BaseCommand.PONG for each in world.network.take()) == 8 * 1000
        assert all(peer.connection.is_reading for peer in peers)
        assert memory.used_bytes == empty > before

    world.run(flood())


def test_commands_that_wait_for_a_turn_do_not_wait_for_their_own_memory(client):
    """A connection whose kept commands exceeded its limit waited until keep-alive ended the connection."""
    peer, memory = client.peer, client.world.broker.resources.memory

    async def flood() -> None:
        share = peer.connection._share
        memory.limits = dataclasses.replace(memory.limits, per_connection=share.used + 1000)
        peer.send_bytes(encoded(ping=pb.CommandPing()) * 1000)
        peer.connection._wait_for_memory()
        assert peer.connection.waits_for_memory
        for _ in range(20):
            await asyncio.sleep(0)

    client.world.run(flood())
    assert sum(each.type == pb.BaseCommand.PONG for each in client.take()) == 1000
    assert peer.connection.is_reading


def test_the_bytes_of_a_command_that_waits_for_a_place_are_in_the_account(client):
    ids, memory = client.publish(1), client.world.broker.resources.memory
    assert client.consume(pb.CommandSubscribe.Shared) == [0]
    ack = encoded(ack=pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=many(ids)))
    assert len(ack) > 100_000

    async def go() -> None:
        everything = client.peer.connection._share.place(1 << 40, lambda: None)
        before = memory.used_bytes
        client.peer.send_bytes(ack)
        assert before + len(ack) - 100 < memory.used_bytes < before + len(ack) + 5000
        everything.leave()
        for _ in range(40):
            await asyncio.sleep(0)
        assert memory.used_bytes == before

    client.world.run(go())
