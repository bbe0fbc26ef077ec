"""The bytes that all connections together read in a round of the event loop, and the memory of commands that wait."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from magnetar.broker.network.feed import feed
from magnetar.broker.network.output import Output
from magnetar.broker.network.read_buffer import HANDSHAKE_READ_BYTES, SHARED_BYTES, memory_of
from magnetar.broker.network.read_rounds import READ_IN_ONE_ROUND
from magnetar.broker.network.request_tasks import REQUESTS_HIGH
from magnetar.broker.topics.rate_limits import Limits, PublishThrottle
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.broker.network.test_connection import TOPIC, Client, Command, encoded, many
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


class Rated:
    """A client whose topic has a publish rate of two messages a second, on a clock of its own."""

    def __init__(self, client):
        self.client, self.now_s, self._due = client, 0.0, []
        rate = PublishThrottle(Limits(2), lambda: self.now_s, lambda wait_s, call: self._due.append((wait_s, call)))
        client.world.broker.topics.loaded[TOPIC].publishing.policy.throttle = rate

    def send(self, data):
        """Send the bytes; return the sequence ids of the receipts, and the types of other answers."""
        return self._answers(self.client.send_bytes(data))

    def later(self):
        """Let the time of the rate pass; return the answers of that time."""

        async def passed() -> None:
            due, self._due = self._due, []
            self.now_s += max(wait_s for wait_s, _ in due)
            for _, call in due:
                call()
            for _ in range(10):
                await asyncio.sleep(0)

        self.client.world.run(passed())
        return self._answers(self.client.take())

    def _answers(self, commands):
        receipts = pb.BaseCommand.SEND_RECEIPT
        return [each.send_receipt.sequence_id if each.type == receipts else each.type for each in commands]


@pytest.fixture
def rated(client):
    return Rated(client)


def test_sends_beyond_a_publish_rate_wait_with_the_commands_behind_them(rated, client):
    sends = b"".join(map(client.send_of, range(5)))
    assert rated.send(sends + encoded(ping=pb.CommandPing())) == [0, 1]
    assert not client.peer.connection.is_reading
    assert rated.later() == [2]
    assert rated.later() == [3]
    assert rated.later() == [4]
    assert rated.later() == [pb.BaseCommand.PONG]
    assert client.peer.connection.is_reading


def test_a_command_behind_the_send_that_uses_up_a_publish_rate_waits(rated, client):
    assert rated.send(client.send_of(0) + client.send_of(1) + encoded(ping=pb.CommandPing())) == [0, 1]
    assert rated.later() == [pb.BaseCommand.PONG]


def test_bytes_that_a_websocket_feeds_to_a_connection_that_waits_for_a_rate_wait(rated, client):
    assert rated.send(client.send_of(0) + client.send_of(1)) == [0, 1]

    async def fed() -> None:
        feed(client.peer.connection, client.send_of(2))

    client.world.run(fed())
    assert not client.take()
    assert rated.later() == [2]


def test_the_memory_of_a_command_that_waits_is_counted_once(rated, client, monkeypatch):
    """Each message of a WebSocket counted all before it: 20,000 messages behind an unload took ten seconds."""
    assert rated.send(client.send_of(0) + client.send_of(1)) == [0, 1]
    connection, memory = client.peer.connection, client.world.broker.resources.memory
    before, counted = memory.used_bytes, []

    def count(items):
        counted.append(len(items))
        return memory_of(items)

    monkeypatch.setattr("magnetar.broker.network.connection.memory_of", count)

    async def fed() -> None:
        for number in range(2, 12):
            feed(connection, client.send_of(number))
        assert memory.used_bytes == before + memory_of(connection._rest)

    client.world.run(fed())
    assert counted == [1] * 10
    for number in range(2, 12):
        assert rated.later() == [number]
    assert rated.later() == []
    assert memory.used_bytes == before


def test_a_connection_that_waits_for_a_publish_rate_reads_less_at_a_time(rated, client):
    """Each such connection kept up to a MiB: some hundred of them filled the memory of all clients."""

    def room():
        return len(client.peer.connection.get_buffer(-1))

    assert room() == SHARED_BYTES
    assert rated.send(b"".join(map(client.send_of, range(20)))) == [0, 1]
    for number in range(2, 20):
        assert rated.later() == [number]
    assert rated.later() == []
    assert room() == HANDSHAKE_READ_BYTES
    policy = client.world.broker.topics.loaded[TOPIC].publishing.policy
    policy.throttle = None
    client.send_bytes(client.send_of(20, b"x" * 1000) * 2000)
    assert room() == SHARED_BYTES


def test_sends_that_wait_for_a_publish_rate_are_dropped_when_their_client_has_left(rated, client, monkeypatch):
    assert rated.send(b"".join(map(client.send_of, range(5)))) == [0, 1]
    monkeypatch.setattr(Output, "peer_has_left", lambda _output: True)
    assert rated.later() == []
    assert client.peer.connection.closed and not client.peer.connection._rest


def test_sends_that_wait_for_a_publish_rate_pass_when_the_rate_is_lifted(rated, client):
    policy = client.world.broker.topics.loaded[TOPIC].publishing.policy
    assert rated.send(b"".join(map(client.send_of, range(5)))) == [0, 1]

    async def lifted() -> None:
        rate, policy.throttle = policy.throttle, None
        rate.end()
        for _ in range(10):
            await asyncio.sleep(0)

    client.world.run(lifted())
    assert rated._answers(client.take()) == [2, 3, 4]


def test_a_refused_send_does_not_count_against_a_publish_rate(rated, client):
    broken = bytearray(client.send_of(0))
    broken[-1] ^= 1
    error = pb.BaseCommand.SEND_ERROR
    assert rated.send(bytes(broken) * 4 + client.send_of(1) + client.send_of(2)) == [error] * 4 + [1, 2]


def test_producers_that_wait_for_exclusive_access_do_not_stop_the_commands_of_their_connection(client):
    """A standby with a thousand topics answered no PING, and the owner on the same connection could not leave."""
    topic = TOPIC + "-2"
    client.send(
        producer=pb.CommandProducer(topic=topic, producer_id=2, request_id=2, producer_access_mode=pb.Exclusive)
    )
    waiting = pb.CommandProducer(topic=topic, producer_access_mode=pb.WaitForExclusive)
    for number in range(3, REQUESTS_HIGH + 3):
        waiting.producer_id = waiting.request_id = number
        (queued,) = client.send(producer=waiting)
        assert not queued.producer_success.producer_ready
    assert [each.type for each in client.send(ping=pb.CommandPing())] == [Command.PONG]
    found = client.send(close_producer=pb.CommandCloseProducer(producer_id=2, request_id=1))
    assert sorted(each.type for each in found) == [Command.SUCCESS, Command.PRODUCER_SUCCESS]
