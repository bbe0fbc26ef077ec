"""The time by which silence is judged: it passes only while the broker answers."""

import contextlib
import socket
import struct
import threading
import time
import urllib.parse

from harness.wire import Frame, encode

EVERY_SECONDS = 0.01  # between a PONG and the next PING
ROUND_SECONDS = 0.06  # the most that a PING, its PONG and the time between count
SLICE_SECONDS = 1
PATIENCE = 20  # slices without a PONG after which the broker is silent for good, and time passes again
_PING = encode("PING")


class WallClock:
    """Real time, for peers without a clock that measures their pauses."""

    lost = 0.0

    def now(self):
        return time.monotonic()


class BrokerClock:
    """Sends one broker PING after PING on a connection of its own; the time of an answer beyond a round is lost time.

    "Nothing came for half a second" is evidence only if the broker could have sent it. While the broker or this process
    gets no processor (a busy machine, a stopped process) this clock stands still; half a second of it are at least
    eight turns of the broker's loop. now() is time.monotonic() less the lost time, so it never runs faster than real
    time. No handshake is made, so that no token is needed; the clock reconnects when the broker closes such a
    connection.
    """

    def __init__(self, url):
        parts = urllib.parse.urlparse(url)
        self._address = (parts.hostname, parts.port)
        self._state = (time.monotonic(), 0.0, False)  # when a PONG was last heard, seconds lost until then, given up
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._closed.set()
        self._thread.join()

    @property
    def lost(self):
        """The total seconds that the clock is behind real time."""
        return self._lost(time.monotonic())

    def now(self):
        now = time.monotonic()
        return now - self._lost(now)

    def _lost(self, now):
        heard, lost, given_up = self._state
        return lost if given_up else lost + max(0.0, now - heard - ROUND_SECONDS)

    def _turn(self, given_up):
        now = time.monotonic()
        self._state = (now, self._lost(now), given_up)

    def _run(self):
        left = PATIENCE
        while not self._closed.is_set():
            with contextlib.suppress(OSError), socket.create_connection(self._address, SLICE_SECONDS) as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while self._asked(sock, left):
                    left = PATIENCE
            left -= 1
            if left <= 0:
                self._turn(given_up=True)
            self._closed.wait(EVERY_SECONDS)

    def _asked(self, sock, left):
        """Whether a PING was answered; a connection that is slow is kept, so that no round is counted twice."""
        sock.sendall(_PING)
        while not self._closed.is_set():
            try:
                if self._has_pong(sock):
                    self._turn(given_up=False)
                    self._closed.wait(EVERY_SECONDS)
                    return True
            except TimeoutError:
                left -= 1
                if left <= 0:
                    self._turn(given_up=True)
        return False

    def _has_pong(self, sock):
        """Reads a frame: a PONG, or a PING of the broker, which needs no answer before the handshake."""
        (size,) = struct.unpack(">I", _exactly(sock, 4))
        return Frame(_exactly(sock, size)).type == "PONG"


def _exactly(sock, n):
    data = b""
    while len(data) < n:
        if not (more := sock.recv(n - len(data))):
            raise ConnectionResetError
        data += more
    return data
