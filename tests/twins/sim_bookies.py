"""Bookies that live in the test's process, reached over a network that the test breaks. They speak the real protocol:
the client's own connections are under test.

A bookie keeps acknowledged entries through crashes. As a real bookie it forgets in a crash the fence (and the master
key) of a ledger of which it holds no entry, and entries it has not acknowledged yet.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from magnetar.bookkeeper.wire.frames import Code

if TYPE_CHECKING:
    from random import Random

__all__ = ["Party", "SimBookie", "SimLedger", "SimNetwork"]

ADD, READ, BATCH = 1, 2, 7
FENCE, RECOVERY, HIGH = 1, 2, 4


class SimLedger:
    def __init__(self, key: bytes) -> None:
        self.key = key
        self.fenced = False
        self.entries: dict[int, bytes] = {}
        self.synced: set[int] = set()


class Party:
    """One client process as the network sees it. While it is paused, all bytes in both directions wait."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused = False
        self.held: list = []

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        held, self.held = self.held, []
        for call in held:
            call()

    def run(self, call) -> None:
        """Call now, or when the paused party continues."""
        if self.paused:
            self.held.append(call)
        else:
            call()


class SimBookie:
    def __init__(self, network: SimNetwork, bookie_id: str) -> None:
        self.network, self.bookie_id = network, bookie_id
        self.ledgers: dict[int, SimLedger] = {}
        self.up, self.read_only, self.suspended = True, False, False
        self.damaged: set[tuple[int, int]] = set()
        """(ledger, entry) of the entries that the bookie returns with a flipped bit."""
        self.answer_codes: dict[int, int] = {}
        """Opcode -> the error code with which the bookie answers every request of that kind."""
        self.damage = lambda frame: frame
        """Returns the bytes that arrive in place of an answer's frame."""
        self.links: dict[Link, None] = {}
        """In the order of their opening."""
        self.requests: list[tuple[int, int, int, int]] = []
        """(opcode, flags, ledger, entry) of every request."""
        self._life = 0
        self._held: list = []

    # faults

    def crash(self) -> None:
        self.up, self.suspended, self._held = False, False, []
        self._life += 1
        for ledger_id, ledger in list(self.ledgers.items()):
            for entry_id in set(ledger.entries) - ledger.synced:
                if self.network.chance.random() < 0.5:
                    del ledger.entries[entry_id]
                else:
                    ledger.synced.add(entry_id)
            if not ledger.entries:
                del self.ledgers[ledger_id]
        for link in list(self.links):
            link.cut()

    def start(self) -> None:
        self.up = True

    def suspend(self) -> None:
        self.suspended = True

    def go_on(self) -> None:
        self.suspended = False
        held, self._held = self._held, []
        for call in held:
            call()

    def holds(self, ledger_id: int, entry_id: int) -> bool:
        ledger = self.ledgers.get(ledger_id)
        return ledger is not None and entry_id in ledger.synced

    # requests

    def take(self, link: Link, frame: bytes) -> None:
        if self.suspended:
            self._held.append(lambda: self.take(link, frame))
            return
        if not self.up or link.is_cut:
            return
        link.taken(4 + len(frame))
        (header,) = struct.unpack_from(">I", frame)
        opcode, flags = header >> 16 & 0xFF, header & 0xFFFF
        if opcode == ADD:
            self._add(link, flags, frame)
        elif opcode == READ:
            self._read(link, flags, frame)
        elif opcode == BATCH:
            self._batch(link, frame)
        else:
            link.cut()

    def _add(self, link, flags, frame) -> None:
        key = frame[4:24]
        ledger_id, entry_id = struct.unpack_from(">qq", frame, 24)
        assert ledger_id >= 0 <= entry_id, "a real bookie would not start again"
        self.requests.append((ADD, flags, ledger_id, entry_id))
        code = self.answer_codes.get(ADD, 0)
        if not code and self.read_only and not flags & HIGH:
            code = Code.READ_ONLY
        ledger = self.ledgers.get(ledger_id)
        if not code:
            if ledger is None:
                ledger = self.ledgers[ledger_id] = SimLedger(key)
            if ledger.key != key:
                code = Code.UNAUTHORIZED
            elif ledger.fenced and not flags & RECOVERY:
                code = Code.FENCED
        if code:
            link.answer(struct.pack(">IIqq", 0x02010000, code, ledger_id, entry_id))
            return
        ledger.entries.setdefault(entry_id, frame[24:])
        life = self._life

        def synced() -> None:
            if self._life == life:
                ledger.synced.add(entry_id)
                link.answer(struct.pack(">IIqq", 0x02010000, 0, ledger_id, entry_id))

        self.network.later(synced)

    def _read(self, link, flags, frame) -> None:
        ledger_id, entry_id = struct.unpack_from(">qq", frame, 4)
        self.requests.append((READ, flags, ledger_id, entry_id))
        code, data = self.answer_codes.get(READ, 0), b""
        ledger = self.ledgers.get(ledger_id)
        if not code and flags & FENCE:
            key = frame[20:40]
            if ledger is None:
                ledger = self.ledgers[ledger_id] = SimLedger(key)
            if ledger.key != key:
                code = Code.UNAUTHORIZED
            else:
                ledger.fenced = True
        if not code:
            code, data = self._stored(ledger_id, ledger, entry_id)
        link.answer(struct.pack(">IIqq", 0x02020000, code, ledger_id, entry_id) + data)

    def _stored(self, ledger_id, ledger, entry_id):
        if ledger is None:
            return Code.NO_LEDGER, b""
        if entry_id == -1:
            entry_id = max(ledger.entries, default=-1)
        data = ledger.entries.get(entry_id)
        if data is None:
            return Code.NO_ENTRY, b""
        if (ledger_id, entry_id) in self.damaged:
            data = data[:-1] + bytes([data[-1] ^ 1])
        return 0, data

    def _batch(self, link, frame) -> None:
        ledger_id, first, request_id, count, size = struct.unpack_from(">qqqIq", frame, 4)
        self.requests.append((BATCH, 0, ledger_id, first))
        code, found, total = self.answer_codes.get(BATCH, 0), [], 0
        ledger = self.ledgers.get(ledger_id)
        while not code and (not count or len(found) < count):
            problem, data = self._stored(ledger_id, ledger, first + len(found))
            if problem:
                code = problem if not found else 0
                break
            total += len(data) + 4
            if found and total > size:
                break
            found.append(struct.pack(">I", len(data)) + data)
        head = struct.pack(">IIqqq", 0x02070000, code, ledger_id, first, request_id)
        link.answer(head + b"".join(found))


class Link(asyncio.Transport):
    """The client's end of one connection; bytes take their time, in order."""

    def __init__(self, network: SimNetwork, party: Party, bookie: SimBookie, protocol) -> None:
        super().__init__()
        self.network, self.party, self.bookie, self.protocol = network, party, bookie, protocol
        self.is_cut = False
        self._in = bytearray()
        self._unsent_bytes = 0
        self._most_unsent_bytes = 64 << 10
        self._paused = False
        self._out_due = self._in_due = 0.0
        bookie.links[self] = None

    def set_write_buffer_limits(self, high=None, low=None) -> None:
        self._most_unsent_bytes = self._most_unsent_bytes if high is None else high

    def get_write_buffer_size(self) -> int:
        """The number of bytes that the bookie has not received yet."""
        return self._unsent_bytes

    def write(self, data) -> None:
        data = bytes(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > self._most_unsent_bytes and not self._paused:
            self._paused = True
            self.protocol.pause_writing()
        self.party.run(lambda: self._send(data))

    def taken(self, size_bytes: int) -> None:
        """Note that the bookie has received so many more bytes."""
        self._unsent_bytes -= size_bytes
        if self._paused and self._unsent_bytes <= self._most_unsent_bytes // 4:
            self._paused = False
            self.network.loop.call_soon(lambda: self.party.run(self._resume))

    def _resume(self) -> None:
        if not self.is_cut:
            self.protocol.resume_writing()

    def _send(self, data: bytes) -> None:
        self._out_due = self.network.due(self._out_due)
        self.network.loop.call_at(self._out_due, self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if self.is_cut or self.network.is_parted(self.party, self.bookie):
            return
        self._in += data
        while len(self._in) >= 4:
            size = int.from_bytes(self._in[:4], "big")
            if len(self._in) < 4 + size:
                break
            frame = bytes(self._in[4 : 4 + size])
            del self._in[: 4 + size]
            self.bookie.take(self, frame)

    def answer(self, body: bytes) -> None:
        if self.is_cut:
            return
        self._in_due = self.network.due(self._in_due)
        data = self.bookie.damage(struct.pack(">I", len(body)) + body)
        self.network.loop.call_at(self._in_due, lambda: self.party.run(lambda: self._deliver(data)))

    def _deliver(self, data: bytes) -> None:
        if not self.is_cut and not self.network.is_parted(self.party, self.bookie):
            self.protocol.data_received(data)

    def abort(self) -> None:
        self.cut()

    close = abort

    def is_closing(self) -> bool:
        return self.is_cut

    def cut(self) -> None:
        """Both ends see the loss of the connection; bytes under way are lost."""
        if not self.is_cut:
            self.is_cut = True
            self.bookie.links.pop(self, None)
            self.network.loop.call_soon(lambda: self.party.run(lambda: self.protocol.connection_lost(None)))


class SimNetwork:
    """The network between parties and bookies. `latency_s`: (least, most) of one way, and of a bookie's disk."""

    def __init__(self, chance: Random, latency_s=(0.0002, 0.002)) -> None:
        self.chance, self.latency_s = chance, latency_s
        self.loop = asyncio.get_running_loop()
        self.bookies: dict[str, SimBookie] = {}
        self.parted: set[tuple[str, str]] = set()

    def add_bookie(self, bookie_id: str) -> SimBookie:
        bookie = self.bookies[bookie_id] = SimBookie(self, bookie_id)
        return bookie

    def later(self, call) -> None:
        self.loop.call_later(self.chance.uniform(*self.latency_s), call)

    def due(self, after: float) -> float:
        """A time of arrival that is not before ``after``."""
        return max(after, self.loop.time() + self.chance.uniform(*self.latency_s))

    def is_parted(self, party: Party, bookie: SimBookie) -> bool:
        return (party.name, bookie.bookie_id) in self.parted

    def part(self, party: Party, bookie: SimBookie) -> None:
        """Lose all bytes between the party and the bookie from now on; neither end notices."""
        self.parted.add((party.name, bookie.bookie_id))

    def heal(self) -> None:
        """Repair all links. Connections over parted links end, because their bytes are lost."""
        for bookie in self.bookies.values():
            for link in list(bookie.links):
                if self.is_parted(link.party, bookie):
                    link.cut()
        self.parted.clear()

    def connector(self, party: Party):
        """The pool's `connect` for this party."""

        async def connect(make, address):
            arrived = self.loop.create_future()
            self.later(lambda: party.run(lambda: arrived.done() or arrived.set_result(None)))
            await arrived
            bookie = self.bookies[f"{address.host}:{address.port}"]
            if self.is_parted(party, bookie):
                await asyncio.Event().wait()  # waits until the connect timeout
            if not bookie.up:
                raise ConnectionRefusedError("refused")
            protocol = make()
            protocol.connection_made(Link(self, party, bookie, protocol))
            return protocol

        return connect
