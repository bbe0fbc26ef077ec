"""Whether the broker that a node names still answers.

Between the end of a broker and the end of its session its nodes remain. A client that is redirected to this broker
finds a closed port and doubles its wait before each further attempt, so a lookup shortly before the end of the session
doubles the time that the client loses. A broker therefore checks the other broker before it redirects a client, and
holds the lookup until the silent broker's node is deleted.

When a broker is silent for longer than its session could last and its node remains, only the network between the two
brokers is cut: the broker redirects clients to the silent broker. While the metadata service is away no session ends,
and every session has its whole time again when the service is back; so this time begins anew with each connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import structlog

from magnetar.broker.errors import ServiceNotReadyError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command
from magnetar.storage.coordination import Session
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.ownership.ownership import BrokerAddresses
    from magnetar.broker.tasks import TaskSet
    from magnetar.storage.coordination import Coordination

__all__ = ["Peers", "probe"]

log = structlog.get_logger(__name__)

FRESH_S: Final = 1.0
"""The time for which the outcome of a probe is used."""
PROBE_S: Final = 1.0
LONGEST_WAIT_S: Final = 20.0
"""The longest wait of a lookup for a broker that does not answer; clients give a lookup up after 30 s. Each answer
without an owner doubles the pauses of a client, and its next attempt may meet the closed port of the broker.
"""
_LOOK_S: Final = 0.05
_MOST_PEERS: Final = 1000
_PLAIN: Final = "pulsar"


async def probe(url: str) -> bool:
    """Whether a broker answers a CONNECT at ``pulsar://host:port``, even with an error. At ``pulsar+ssl://``: whether
    the port accepts a connection.
    """
    try:
        parts = urlsplit(url)
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                if parts.scheme != _PLAIN:
                    return True
                connect = pb.CommandConnect(client_version="Magnetar", protocol_version=0)
                writer.write(encode_command(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect)))
                return bool(await reader.read(4))
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, ValueError):
        return False


class _Peer:
    """The state of one other broker."""

    def __init__(self) -> None:
        self.checked_s = float("-inf")
        self.silent_since_s: float | None = None
        self.probing: asyncio.Task[None] | None = None
        self.waiting: asyncio.Task[bool] | None = None


class Peers:
    """The other brokers of a cluster, by address. Each broker gets one probe at a time, at most one per second."""

    def __init__(
        self, metadata: Coordination, tasks: TaskSet, connects: Callable[[str], Awaitable[bool]] = probe
    ) -> None:
        self._metadata = metadata
        self._tasks = tasks
        self._connects = connects
        self._peers: dict[BrokerAddresses, _Peer] = {}
        self._is_connected = True
        self._connected_s = float("-inf")
        """When the metadata service was connected again."""
        metadata.on_session(self._session_changed)

    async def answers(self, broker: BrokerAddresses) -> bool:
        """False while the broker is silent and its session may be about to end."""
        peer = self._peer(broker)
        self._look(broker, peer)
        if peer.probing is not None:
            await asyncio.wait([peer.probing])
        return self._is_alive(peer)

    async def until_gone(self, broker: BrokerAddresses, path: str, value: bytes) -> None:
        """Return when the broker answers again, or when its node no longer has this value. All waiting lookups share
        one of its nodes, because the end of its session deletes all of them.

        Raises ServiceNotReadyError: neither within ``LONGEST_WAIT_S``.
        """
        peer = self._peer(broker)
        waiting = peer.waiting
        if waiting is None:
            log.info("lookup.waits", broker=broker.service_url or broker.service_url_tls)
            waiting = peer.waiting = self._tasks.spawn(self._wait(broker, peer, path, value), "ownership.wait")
        await asyncio.wait([waiting])
        if waiting.cancelled() or not waiting.result():
            raise ServiceNotReadyError("The owner of the topic does not answer. Please redo the lookup")

    async def _wait(self, broker: BrokerAddresses, peer: _Peer, path: str, value: bytes) -> bool:
        try:
            async with asyncio.timeout(LONGEST_WAIT_S):
                while (found := await self._metadata.get(path)) is not None and found[0] == value:
                    self._look(broker, peer)
                    if self._is_alive(peer):
                        break
                    await asyncio.sleep(_LOOK_S)
        except (StorageError, TimeoutError):
            return False
        else:
            return True
        finally:
            peer.waiting = None

    def _peer(self, broker: BrokerAddresses) -> _Peer:
        peer = self._peers.get(broker)
        if peer is None:
            if len(self._peers) >= _MOST_PEERS:
                self._peers.clear()
            peer = self._peers[broker] = _Peer()
        return peer

    def _is_alive(self, peer: _Peer) -> bool:
        if peer.silent_since_s is None:
            return True
        since_s = max(peer.silent_since_s, self._connected_s)
        patience_s = self._metadata.session_timeout_s + FRESH_S
        return self._is_connected and asyncio.get_running_loop().time() - since_s > patience_s

    def _session_changed(self, state: Session) -> None:
        self._is_connected = state is Session.CONNECTED
        if self._is_connected:
            self._connected_s = asyncio.get_running_loop().time()

    def _look(self, broker: BrokerAddresses, peer: _Peer) -> None:
        """Begin a probe when the last probe is no longer fresh."""
        if peer.probing is None and asyncio.get_running_loop().time() - peer.checked_s >= FRESH_S:
            peer.probing = self._tasks.spawn(self._check(broker, peer), "ownership.probe")

    async def _check(self, broker: BrokerAddresses, peer: _Peer) -> None:
        loop = asyncio.get_running_loop()
        try:
            alive = await self._connects(broker.service_url or broker.service_url_tls or "")
        finally:
            peer.probing = None
        peer.checked_s = loop.time()
        if alive:
            peer.silent_since_s = None
        elif peer.silent_since_s is None:
            peer.silent_since_s = peer.checked_s
