"""Divides the entries of a read among the consumers of a Shared subscription. A pure decision.

    avg  = max(messages // entries, 1) of the whole read
    each turn of the round robin: at most ``max_entries_per_turn`` entries and ceil(messages it may take / avg), at
    least 1

A consumer gets only whole entries, so its permits may go below zero. Entries that no consumer can take are left over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.broker.consumers.permits import Permits
    from magnetar.broker.dispatchers.consumer_selection import RoundRobin


class Seat(Protocol):
    """The part of a consumer that the plan needs."""

    @property
    def priority_level(self) -> int: ...
    @property
    def permits(self) -> Permits: ...
    def is_writable(self) -> bool: ...


S = TypeVar("S", bound=Seat)


class Share(NamedTuple, Generic[S]):
    """Entries ``start..end-1`` of the read go to ``consumer``."""

    consumer: S
    start: int
    end: int


class Book:
    """The remaining permits of a consumer during a plan; 0 while its connection is not writable."""

    __slots__ = ("permits", "room")

    def __init__(self, consumer: Seat) -> None:
        self.permits = consumer.permits.usable
        self.room = consumer.permits.unacked_room
        if self.usable and not consumer.is_writable():
            self.permits = 0

    @property
    def usable(self) -> bool:
        return self.permits > 0 and self.room > 0

    def take(self, messages: int) -> None:
        """Count an entry of `messages` messages that the consumer gets."""
        self.permits -= messages
        self.room -= messages


def plan_round_robin(
    consumers: RoundRobin[S], entries: int, sizes: Sequence[int] | None, max_entries_per_turn: int
) -> tuple[list[Share[S]], int]:
    """Return the shares of a read of ``entries`` entries, in order, and the number of entries in these shares.

    ``sizes`` are the messages that each entry still holds (None: one message each). Advances the round robin; consumers
    are not changed. Neighbouring shares of a consumer are joined, except for batches, where each turn counts in the
    average.
    """
    books: dict[S, Book] = {}

    def usable(consumer: S) -> bool:
        book = books.get(consumer)
        if book is None:
            book = books[consumer] = Book(consumer)
        return book.usable

    remaining = entries if sizes is None else sum(sizes)
    passed: list[int] = []
    average = max(remaining // entries, 1) if entries else 1
    shares: list[Share[S]] = []
    start = 0
    while start < entries:
        consumer = consumers.next(usable, passed)
        if consumer is None:
            break
        book = books[consumer]
        most = min(remaining, book.permits, book.room)
        end = min(start + max(min(max_entries_per_turn, -(-most // average)), 1), entries)
        messages = end - start if sizes is None else sum(sizes[start:end])
        book.take(messages)
        remaining -= messages
        if sizes is None and shares and shares[-1].consumer is consumer:
            shares[-1] = Share(consumer, shares[-1].start, end)
        else:
            shares.append(Share(consumer, start, end))
        start = end
    return shares, start
