"""The first connection to listening sockets is reported once and stays in the backlog."""

import asyncio
import socket

from magnetar.broker.network.bind import bind
from magnetar.broker.network.first_visit import FirstVisit


async def sockets(count):
    loop = asyncio.get_running_loop()
    return [each for _ in range(count) for each in await bind(loop, "127.0.0.1", 0)]


def connect(listening):
    peer = socket.socket()
    peer.setblocking(False)
    peer.connect_ex(listening.getsockname())
    return peer


async def test_two_visits_of_two_ports_are_reported_once_and_wait():
    listening = await sockets(2)
    visits = []
    seen = asyncio.Event()
    visit = FirstVisit(asyncio.get_running_loop(), listening, lambda: (visits.append(1), seen.set()))
    peers = [connect(each) for each in listening]
    await asyncio.wait_for(seen.wait(), 30)
    for _ in range(3):
        await asyncio.sleep(0)
    assert visits == [1]
    visit.stop()
    for each in listening:
        each.accept()[0].close()
        each.close()
    for peer in peers:
        peer.close()


async def test_after_stop_no_visit_is_reported():
    [listening] = await sockets(1)
    visits = []
    visit = FirstVisit(asyncio.get_running_loop(), [listening], lambda: visits.append(1))
    visit.stop()
    visit.stop()
    peer = connect(listening)
    for _ in range(3):
        await asyncio.sleep(0)
    assert visits == []
    peer.close()
    listening.close()
