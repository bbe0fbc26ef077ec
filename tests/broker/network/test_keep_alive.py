import asyncio

import pytest

from magnetar.broker.network.keep_alive import PROGRESS_BYTES, KeepAlive
from tests.twins.fake_connection import FakeConnection


class Loop:
    """Timers that the test fires."""

    def __init__(self):
        self.timers = []

    def call_later(self, delay, callback):
        self.timers.append((delay, callback))
        return asyncio.TimerHandle(0, callback, (), asyncio.get_running_loop())

    def create_future(self):
        return asyncio.get_running_loop().create_future()

    def pass_interval(self):
        timers, self.timers = self.timers, []
        for _, callback in timers:
            callback()


class Peer(FakeConnection):
    """A connection, its buffers and its keep-alive, each as the test wants it."""

    def __init__(self, interval=30):
        super().__init__()
        self.connected, self.is_reading, self.waits_for_memory = True, True, False
        self.large_frames = self.filled_bytes = 0
        self.stuck = False
        self.ended, self.refreshed = None, 0
        self.loop = Loop()
        self.keep_alive = KeepAlive(self, self, self, self.loop)
        self.keep_alive.start(lambda: interval)

    def is_stuck(self):
        return self.stuck

    def refuse(self, reason):
        self.ended = reason

    lost = refuse

    def refresh(self):
        self.refreshed += 1

    def looks(self, count=1):
        for _ in range(count):
            self.loop.pass_interval()
        return self.ended


@pytest.fixture
async def peer():
    return Peer()


async def test_a_handshake_has_one_interval(peer):
    peer.connected = False
    assert peer.looks() == "no handshake in time"
    assert not peer.loop.timers


async def test_a_peer_that_answers_stays(peer):
    for _ in range(5):
        assert peer.looks() is None
        peer.keep_alive.on_pong()
    assert peer.names() == ["PING"] * 5 and peer.refreshed == 5


async def test_a_peer_that_sends_something_else_stays(peer):
    for _ in range(5):
        assert peer.looks() is None
        peer.keep_alive.heard = True


async def test_a_silent_peer_is_given_up_after_two_intervals(peer):
    assert peer.looks() is None
    assert peer.looks() == "no answer to PING"


async def test_a_peer_whose_socket_is_not_read_cannot_be_heard(peer):
    peer.is_reading = False
    assert peer.looks(5) is None


async def test_a_peer_that_does_not_read_is_given_up_though_its_socket_is_not_read(peer):
    peer.is_reading = False
    peer.looks()
    peer.stuck = True
    assert peer.looks() == "does not read"


async def test_a_large_frame_must_grow(peer):
    for _ in range(3):
        peer.keep_alive.heard = True
        peer.large_frames, peer.filled_bytes = 1, peer.filled_bytes + PROGRESS_BYTES
        assert peer.looks() is None
    peer.keep_alive.heard = True
    peer.filled_bytes += PROGRESS_BYTES - 1
    assert peer.looks() == "a frame that does not arrive"


async def test_another_large_frame_is_progress(peer):
    peer.large_frames, peer.filled_bytes = 1, 5 * PROGRESS_BYTES
    peer.looks()
    peer.keep_alive.heard = True
    peer.large_frames, peer.filled_bytes = 2, PROGRESS_BYTES
    assert peer.looks() is None


async def test_nothing_waits_for_memory_longer_than_an_interval(peer):
    peer.is_reading, peer.waits_for_memory = False, True
    assert peer.looks() is None
    assert peer.looks() == "no memory for its input"


async def test_a_connection_that_read_between_two_waits_for_memory_stays(peer):
    peer.is_reading, peer.waits_for_memory = False, True
    for _ in range(5):
        assert peer.looks() is None
        peer.keep_alive.heard = True


async def test_an_interval_of_nothing_never_looks():
    peer = Peer(interval=0)
    assert not peer.loop.timers


async def test_a_check_for_life_gets_an_answer(peer):
    asked = asyncio.ensure_future(peer.keep_alive.check(5000))
    await asyncio.sleep(0)
    assert peer.names() == ["PING"]
    peer.keep_alive.on_pong()
    assert await asked
    again = asyncio.ensure_future(peer.keep_alive.check(5000))
    await asyncio.sleep(0)
    peer.keep_alive.stop()
    assert not await again


async def test_no_answer_in_time_ends_the_connection(peer):
    assert not await peer.keep_alive.check(1)
    assert peer.ended == "not alive"
    assert await peer.keep_alive.check(0)
