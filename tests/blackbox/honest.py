"""An honest client that sends PINGs, one after the other, while a test does other work with the same broker.

A wait counts by the broker's processor time in it: a busy machine makes every client wait, but a turn of the loop that
is too long shows as processor time of the broker between a PING and its answer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Self

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.raw import RawPeer, command, frame

if TYPE_CHECKING:
    from tests.blackbox.conftest import BrokerProcess

PAUSE_S = 0.02
MOST_BUSY_S = 1.0
"""Processor seconds of the broker in one wait; an idle loop answers in less than a millisecond."""
MOST_WAIT_S = 30.0
"""The longest allowed wait in seconds, on any machine."""


class HonestClient:
    """``with HonestClient(broker):`` fails at its end when a PING had to wait."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="honest client")
        self.answered = 0
        self.busiest_s = self.longest_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(2 * MOST_WAIT_S)
        assert not self._thread.is_alive(), "a PING has no answer"
        assert self.busiest_s < MOST_BUSY_S, f"a PING waited while the broker was busy for {self.busiest_s:.2f} s"
        assert self.longest_s < MOST_WAIT_S, f"a PING waited {self.longest_s:.1f} s"

    def _run(self) -> None:
        ping = frame(command("PING", "ping"))
        with contextlib.suppress(OSError, EOFError):  # the test has stopped or killed its broker
            peer = RawPeer(self._broker.url, handshake=False)
            try:
                peer.write(frame(command("CONNECT", "connect", client_version="honest", protocol_version=21)))
                found = peer.receive()
                if found is None or found.type != pb.BaseCommand.CONNECTED:
                    return  # a broker that wants credentials
                while not self._ended.wait(PAUSE_S):
                    began, busy = time.monotonic(), self._broker.cpu_seconds
                    peer.write(ping)
                    try:
                        if peer.receive() is None:
                            return
                    except TimeoutError:
                        self.longest_s = time.monotonic() - began
                        raise
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
                    self.busiest_s = max(self.busiest_s, self._broker.cpu_seconds - busy)
                    self.answered += 1
            finally:
                peer.close()
