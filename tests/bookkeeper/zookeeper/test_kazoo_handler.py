"""kazoo's sockets, bell and results, over pairs of sockets."""

from __future__ import annotations

import select
import socket
import threading
import time

import pytest
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import Callback

from magnetar.bookkeeper.zookeeper.kazoo_handler import Answer, BehindWatches, Bell, BufferedSocket, KazooHandler


class Counted:
    """A socket with a count of its system calls."""

    def __init__(self, real):
        self._real = real
        self.calls = 0

    def __getattr__(self, name):
        if name in ("send", "recv"):
            self.calls += 1
        return getattr(self._real, name)


@pytest.fixture
def pair():
    """kazoo's socket, the counted socket inside, and the server's end."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.settimeout(5)
    counted = Counted(near)
    yield BufferedSocket(counted), counted, far
    near.close()
    far.close()


@pytest.fixture
def bell():
    made, ringer = KazooHandler().create_socket_pair()
    yield made
    ringer.close()
    made.close()


@pytest.fixture
def polls(monkeypatch):
    """The polls so far."""
    made, poll = [], select.poll
    monkeypatch.setattr(select, "poll", lambda: made.append(1) or poll())
    return made


def rest_of(bell):
    """The number of rings left."""
    count = 0
    while True:
        try:
            count += len(bell.recv(1))
        except BlockingIOError:
            return count


def test_many_answers_are_cut_from_a_single_read(pair):
    near, counted, far = pair
    far.sendall(b"onetwosix")
    assert [near.recv(3) for _ in range(3)] == [b"one", b"two", b"six"]
    assert counted.calls == 1
    assert near.pending() == 0


def test_requests_of_a_moment_are_one_write(pair):
    near, counted, far = pair
    for each in (b"one", b"two"):
        assert near.send(each) == 3
    near.flush()
    near.flush()
    assert far.recv(100) == b"onetwo"
    assert counted.calls == 1


def test_a_hundred_requests_and_answers_take_few_system_calls(pair, bell, polls):
    near, counted, far = pair
    handler = KazooHandler()

    def read():  # as kazoo reads a part of an answer
        if not near.pending():
            assert handler.select([near], [], [], 1.0)[0] == [near]
        return near.recv(4)

    for _ in range(100):
        bell.ringer.send(b"\0")
    for _ in range(100):
        assert handler.select([near, bell], [], [], 1.0)[0] == [bell]
        handler.select([], [near], [], 1.0)
        near.send(b"request.")
        bell.recv(1)
    far.sendall(b"answer.." * 100)
    for _ in range(100):
        assert handler.select([near, bell], [], [], 1.0)[0] == [near]
        assert (read(), read()) == (b"answ", b"er..")
    assert len(far.recv(10_000)) == 800
    assert len(polls) + counted.calls < 20


def test_a_wait_for_an_answer_writes_the_request_first(pair):
    near, _, far = pair
    near.send(b"request")

    def serve():
        assert far.recv(100) == b"request"
        far.sendall(b"answer")

    server = threading.Thread(target=serve)
    server.start()
    assert KazooHandler().select([near], [], [], 5.0) == ([near], [], [])
    server.join()
    assert near.recv(6) == b"answer"


def test_a_peer_that_takes_nothing_ends_no_wait_early_and_raises_no_error(pair, bell):
    near, _, far = pair
    near.send(bytes(2 << 20))
    assert KazooHandler().select([near, bell], [], [], 0.02) == ([], [], [])
    assert near.unsent > 0
    left = near.unsent

    def drain():
        taken = 0
        while taken < 2 << 20:
            taken += len(far.recv(1 << 20))
        far.sendall(b"done")

    server = threading.Thread(target=drain)
    server.start()
    assert KazooHandler().select([near, bell], [], [], 30.0)[0] == [near]
    server.join()
    assert left > near.unsent == 0


def test_a_wait_to_write_ends_at_once_and_writes_much(pair):
    near, _, _ = pair
    near.send(bytes(100_000))
    assert KazooHandler().select([], [near], [], 1.0) == ([], [near], [])
    assert near.unsent < 100_000


def test_answers_are_read_while_requests_keep_coming(pair, bell):
    near, _, far = pair
    handler = KazooHandler()
    far.sendall(b"answer")
    for _ in range(1000):
        bell.ring()
        if near in handler.select([near, bell], [], [], 1.0)[0]:
            return
        bell.recv(1)
    pytest.fail("the socket was never readable")


def test_a_closed_connection_is_readable(pair, bell):
    near, _, far = pair
    far.close()
    assert KazooHandler().select([near, bell], [], [], 5.0)[0] == [near]
    assert near.recv(4) == b""


def test_an_awake_thread_is_rung_without_a_system_call(bell):
    for _ in range(2000):  # far more than a pair of sockets holds
        bell.ring()
    assert not bell.fall_asleep()
    with pytest.raises(BlockingIOError):
        bell._read.recv(1)
    assert rest_of(bell) == 2000


def test_a_ring_wakes_a_sleeping_thread(pair, bell):
    near = pair[0]
    handler, begun = KazooHandler(), threading.Event()

    def ring():
        begun.wait(5)
        while not bell._sleeping:
            time.sleep(0)
        bell.ring()

    thread = threading.Thread(target=ring)
    thread.start()
    begun.set()
    assert handler.select([near, bell], [], [], 30.0)[0] == [bell]
    thread.join()
    assert rest_of(bell) == 1
    assert handler.select([near, bell], [], [], 0.0)[0] == []  # no byte is left in the pair


def test_a_late_byte_of_an_earlier_ring_is_no_ring(pair, bell):
    near = pair[0]
    bell._write.send(b"\0")
    assert KazooHandler().select([near, bell], [], [], 0.01)[0] == []


def test_no_ring_of_another_thread_is_lost(pair, bell):
    near = pair[0]
    handler, count = KazooHandler(), 5000
    thread = threading.Thread(target=lambda: [bell.ring() for _ in range(count)])
    thread.start()
    for _ in range(count):
        assert handler.select([near, bell], [], [], 30.0)[0] == [bell]
        bell.recv(1)
    thread.join()
    assert rest_of(bell) == 0


def test_a_closed_bell_refuses_rings():
    bell, ringer = KazooHandler().create_socket_pair()
    assert isinstance(bell, Bell)
    ringer.close()
    with pytest.raises(OSError, match="descriptor"):
        ringer.send(b"\0")
    bell.close()


@pytest.mark.parametrize("linked_first", [True, False])
def test_a_result_calls_back_once(linked_first):
    answer, seen = Answer(), []
    if linked_first:
        answer.rawlink(seen.append)
        assert not seen
        answer.set("value")
    else:
        answer.set("value")
        answer.rawlink(seen.append)
    answer.set("value")
    assert seen == [answer]
    assert answer.ready()
    assert answer.successful()
    assert answer.get() == answer.get_nowait() == "value"
    assert answer.exception is None


def test_a_result_carries_an_exception():
    answer, seen = Answer(), []
    assert answer.exception is None
    answer.rawlink(seen.append)
    answer.unlink(seen.append)
    answer.set_exception(ValueError("no"))
    assert not seen
    assert answer.ready()
    assert not answer.successful()
    assert isinstance(answer.exception, ValueError)
    with pytest.raises(ValueError, match="no"):
        answer.get()


def test_a_thread_waits_for_a_result():
    answer = KazooHandler().async_result()
    assert not answer.wait(0)
    with pytest.raises(KazooTimeoutError):
        answer.get(timeout=0)
    thread = threading.Thread(target=lambda: answer.set(7))
    thread.start()
    assert answer.get(timeout=30) == 7
    thread.join()


def test_a_result_behind_watches_comes_when_they_have_been_called():
    """kazoo's thread of the connection has a result at once, and another thread calls the watches."""
    handler, called, go_on, ended = KazooHandler(), [], threading.Event(), threading.Event()
    handler.start()
    try:
        handler.dispatch_callback(Callback("watch", lambda: go_on.wait(10), ()))
        handler.dispatch_callback(Callback("watch", called.append, ("watch",)))
        answer = Answer()
        BehindWatches(answer, handler.dispatch_callback).rawlink(lambda each: called.append(each.value) or ended.set())
        answer.set("result")
        assert called == []
        go_on.set()
        assert ended.wait(10)
    finally:
        go_on.set()
        handler.stop()
    assert called == ["watch", "result"]


def test_a_failure_does_not_wait_for_watches():
    answer, called = Answer(), []
    BehindWatches(answer, lambda _callback: None).rawlink(called.append)
    answer.set_exception(ValueError())
    assert called == [answer]
