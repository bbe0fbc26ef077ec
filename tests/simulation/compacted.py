"""Readers of compacted topics, and their promise: the newest value of each key, by an independent model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.batches import walk_batch
from magnetar.protocol.metadata import split_entry
from magnetar.storage.position import Position
from tests.simulation.clients import Client
from tests.simulation.history import Sent, TopicHistory, ViolationError

if TYPE_CHECKING:
    from tests.simulation.world import World

Command = pb.BaseCommand


class CompactedReader(Client):
    """Reads the compacted topic from its begin. After each end of its connection it goes on behind the last entry, as
    readers of official clients do; with permits of one message it is slow, and reads beside compactions.
    """

    def __init__(self, world: World, name: str, topic: TopicHistory, *, slow: bool) -> None:
        super().__init__(world, name, topic)
        self.found: dict[Position, Sent] = {}
        self._slow = slow
        self._start = self._last = Position(-1, -1)

    def connected(self) -> None:
        self._start = self._last
        self.note(f"reads-compacted {self._last[0]}:{self._last[1]}")
        self.send(requests.reader(1, 1, self.topic.name, self.name, {}, after=self._last, read_compacted=True))

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.SUCCESS:
            self.ready = True
            self._flow(1 if self._slow else 1_000_000)
        elif command.type == Command.MESSAGE:
            self._on_message(command.message.message_id, payload)
            if self._slow:
                self.later(self.chance.expovariate(10), lambda: self._flow(5))
        elif command.type in (Command.ERROR, Command.CLOSE_CONSUMER):
            self.drop()

    def _flow(self, permits: int) -> None:
        self.command(Command.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=permits))

    def hurry(self) -> None:
        """Read the rest at once, over a new connection."""
        self._slow = False
        self.drop()

    def _on_message(self, ident: pb.MessageIdData, payload: bytes) -> None:
        position = Position(ident.ledgerId, ident.entryId)
        if position == self._start:
            return  # readers begin at the message from which they go on, which official clients drop
        if position <= self._last:
            raise ViolationError(f"{self.name}: {position} behind {self._last}")
        metadata, body = split_entry(payload)
        if metadata is None:
            raise ViolationError(f"{self.name} {position}: no metadata")
        newest = bytes(body)
        if metadata.HasField("num_messages_in_batch"):
            left = [each for each in walk_batch(metadata, body) if not each.metadata.compacted_out]
            if not left:
                raise ViolationError(f"{self.name} {position}: a batch without messages")
            newest = bytes(left[-1].payload)
        entry = self.topic.got_part(position, metadata.producer_name, metadata.sequence_id, newest)
        self._last = position
        self.found[position] = entry


def check_compacted(known: TopicHistory, reader: CompactedReader) -> None:
    """Check that the reader got the newest value of each key with a receipt, or a later value without a receipt."""
    newest: dict[str, Position] = {}
    damage = reader.world.damage
    for place, entry in known.receipts.items():
        if damage.hides_newest(known, entry):
            continue
        newest[entry.key] = max(newest.get(entry.key, place), place)
    found = {entry.key: place for place, entry in reader.found.items()}  # ascending
    missing = {key: place for key, place in newest.items() if found.get(key, Position(-1, -1)) < place}
    if len(missing) > damage.lost_keys(known):
        raise ViolationError(f"{known.name} {reader.name}: the newest values of {missing} were not read")
