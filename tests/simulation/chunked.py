"""Messages in chunks, and their promise: a message is whole or absent, and never mixed.

A client joins chunks as official clients do. A message of whose chunks all have receipts is whole for a reader of the
whole topic, with its own bytes. The chunks that an ACK names are acknowledged together, also behind a crash. On a
Shared subscription a chunk goes to the consumer that holds the chunk before. A compaction keeps or drops a message as a
whole. With deduplication a message is whole once, and no chunk but the last is taken for a duplicate.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.batches import encode_entry
from magnetar.protocol.metadata import split_entry
from magnetar.protocol.speed import after_prefix
from magnetar.storage.position import Position
from tests.simulation.clients import EXCLUSIVE, SHARED, SimConsumer, SimProducer
from tests.simulation.compacted import CompactedReader
from tests.simulation.history import Sent, SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from tests.simulation.world import World

Command = pb.BaseCommand
CHUNKED = "persistent://public/default/chunked"
_NONE = (1 << 64) - 1


@dataclass(eq=False)
class Whole:
    """A message in chunks as its producer sent it."""

    uuid: str
    payload: bytes
    key: str
    chunks: list[Sent] = field(default_factory=list)
    receipted: set[int] = field(default_factory=set)
    """Numbers of the chunks that have receipts, also those of duplicates."""


@dataclass(eq=False)
class Session:
    """One connection of a consumer."""

    name: str
    is_over: bool = False
    suspected: list[tuple[Position, Position, float]] = field(default_factory=list)
    """(chunk before, chunk, time): another session got the chunk then, and this session held the chunk before if the
    broker still served this session.
    """


class Chunks:
    """All chunks of the topic."""

    def __init__(self) -> None:
        self.messages: dict[str, Whole] = {}
        self.of_body: dict[bytes, tuple[Whole, int]] = {}
        self.places: dict[str, dict[Position, int]] = {}
        """For each message the known positions of its chunks, copies included, with their numbers."""

    def stored(self, position: Position, body: bytes) -> None:
        if (found := self.of_body.get(body)) is not None:
            self.places.setdefault(found[0].uuid, {})[position] = found[1]

    def before(self, position: Position, body: bytes) -> Position | None:
        """The chunk right before this chunk of an unfinished message."""
        found = self.of_body.get(body)
        if found is None or not found[1]:
            return None
        places = self.places[found[0].uuid]
        last = max((each for each in places if each < position), default=None)
        return last if last is not None and places[last] == found[1] - 1 else None


class Joiner:
    """Joins the chunks of one connection. The first chunk begins a message anew, a gap ends it."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._open: dict[str, list[tuple[Position, bytes]]] = {}

    def takes(self, position: Position, body: bytes) -> tuple[Whole, list[Position]] | None:
        """Take an entry; return the message that it completes, with the positions of its chunks."""
        found = self._chunks.of_body.get(body)
        if found is None:
            return None
        whole, number = found
        metadata, piece = split_entry(body)
        assert metadata is not None
        joined = [] if number == 0 else self._open.get(whole.uuid)
        if joined is None or number != len(joined):
            if joined is not None and number > len(joined):
                del self._open[whole.uuid]
            return None
        joined.append((position, bytes(piece)))
        self._open[whole.uuid] = joined
        if len(joined) < metadata.num_chunks_from_msg:
            return None
        del self._open[whole.uuid]
        if b"".join(piece for _, piece in joined) != whole.payload:
            raise ViolationError(f"the chunks of {whole.uuid} at {joined[0][0]} make another message")
        return whole, [place for place, _ in joined]


class ChunkProducer(SimProducer):
    """Sends half of its messages in chunks, with pauses between them."""

    def __init__(self, world: World, name: str, topic: TopicHistory, chunks: Chunks) -> None:
        super().__init__(world, name, topic)
        self._chunks = chunks
        self._rest: deque[Sent] = deque()

    def _new(self) -> Sent:
        if not self._rest and self.chance.random() < 0.5:
            return super()._new()
        if not self._rest:
            self._cut()
        entry = self._rest.popleft()
        self.topic.sends(entry)
        return entry

    def _cut(self) -> None:
        """Cut a message into chunks; all of them have its sequence id."""
        number, count = self._next, self.chance.randint(2, 4)
        self._next += 1
        payload = b"%s=%d " % (self.name.encode(), number) * self.chance.choice([3, 40])
        whole = Whole(f"{self.name}-{number}", payload, self.chance.choice("abcd"))
        self._chunks.messages[whole.uuid] = whole
        size = -(-len(payload) // count)
        for k in range(count):
            metadata = pb.MessageMetadata(producer_name=self.name, sequence_id=number, publish_time=self.world.now_ms)
            metadata.partition_key, metadata.uuid, metadata.chunk_id = whole.key, whole.uuid, k
            metadata.num_chunks_from_msg, metadata.total_chunk_msg_size = count, len(payload)
            body = encode_entry(metadata, payload[k * size : (k + 1) * size])
            entry = Sent(self.name, number, 1, body, self.world.now_s)
            entry.key = whole.key
            whole.chunks.append(entry)
            self._chunks.of_body[body] = whole, k
        self._rest.extend(whole.chunks)

    def _send(self, entry: Sent) -> None:
        if entry.body not in self._chunks.of_body:
            super()._send(entry)
            return
        entry.copies += 1
        self.send(requests.send(1, entry.sequence_id, entry.sequence_id, 1, entry.body, is_chunk=True))

    def may_be_duplicate(self, entry: Sent) -> bool:
        """Of a message in chunks the broker judges the last chunk alone."""
        whole, number = self._chunks.of_body.get(entry.body, (None, 0))
        return self.world.plan.deduplicates and (whole is None or number == len(whole.chunks) - 1)

    def _on_receipt(self, receipt: pb.CommandSendReceipt) -> None:
        entry = self.pending[0] if self.pending else None
        super()._on_receipt(receipt)
        assert entry is not None
        if receipt.message_id.ledgerId != _NONE:
            self._chunks.stored(Position(receipt.message_id.ledgerId, receipt.message_id.entryId), entry.body)
        whole, number = self._chunks.of_body.get(entry.body, (None, 0))
        if whole is not None:
            whole.receipted.add(number)


class Book:
    """The acknowledgements of one subscription."""

    def __init__(self, subscription: SubscriptionHistory) -> None:
        self.subscription = subscription
        self.together: list[tuple[int, list[Position]]] = []
        """(epoch of the subscription, positions that an ACK named)."""
        self.held_by: dict[Position, Session] = {}
        """The session that got the entry last."""
        self.let_go: dict[Position, float] = {}
        """When a consumer acknowledged the entry or gave it back first."""
        self.alone: set[Position] = set()
        """Positions of chunks that a consumer acknowledged without the rest of their message."""
        self.calm = False
        """Whether consumers acknowledge chunks of unfinished messages, so that no backlog holds a producer for ever."""

    def gone(self, place: Position, now_s: float) -> None:
        self.let_go.setdefault(place, now_s)


class ChunkConsumer(SimConsumer):
    """Joins chunks; acknowledges the chunks of a message with one ACK, or gives all of them back."""

    def __init__(self, world: World, name: str, topic: TopicHistory, book: Book, sub_type: int, chunks: Chunks) -> None:
        super().__init__(world, name, topic, book.subscription, sub_type)
        self._book, self._chunks = book, chunks
        self._joiner = Joiner(chunks)
        self._whole: dict[tuple[int, int], list[Position]] = {}
        """Position of a last chunk -> positions of all chunks of its message."""
        self._session = Session(name)

    def _subscribed(self, begins: bool, epoch: int) -> None:
        self._joiner = Joiner(self._chunks)
        self._whole.clear()
        super()._subscribed(begins, epoch)

    def connected(self) -> None:
        self._session = Session(self.name)
        super().connected()

    def ended(self) -> None:
        self._session.is_over = True
        super().ended()

    def _on_command(self, command: pb.BaseCommand, payload: bytes) -> None:
        super()._on_command(command, payload)
        for case in [each for each in self._session.suspected if each[2] < self.written_s]:
            self._session.suspected.remove(case)
            self._confirm(*case)

    def _confirm(self, before: Position, place: Position, at_s: float) -> None:
        """This session was alive behind the time at which another session got the chunk."""
        book, subscription = self._book, self.subscription
        if (
            self._session.is_over
            or subscription.moved
            or subscription.moves
            or book.let_go.get(before, at_s + 1) <= at_s
        ):
            return
        if (
            subscription.acked_up_to >= before
            or subscription.may_be_expired(0.0)
            or book.held_by[before] != self._session
        ):
            return
        if self._chunks.before(place, self.topic.seen[place]) == before:
            raise ViolationError(
                f"{self.topic.name}: {place} does not go to {self.name}, which holds its chunk before {before}"
            )

    def _on_message(self, message: pb.CommandMessage, payload: bytes) -> None:
        super()._on_message(message, payload)
        position = Position(message.message_id.ledgerId, message.message_id.entryId)
        body = payload[after_prefix(payload) :]
        self._chunks.stored(position, body)
        before = self._chunks.before(position, body)
        holder = None if before is None else self._book.held_by.get(before)
        if self.sub_type == SHARED and before is not None and holder not in (None, self._session):
            assert holder is not None
            holder.suspected.append((before, position, self.written_s))
        self._book.held_by[position] = self._session
        self._book.let_go.pop(position, None)
        done = self._joiner.takes(position, body)
        if done is not None:
            self.note(f"joins {done[0].uuid}")
            self._whole[position] = done[1]

    def _decide(self, position: tuple[int, int]) -> None:
        if self.taken[position] not in self._chunks.of_body:
            super()._decide(position)
        elif self._book.calm and self.ready:
            self._book.alone.add(Position(*position))
            self._ack(position, cumulative=False)
        elif self.ready and (places := self._whole.pop(position, None)):
            if self.chance.random() <= self.acknowledges:
                self._ack_all(places)
            elif self.sub_type == SHARED:
                self._give_back(places)

    def _give_back(self, places: list[Position]) -> None:
        self.note(f"gives-back {len(places)} chunks {places[0]}")
        command = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
        for place in places:
            command.message_ids.add(ledgerId=place[0], entryId=place[1])
            self._book.gone(place, self.world.now_s)
        self.command(Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=command)

    def _ack_all(self, places: list[Position]) -> None:
        command = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
        for place in places:
            command.message_id.add(ledgerId=place[0], entryId=place[1])
            self._book.gone(place, self.world.now_s)
        self.note(f"acks {len(places)} chunks {places[0]}")
        subscription = self.subscription
        subscription.acked.update(places)
        state = subscription.state
        self._book.together.append((subscription.epoch, places))

        def sure() -> None:
            if subscription.state == state and not subscription.moved:
                for place in places:
                    subscription.sure.setdefault(place, self.world.now_s)

        self._acknowledge(command, sure, unanswered=0.5)

    def _ack(self, position: tuple[int, int], *, cumulative: bool) -> None:
        self._book.gone(Position(*position), self.world.now_s)
        super()._ack(position, cumulative=cumulative)


class CompactedChunks(CompactedReader):
    """Reads the compacted topic and joins its chunks."""

    def __init__(self, world: World, name: str, topic: TopicHistory, chunks: Chunks) -> None:
        super().__init__(world, name, topic, slow=False)
        self._chunks = chunks
        self._joiner = Joiner(chunks)

    def _on_message(self, ident: pb.MessageIdData, payload: bytes) -> None:
        body = payload[after_prefix(payload) :]
        position = Position(ident.ledgerId, ident.entryId)
        if body not in self._chunks.of_body:
            super()._on_message(ident, payload)
        elif position > self._last:  # the joiner goes on over lost connections, as readers of official clients do
            self._last = position
            self._chunks.stored(position, body)
            if self._joiner.takes(position, body) is not None:
                self.found[position] = self.topic.by_body[body]


class Chunked(Part):
    """One topic."""

    topic_name = CHUNKED
    prefix = "chunk"
    """Names of clients begin so."""
    consumers: type[ChunkConsumer] = ChunkConsumer

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for(f"{self.prefix}ed")
        self._chunks = Chunks()
        self._books: dict[str, Book] = {}
        self._compacted: list[CompactedChunks] = []
        self._ends = False
        """Whether the last clients read, which acknowledge each entry by itself."""

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        self._topic = topic = TopicHistory(self.topic_name, plan.keeps_all, deduplicates=False)
        world.history.topics[self.topic_name] = topic
        world.producers += [ChunkProducer(world, f"{self.prefix}er{n}", topic, self._chunks) for n in range(2)]
        for name, kind, count in (("a", SHARED, 2 + self._chance.randrange(2)), ("b", EXCLUSIVE, 1)):
            own = topic.subscriptions.setdefault(name, SubscriptionHistory(name))
            book = self._books[name] = Book(own)
            world.consumers += [
                self.consumers(world, f"{self.prefix}ed-{name}{n}", topic, book, kind, self._chunks)
                for n in range(count)
            ]

    def act(self) -> None:
        """A consumer leaves and comes back."""
        mine = [each for each in self.world.consumers if each.topic is self._topic]
        self._chance.choice(mine).drop()

    # --- checks

    def check(self, broker: Broker) -> None:
        """No ACK of several chunks holds for some of them alone."""
        loaded = broker.topics.loaded.get(self.topic_name)
        if loaded is None or not loaded.is_open or self.world.damage.done or self._ends:
            return
        for name, book in self._books.items():
            known, found = book.subscription, loaded.subscriptions.by_name.get(name)
            if found is None or not known.exists or known.moved or known.moves or known.expiries or known.evicted:
                continue
            for epoch, places in book.together:
                if epoch != known.epoch or places[0] <= known.acked_up_to or not book.alone.isdisjoint(places):
                    continue
                if len({found.cursor.is_deleted(place) for place in places}) > 1:
                    raise ViolationError(
                        f"{self.topic_name} {name}: of {places} some are acknowledged, by an ACK of all"
                    )

    def calm(self) -> None:
        for book in self._books.values():
            book.calm = True

    def take(self) -> None:
        self._ends = True
        if self.world.plan.compacted:
            self._compacted = [CompactedChunks(self.world, f"{self.prefix}s-late", self._topic, self._chunks)]
            self._compacted[0].start()

    def is_quiet(self) -> bool:
        return all(reader.ready for reader in self._compacted)

    def compare(self) -> None:
        for reader in self.world.readers_of(self.topic_name):
            self._check_whole([(Position(*place), entry) for place, entry, _ in reader.found])
        for compacted in self._compacted:
            self._check_newest(compacted)
            compacted.stop()

    def _check_whole(self, found: list[tuple[Position, Sent]]) -> None:
        """A reader of the whole topic joins all messages of whose chunks all have receipts."""
        joiner, plan = Joiner(self._chunks), self.world.plan
        joined: dict[str, int] = {}
        for place, entry in found:
            if (done := joiner.takes(place, entry.body)) is not None:
                joined[done[0].uuid] = joined.get(done[0].uuid, 0) + 1
        for uuid, whole in self._chunks.messages.items():
            if plan.deduplicates and joined.get(uuid, 0) > 1:
                raise ViolationError(f"{self.topic_name}: {uuid} is stored {joined[uuid]} times")
            if not plan.keeps_all or uuid in joined or len(whole.receipted) < len(whole.chunks):
                continue
            if not any(self.world.damage.lies_on(self._topic, each) for each in whole.chunks):
                raise ViolationError(f"{self.topic_name}: {uuid} has all receipts and is not whole")

    def _check_newest(self, reader: CompactedChunks) -> None:
        for place, body in self._topic.seen.items():  # the last clients alone may have met a copy without a receipt
            self._chunks.stored(place, body)
        newest: dict[str, Position] = {}
        hides = self.world.damage.hides_newest
        for place, entry in self._topic.receipts.items():
            whole, number = self._chunks.of_body.get(entry.body, (None, 0))
            if any(hides(self._topic, each) for each in (whole.chunks if whole else [entry])):
                continue
            if whole is None:
                newest[entry.key] = max(newest.get(entry.key, place), place)
            elif number == len(whole.chunks) - 1 and len(whole.receipted) == len(whole.chunks):
                first = min(each for each, of in self._chunks.places[whole.uuid].items() if of == number)
                newest[entry.key] = max(newest.get(entry.key, first), first)  # further copies have no beginning
        found = {entry.key: place for place, entry in sorted(reader.found.items())}
        missing = {key: place for key, place in newest.items() if found.get(key, Position(-1, -1)) < place}
        if len(missing) > self.world.damage.lost_keys(self._topic):
            raise ViolationError(f"{self.topic_name} {reader.name}: the newest values of {missing} were not read")
