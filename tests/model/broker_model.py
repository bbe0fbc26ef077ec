"""The model of a topic with its subscriptions, as plain lists and sets: no protocol, no I/O, no cleverness.

A log is a list of entries; a subscription knows the unacknowledged messages of each entry. The model checks each
message of a consumer as it comes, and missing messages when all is quiet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = 0, 1, 2, 3
Position = tuple[int, int]


@dataclass
class Entry:
    """One entry as a client sent it. `position` is None until a receipt or a message of a reader has it."""

    sequence_id: int
    body: bytes
    count: int
    key: str
    publish_ms: int
    position: Position | None = None

    @property
    def highest_sequence_id(self) -> int:
        return self.sequence_id + self.count - 1


@dataclass(eq=False)
class ModelConsumer:
    """`holds`: entries that the broker sent to the consumer, and that are neither acknowledged nor taken back.

    The broker plans entries by their average number of messages, so one round may make permits negative: `may_get` is
        whether the consumer had permits when the last round can have begun.
    """

    consumer_id: int
    peer: Any
    permits: int = 0
    may_get: bool = False
    holds: set[int] = field(default_factory=set)


class ModelSubscription:
    """One subscription on a log; entries are meant by their index."""

    def __init__(self, name: str, sub_type: int, log: list[Entry], start: int) -> None:
        self.name, self.type, self.log = name, sub_type, log
        self.left: dict[int, set[int]] = {}
        """Messages not acknowledged, of entries that have any."""
        self.unsaved: dict[int, set[int]] = {}
        """Messages acknowledged that a crash may bring back."""
        self.unsure: dict[int, set[int]] = {}
        """Messages acknowledged before a crash: after it the broker may deliver them again or not."""
        self.consumers: list[ModelConsumer] = []
        self.active: ModelConsumer | None = None
        self.next = 0
        """Exclusive and Failover: the first entry that the active consumer has not got yet."""
        for index in range(start, len(log)):
            self.appended(index)

    # --- events ---------------------------------------------------------------------------------------------------

    def appended(self, index: int) -> None:
        self.left[index] = set(range(self.log[index].count))

    def joined(self, consumer: ModelConsumer) -> None:
        self.consumers.append(consumer)
        if self.type == EXCLUSIVE:
            self.activate(consumer)

    def left_by(self, consumer: ModelConsumer) -> None:
        self.consumers.remove(consumer)
        if self.active is consumer:
            self.active = None

    def activate(self, consumer: ModelConsumer) -> None:
        """Make the consumer active; it begins with the unacknowledged messages."""
        if self.active is not consumer:
            self.active = consumer
            self.rewind()

    def rewind(self) -> None:
        self.next = 0
        for consumer in self.consumers:
            consumer.holds.clear()

    def give_back(self, consumer: ModelConsumer, entries: set[int] | None) -> None:
        """The consumer requests redelivery of entries, without ids of all entries that it holds."""
        if self.single:
            if consumer is self.active:
                self.rewind()
        else:
            consumer.holds -= consumer.holds if entries is None else entries

    def acked(self, index: int, messages: set[int]) -> None:
        done = self.left.get(index, set()) & messages
        if not done:
            return
        self.left[index] -= done
        self.unsaved.setdefault(index, set()).update(done)
        if not self.left[index]:
            del self.left[index]
            for consumer in self.consumers:
                consumer.holds.discard(index)

    def acked_up_to(self, index: int, messages: set[int]) -> None:
        for earlier in [i for i in self.left if i < index]:
            self.acked(earlier, set(self.left[earlier]))
        self.acked(index, messages)
        for unsure in [i for i in self.unsure if i < index]:
            self.unsaved.setdefault(unsure, set()).update(self.unsure.pop(unsure))

    def saved(self) -> None:
        """Everything acknowledged so far survives a crash."""
        self.unsaved.clear()

    def moved_to(self, index: int) -> None:
        """A seek: the broker must deliver every entry from `index` on again, and no entry before it."""
        self.left = {i: set(range(self.log[i].count)) for i in range(index, len(self.log))}
        self.unsaved.clear()
        self.unsure.clear()
        self.rewind()

    def restarted(self, *, crashed: bool) -> None:
        self.consumers.clear()
        self.active, self.next = None, 0
        if crashed:
            for index, messages in self.unsaved.items():
                self.unsure.setdefault(index, set()).update(messages)
        self.unsaved.clear()

    @staticmethod
    def flow(consumer: ModelConsumer, permits: int) -> None:
        consumer.permits += permits
        consumer.may_get = consumer.permits > 0

    # --- checks ---------------------------------------------------------------------------------------------------

    @property
    def single(self) -> bool:
        return self.type in (EXCLUSIVE, FAILOVER)

    def delivered(self, consumer: ModelConsumer, index: int, messages: set[int]) -> None:
        """Check a delivered entry; `messages` are those that its ack set shows as not acknowledged."""
        where = f"{self.name}: entry {index}"
        assert consumer in self.consumers, f"{where} to a consumer that is gone"
        assert consumer.may_get, f"{where} without permits"
        assert not any(index in c.holds for c in self.consumers), f"{where} twice without a cause"
        left, unsure = self.left.get(index, set()), self.unsure.pop(index, set())
        assert messages, f"{where} without messages"
        assert left <= messages <= left | unsure, f"{where}: {messages} of {left}, perhaps {unsure}"
        self.left[index] = set(messages)
        if self.single:
            assert consumer is self.active, f"{where} to a consumer that is not active"
            skipped = [i for i in self.left if self.next <= i < index]
            assert index >= self.next, f"{where} after {self.next - 1}"
            assert not skipped, f"{where} before {skipped}"
            self.next = index + 1
        elif self.type == KEY_SHARED:
            key = self.log[index].key
            earlier = {i for i in self.left if i < index and self.log[i].key == key}
            assert earlier <= consumer.holds, f"{where} before {earlier - consumer.holds} of the same key"
        consumer.holds.add(index)
        consumer.permits -= len(messages)

    def quiet(self) -> None:
        """No operation is pending: every consumer with permits has got all available messages."""
        for consumer in self.consumers:
            consumer.may_get = consumer.permits > 0
        waiting = [i for i in self.left if not any(i in c.holds for c in self.consumers)]
        ready = [c for c in self.consumers if c.permits > 0]
        if self.single:
            if self.active in ready:
                missed = [i for i in waiting if i >= self.next]
                assert not missed, f"{self.name}: {missed} not delivered"
        elif self.type == SHARED:
            assert not ready or not waiting, f"{self.name}: {waiting} not delivered to {len(ready)} consumers"
        elif ready and len(ready) == len(self.consumers) and not any(c.holds for c in ready):
            assert not waiting, f"{self.name}: {waiting} not delivered, and nothing stands in the way"
