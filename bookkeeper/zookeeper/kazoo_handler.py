"""kazoo's threads and sockets, with fewer system calls.

kazoo's thread of the connection gives up the interpreter's lock in every system call, and gets the lock back late while
the event loop works. kazoo's own handler makes some twenty calls for each request: a selector of its own for each wait,
two reads for each answer, a byte through a pair of sockets for each request. With this handler

- an answer is cut from a large read (``BufferedSocket``), and the requests of a moment are written together;
- a request rings the bell (``Bell``) with a system call only while kazoo's thread sleeps;
- a wait is one ``poll``;
- the callback of a result runs at once, on the thread that has the result, instead of another thread (``Answer``).
"""

from __future__ import annotations

import collections
import contextlib
import select
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import Callback

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

__all__ = ["Answer", "BehindWatches", "Bell", "BufferedSocket", "KazooHandler"]

_READ_BYTES: Final = 64 << 10
_WRITE_BYTES: Final = 64 << 10
"""Requests are written at the latest when they have this size together."""
_MOST_TURNS: Final = 100
"""So many turns of kazoo's thread go without a look at its socket while requests wait."""
_NONE: Final = object()


class BufferedSocket:
    """A non-blocking socket of kazoo. Sent bytes leave with ``flush``. kazoo takes ``pending`` as the bytes that can be
    read without a wait.
    """

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self._received, self._at = b"", 0
        self._out = bytearray()
        self._pending_inside: Callable[[], int] = getattr(real, "pending", lambda: 0)
        """Returns the decrypted bytes inside a socket of TLS."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def pending(self) -> int:
        return len(self._received) - self._at + self._pending_inside()

    def recv(self, count: int) -> bytes:
        if self._at == len(self._received):
            self._received, self._at = self._real.recv(max(count, _READ_BYTES)), 0
        found = self._received[self._at : self._at + count]
        self._at += len(found)
        return found

    def send(self, data: bytes) -> int:
        self._out += data
        return len(data)

    @property
    def unsent(self) -> int:
        return len(self._out)

    def flush(self) -> None:
        """Write as much of the sent bytes as the peer takes now. Raises OSError."""
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while self._out:
                del self._out[: self._real.send(self._out)]


class Bell:
    """In the place of kazoo's pair of sockets: a byte for each request in the queue. ``ring`` and ``recv`` belong to
    different threads.
    """

    def __init__(self, read: socket.socket, write: socket.socket) -> None:
        self._read, self._write = read, write
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._rings: collections.deque[None] = collections.deque()
        self._sleeping = False
        self.ringer = _Ringer(self)

    def fileno(self) -> int:
        return self._read.fileno()

    def pending(self) -> int:
        return len(self._rings)

    def ring(self) -> None:
        """Raises OSError when the bell is closed."""
        self._rings.append(None)
        if self._sleeping or self._write.fileno() < 0:
            self._wake()

    def recv(self, count: int) -> bytes:
        """Take one ring. Raises BlockingIOError when there is none."""
        del count
        try:
            self._rings.popleft()
        except IndexError:
            raise BlockingIOError from None
        return b"\0"

    def fall_asleep(self) -> bool:
        """Return False when there is a ring; else the next ring makes ``fileno`` readable until ``wake_up``."""
        self._sleeping = True  # before the look: a ring comes before it, or sees the sleep
        if self._rings:
            self._sleeping = False
        return self._sleeping

    def wake_up(self, *, was_rung: bool) -> None:
        self._sleeping = False
        if was_rung:
            with contextlib.suppress(BlockingIOError):
                self._read.recv(_READ_BYTES)

    def close(self) -> None:
        self._read.close()

    def close_ringer(self) -> None:
        self._write.close()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # there are bytes enough to wake a thread
            self._write.send(b"\0")


class _Ringer:
    """The end of the bell that kazoo writes to."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell

    def send(self, data: bytes) -> int:
        self._bell.ring()
        return len(data)

    def close(self) -> None:
        self._bell.close_ringer()


class Answer:
    """A result of kazoo (``IAsyncResult``). Each callback runs once, on the thread that sets the result, or at once if
    the result is set.
    """

    __slots__ = ("_callbacks", "_exception", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self._exception: Any = _NONE
        self._callbacks: collections.deque[Callable[[Answer], None]] = collections.deque()

    @property
    def exception(self) -> Any:
        return None if self._exception is _NONE else self._exception

    def ready(self) -> bool:
        return self._exception is not _NONE

    def successful(self) -> bool:
        return self._exception is None

    def set(self, value: Any = None) -> None:
        self.value = value
        self._exception = None
        self._call_back()

    def set_exception(self, exception: Any) -> None:
        self._exception = exception
        self._call_back()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if block:
            self.wait(timeout)
        if self._exception is _NONE:
            raise KazooTimeoutError
        if self._exception is not None:
            raise self._exception
        return self.value

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def wait(self, timeout: float | None = None) -> bool:
        if not self.ready():
            there = threading.Event()
            self.rawlink(lambda _answer: there.set())
            there.wait(timeout)
        return self.ready()

    def rawlink(self, callback: Callable[[Answer], None]) -> None:
        self._callbacks.append(callback)
        if self.ready():
            self._call_back()

    def unlink(self, callback: Callable[[Answer], None]) -> None:
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def _call_back(self) -> None:
        while True:
            try:
                callback = self._callbacks.popleft()  # two threads never take the same callback
            except IndexError:
                return
            callback(self)


class BehindWatches:
    """A result of kazoo whose callback runs behind the watches that fired before the result came: kazoo calls watches
    on a thread of their own.
    """

    def __init__(self, answer: Any, dispatch: Callable[[Callback], None]) -> None:
        self._answer, self._dispatch = answer, dispatch

    def rawlink(self, callback: Callable[[Any], None]) -> None:
        def there(answer: Any) -> None:
            if answer.successful():
                self._dispatch(Callback("watch", callback, (answer,)))
            else:
                callback(answer)

        self._answer.rawlink(there)


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's threads; an error that ends a thread goes to ``on_failure`` instead of standard error."""

    def __init__(self) -> None:
        super().__init__()
        self.on_failure: Callable[[Exception], None] = lambda _error: None
        self._turns = 0

    def spawn(self, func: Callable[..., object], *arguments: Any, **named: Any) -> Any:
        def run() -> None:
            try:
                func(*arguments, **named)
            except Exception as error:  # noqa: BLE001 - carried to the caller
                self.on_failure(error)

        return super().spawn(run)

    def async_result(self) -> Answer:
        return Answer()

    def create_connection(self, *arguments: Any, **named: Any) -> BufferedSocket:
        return BufferedSocket(super().create_connection(*arguments, **named))

    def create_socket_pair(self) -> tuple[Bell, _Ringer]:
        bell = Bell(*super().create_socket_pair())
        return bell, bell.ringer

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], _exceptional: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the sockets that are ready. kazoo waits for its socket and the bell, or for its socket. Writes never
        wait; the heartbeat notices a peer that takes nothing.
        """
        if writing:
            for each in writing:
                if each.unsent >= _WRITE_BYTES:
                    each.flush()
            return [], list(writing), []
        self._turns += 1
        ready = [each for each in reading if each.pending()]
        if not ready or self._turns >= _MOST_TURNS:
            self._turns = 0
            ready = _readable(reading, 0.0 if ready else timeout)
        return ready, [], []


def _readable(reading: Sequence[Any], timeout_s: float | None) -> list[Any]:
    """Return the readable sockets, after `timeout_s` at the latest; meanwhile write the bytes sent before."""
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        poller = select.poll()
        left_ms = None if end_s is None else max(0.0, end_s - time.monotonic()) * 1000
        bells = [each for each in reading if isinstance(each, Bell)]
        for each in reading:
            poller.register(each.fileno(), _events_of(each))
        if not all(bell.fall_asleep() for bell in bells):
            left_ms = 0
        found = dict(poller.poll(left_ms))
        for bell in bells:
            bell.wake_up(was_rung=bell.fileno() in found)
        ready = [each for each in reading if each.pending() or _is_readable(each, found)]
        if ready or left_ms == 0:
            return ready


def _events_of(each: BufferedSocket | Bell) -> int:
    if isinstance(each, BufferedSocket):
        each.flush()
        return select.POLLIN | select.POLLOUT if each.unsent else select.POLLIN
    return select.POLLIN


def _is_readable(each: BufferedSocket | Bell, found: dict[int, int]) -> bool:
    """Whether the socket has bytes, or has failed: a read tells."""
    return isinstance(each, BufferedSocket) and bool(found.get(each.fileno(), 0) & ~select.POLLOUT)
