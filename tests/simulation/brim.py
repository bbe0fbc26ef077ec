"""A disk without space and ends of processes, under consumers that acknowledge the chunks of messages.

A PONG is the evidence that the broker has received an ACK (``acks.py``). Such an ACK of all chunks of a message survives
each end of the process that comes when the disk has had space for the time of a save, whatever saves the full disk has
refused before, and it holds for all chunks or for none. In half of the lives no ACK follows, so that the save is
repeated for the sake of the former ACKs alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.acks import Pinging, Received, check_acked
from tests.simulation.admins import DirectAdmin
from tests.simulation.chunked import ChunkConsumer, Chunked

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from tests.simulation.world import World

BRIM = "persistent://public/default/brim"


class PingingChunks(Pinging, ChunkConsumer):
    """Acknowledges the chunks of a message with one ACK, and sends a PING behind."""

    brim: Brim

    def _decide(self, position: tuple[int, int]) -> None:
        if self.brim.rests:
            self.later(0.5, lambda: self._decide(position))
        else:
            super()._decide(position)


class Brim(Chunked):
    """One topic."""

    topic_name = BRIM
    prefix = "brim"
    consumers = PingingChunks
    is_cut_off = False

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.received = Received(world)
        self._filled = False
        """Whether the disk was full since the last process began."""
        self.rests = False
        """Whether consumers acknowledge nothing, so that no later acknowledgement begins a save."""
        self._saved_s = self._chance.choice([1.0, 6.5, 8.0])

    def populate(self) -> None:
        super().populate()
        for each in self.world.consumers:
            if isinstance(each, PingingChunks):
                each.brim, each.received = self, self.received
                each.acknowledges = 0.97

    def act(self) -> None:
        """Fill the disk, mostly before any other act; end the process, mostly when the saves behind have had their time."""
        world = self.world
        if world.disk.capacity_bytes is not None or world.broker is None:
            return
        if not self._filled:
            self._filled, self.rests = True, self._chance.random() < 0.5
            world.note("fills")
            world.faults.fill_disk()
        elif self._is_saved or self._chance.random() < 0.1:
            world.faults.end("restart" if self._chance.random() < 0.2 else "crash")
        elif self._chance.random() < 0.5:
            admin = DirectAdmin(world.broker)
            admin.spawn(admin.look(self._topic, "unload"))
        else:
            super().act()

    @property
    def _is_saved(self) -> bool:
        return self.world.now_s > self.world.faults.full_until_s + self._saved_s

    def check(self, broker: Broker) -> None:
        super().check(broker)
        check_acked(broker, self._topic, self.world)

    def stopped(self) -> None:
        self.received.stopped()

    def calm(self) -> None:
        super().calm()
        self.rests = False

    def process_ended(self) -> None:
        self._filled = self.rests = False
        self.received.process_ended()
