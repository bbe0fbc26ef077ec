"""A network between processes of one machine whose links can be cut: a small TCP proxy.

Each service is reached at 127.0.0.2 on its own port; a connection belongs to the process whose socket it is. A link
between a client process and a service can be cut (connections are reset, new connections refused), made silent
(connections stay open and no byte passes: a lost cable), deaf (requests pass, answers do not), mute (answers pass,
requests do not), slow (every byte arrives later, in both directions), or damaging (bits of the service's answers change).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import threading

__all__ = ["FRONT", "Network"]

FRONT = "127.0.0.2"
BACK = "127.0.0.1"
OPEN, CUT, SILENT, DEAF, MUTE = "open", "cut", "silent", "deaf", "mute"
PIECE = 256 << 10
MOST_RECENT = 20
_RECENT: list[str] = []
"""Ids of the processes found last: a search of all processes takes long on a busy machine."""


def process_of(port, service):
    """Id of the process that has the client's end of the connection from this port to the service; None when it is
    gone. The system's table may miss a line while other connections come and go.
    """
    ours, theirs = f":{port:04X}", f":{int(service):04X}"
    for _ in range(5):
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in pathlib.Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1].endswith(ours) and fields[2].endswith(theirs) and fields[9] != "0":
                    return _process_with(f"socket:[{fields[9]}]")
    return None


def _process_with(link):
    others = sorted((name for name in os.listdir("/proc") if name.isdigit()), key=int, reverse=True)
    for process in [*_RECENT, *others]:
        if _has(process, link):
            with contextlib.suppress(ValueError):
                _RECENT.remove(process)
            _RECENT.insert(0, process)
            del _RECENT[MOST_RECENT:]
            return int(process)
    return None


def _has(process, link):
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{process}/fd/{name}") == link:
                    return True
    return False


def _wake(due):
    if not due.done():  # the link was cut meanwhile
        due.set_result(None)


class _Link:
    """One connection through the proxy."""

    def __init__(self, process, port, ends):
        self.process, self.port, self.ends = process, port, ends
        self.requests, self.answers = asyncio.Event(), asyncio.Event()
        """Whether they pass."""

    def become(self, state):
        for passing, states in ((self.requests, (OPEN, DEAF)), (self.answers, (OPEN, MUTE))):
            passing.set() if state in states else passing.clear()


class Network:
    """The proxies of the services, and the states of their links. Runs in its own thread until ``close``."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers = []
        self._links: set[_Link] = set()
        self._states: dict[tuple[int, int], str] = {}
        self._delays: dict[tuple[int, int], float] = {}
        self._damages: dict[tuple[int, int], int] = {}
        self._chance = random.Random(3)
        self.flipped = 0
        """Bits that changed on damaging links."""
        self.own_ports: set[int] = set()
        """The ports of this process from which the proxies have reached their services."""

    def serve(self, port):
        """Start a proxy for the service at this port."""
        self._call(self._serve(port))

    def cut(self, process, port):
        """Cut the link between the process with this id and the service at the port."""
        self._call(self._change(process, port, CUT))

    def silence(self, process, port):
        self._call(self._change(process, port, SILENT))

    def deafen(self, process, port):
        """Hold the answers of the service on this link, while its requests pass."""
        self._call(self._change(process, port, DEAF))

    def mute(self, process, port):
        """Hold the requests of the process on this link, while answers and notices of the service pass."""
        self._call(self._change(process, port, MUTE))

    def open(self, process, port):
        """End the cut or the silence of this link; a delay stays."""
        self._call(self._change(process, port, OPEN))

    def slow(self, process, port, delay_s):
        """Delay each piece of data on this link by so many seconds, in each direction."""
        self._delays[process, port] = delay_s

    def damage(self, process, port, one_in):
        """Flip a bit in one of so many pieces of the answers that come over this link."""
        self._damages[process, port] = one_in

    def heal(self):
        self._delays.clear()
        self._damages.clear()
        for process, port in list(self._states):
            self._call(self._change(process, port, OPEN))

    def close(self):
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _serve(self, port):
        async def accept(reader, writer):
            await self._accept(port, reader, writer)

        self._servers.append(await asyncio.start_server(accept, FRONT, port))

    async def _accept(self, port, reader, writer):
        process = process_of(writer.get_extra_info("peername")[1], port)
        state = self._states.get((process, port), OPEN)
        if state is CUT:
            writer.transport.abort()
            return
        link = _Link(process, port, [writer])
        self._links.add(link)
        try:
            link.become(state)
            if state is not MUTE:
                await link.requests.wait()
            there_reader, there_writer = await asyncio.open_connection(BACK, port)
            self.own_ports.add(there_writer.get_extra_info("sockname")[1])
            link.ends.append(there_writer)
            await asyncio.gather(
                self._pass(link, link.requests, reader, there_writer),
                self._pass(link, link.answers, there_reader, writer, self._flip),
                return_exceptions=True,
            )
        except OSError:
            pass
        finally:
            self._links.discard(link)
            for end in link.ends:
                end.transport.abort()

    def _flip(self, link, piece):
        one_in = self._damages.get((link.process, link.port))
        if one_in is None or self._chance.randrange(one_in):
            return piece
        self.flipped += 1
        bit = self._chance.randrange(8 * len(piece))
        return piece[: bit // 8] + bytes([piece[bit // 8] ^ 1 << bit % 8]) + piece[bit // 8 + 1 :]

    async def _pass(self, link, passing, reader, writer, change=lambda _link, piece: piece):
        pieces = asyncio.Queue()
        sender = self._loop.create_task(self._send(pieces, writer))
        try:
            while piece := await reader.read(PIECE):
                await passing.wait()
                delay_s = self._delays.get((link.process, link.port), 0.0)
                pieces.put_nowait((self._loop.time() + delay_s, change(link, piece)))
            pieces.put_nowait((0.0, b""))
            await sender
        finally:
            sender.cancel()
            for end in link.ends:
                end.transport.abort()

    async def _send(self, pieces, writer):
        """Write the pieces, each at its time and behind all earlier pieces, up to an empty piece."""
        with contextlib.suppress(OSError):
            while (found := await pieces.get())[1]:
                due_s, piece = found
                due = self._loop.create_future()
                self._loop.call_at(due_s, _wake, due)
                await due
                writer.write(piece)
                await writer.drain()

    async def _change(self, process, port, state):
        self._states[process, port] = state
        for link in list(self._links):
            if link.process == process and link.port == port:
                if state is CUT:
                    for end in link.ends:
                        end.transport.abort()
                link.become(state)

    async def _close(self):
        for server in self._servers:
            server.close()
        for link in list(self._links):
            for end in link.ends:
                end.transport.abort()
