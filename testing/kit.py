"""All faults of one broker process, and the broker that they are built into."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from magnetar.broker.broker import Broker
from magnetar.storage.embedded.environment import EngineEnvironment
from magnetar.testing.faulty_connection import FaultyConnection, Switches
from magnetar.testing.faulty_disk import DiskSwitches, FaultyFiles
from magnetar.testing.rules import Rules, full_name

if TYPE_CHECKING:
    import asyncio

    from magnetar.broker.network.connection import Connection
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.producer import Producer
    from magnetar.storage.interfaces import Clock


class FaultyClock:
    """A wall clock ahead of another clock; monotonic time is that of the other clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms

    def now_s(self) -> float:
        return self._clock.now_s()


class FaultKit:
    """The faults of a broker process. The faults outlive the broker: a restored broker has the same faults."""

    def __init__(self) -> None:
        self.rules = Rules()
        self.switches = Switches(self.rules)
        self.disk = DiskSwitches()
        real = EngineEnvironment.real()
        self.clock = FaultyClock(real.clock)
        self._environment = EngineEnvironment(
            FaultyFiles(real.files, self.disk), self.clock, real.threads, real.scheduler
        )
        self.broker: Broker

    def build(self, settings: Settings) -> Broker:
        """Build a broker whose connections, files and clock go through the kit."""
        self.broker = Broker(settings, self._environment)
        self.broker.listeners.binary.wrap = self._wrap
        return self.broker

    def _wrap(self, connection: Connection) -> asyncio.BaseProtocol:
        return FaultyConnection(connection, self.switches)

    def reset(self) -> None:
        """End all faults: rules, pause, faults of disk and clock."""
        self.rules.clear()
        self.disk.reset()
        self.set_clock(0.0)
        self.switches.resume()

    def set_clock(self, seconds: float) -> None:
        """Set the clock this many seconds ahead of the real clock; delayed messages that become due are delivered."""
        if self.clock.ahead_ms != round(seconds * 1000):
            self.clock.ahead_ms = round(seconds * 1000)
            for topic in list(self.broker.topics.loaded.values()):
                index = getattr(topic, "delay_index", None)
                if index is not None:
                    index.clock_moved()

    # --- connections ---------------------------------------------------------------------------------------------

    def connections(self) -> list[dict[str, Any]]:
        return [_told(each.connection) for each in self.switches.open]

    def cut(self, number: int | None = None, topic: str | None = None) -> int:
        """Cut the connection of a number, those with a producer or consumer of a topic, or all; returns how many."""
        name = None if topic is None else full_name(topic)
        chosen = [
            each
            for each in self.switches.open
            if number in (None, each.connection.connection_id) and (name is None or name in _topics(each.connection))
        ]
        for each in chosen:
            each.cut()
        return len(chosen)

    # --- namespaces ----------------------------------------------------------------------------------------------

    async def new_namespace(self, tenant: str = "public") -> str:
        """Create a namespace for a single test."""
        name = f"{tenant}/test-{secrets.token_hex(6)}"
        namespaces = self.broker.stored.namespaces
        await namespaces.create_namespace(name, namespaces.new_policies())
        return name


def _clients(connection: Connection) -> list[Producer | Any]:
    found = [*connection.producers.values(), *connection.consumers.values()]
    return [each for each in found if hasattr(each, "closed")]


def _topic_of(client: Any) -> str:
    topic = getattr(client, "topic", None)
    return str(topic.name if topic is not None else client.subscription.topic_name)


def _topics(connection: Connection) -> set[str]:
    return {full_name(_topic_of(each)) for each in _clients(connection)}


def _told(connection: Connection) -> dict[str, Any]:
    return {
        "id": connection.connection_id,
        "address": connection.address,
        "client": connection.client_version,
        "topics": sorted(_topics(connection)),
    }
