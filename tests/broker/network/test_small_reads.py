"""Small reads of many connections in a round of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.network.read_rounds import READS_IN_ONE_ROUND, ReadRounds
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command
from tests.model.simulated_broker import Peer, Simulation

PING = pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing())


@pytest.fixture
def world():
    made = Simulation()
    made.start()
    yield made
    made.close()


def test_a_round_of_the_event_loop_handles_a_bounded_number_of_small_reads(world):
    """Thousands of connections with a small SEND each held the loop for as many publishes."""

    def pongs() -> int:
        return sum(each.command.type == pb.BaseCommand.PONG for each in world.network.take())

    async def flood() -> int:
        peers = [Peer(world.broker, world.network) for _ in range(20)]
        await asyncio.sleep(0)
        pongs()
        for _ in range(50):
            for peer in peers:
                peer.send_bytes(encode_command(PING))
        return pongs()

    first = world.run(flood())
    assert READS_IN_ONE_ROUND <= first <= ReadRounds.few + READS_IN_ONE_ROUND
    assert first + pongs() == 1000
