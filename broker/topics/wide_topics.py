"""Changes that reach all clients and subscriptions of a topic: a topic may have tens of thousands.

The first have their part at once, the others in turns among those of all read loops, so that a round of the event loop
has a bounded part of all changes of all topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import structlog

from magnetar.broker.compat.java_order import java_order
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.turns import DispatchTurns
    from magnetar.protocol.topic_name import TopicName

__all__ = [
    "AT_ONCE",
    "CLOSE_STEPS",
    "close_without_right",
    "close_without_right_in_turns",
    "in_turns_of_all",
    "is_wide",
    "steps_for",
]

log = structlog.get_logger(__name__)
T = TypeVar("T")
AT_ONCE: Final = 64
"""The most usual steps of a change in one turn; a topic with more clients or subscriptions is wide."""
_STEP_BYTES: Final = 1024
"""The cost of a usual step: a round of the event loop has 512 of them."""
CLOSE_STEPS: Final = 4
_PASSED_IN_A_STEP: Final = 1024
"""Consumers of a subscription that the search for a consumer passes in the time of a step."""
_TOLD_IN_A_STEP: Final = 8
"""Consumers of a subscription to which a change applies in the time of a step."""


class Joined(Protocol):
    """The part of a subscription that the end of its consumers needs."""

    @property
    def consumers(self) -> Sequence[Consumer]: ...
    def disconnect_all(self, consumers: Iterable[Consumer] | None = None) -> None: ...


def is_wide(producers: int, by_name: Mapping[str, Joined]) -> bool:
    """Whether a change for all clients and subscriptions of the topic takes more than a turn."""
    if producers > AT_ONCE or len(by_name) > AT_ONCE:
        return True
    return sum(len(subscription.consumers) for subscription in by_name.values()) > AT_ONCE


async def in_turns_of_all(turns: DispatchTurns, items: Iterable[T], work: Callable[[T], int]) -> None:
    """Do the work for each item: for the first AT_ONCE items before the first wait, for the others in later turns.

    work: returns how many usual steps it took. A failure for one item must not cost the others theirs.
    """
    steps = 0
    for item in items:
        try:
            steps += work(item)
        except Exception:
            log.exception("topic.change_failed")
            steps += 1
        if steps >= AT_ONCE:
            await turns.take(steps * _STEP_BYTES)
            steps = 0


def steps_for(subscription: Joined) -> int:
    """Return the steps of a change that applies to each consumer of the subscription."""
    return 1 + len(subscription.consumers) // _TOLD_IN_A_STEP


def close_without_right(by_name: Mapping[str, Joined], topic: TopicName) -> None:
    """CLOSE_CONSUMER to the consumers whose role lost its right to their subscription, in Apache Pulsar's order."""
    closing: dict[str, tuple[Joined, list[Consumer]]] = {}
    for name, subscription in by_name.items():
        if lost := [each for each in subscription.consumers if not _may_consume(each, topic, name)]:
            closing[name] = subscription, lost
    order = java_order(by_name, concurrent=True) if closing else ()  # most changes take no right from a client
    for subscription, lost in [closing[name] for name in order if name in closing]:
        for consumer in lost:
            subscription.disconnect_all([consumer])


async def close_without_right_in_turns(by_name: Mapping[str, Joined], topic: TopicName, turns: DispatchTurns) -> None:
    """Do the same for a wide topic, whose consumers are closed in the order of their subscriptions."""

    def close(found: tuple[str, Joined, Consumer | None]) -> int:
        name, subscription, consumer = found
        if consumer is None or _may_consume(consumer, topic, name):
            return 1
        steps = CLOSE_STEPS + len(subscription.consumers) // _PASSED_IN_A_STEP
        if consumer in subscription.consumers:  # else it left in an earlier turn
            subscription.disconnect_all([consumer])
        return steps

    await in_turns_of_all(turns, _consumers(by_name), close)


def _consumers(by_name: Mapping[str, Joined]) -> Iterator[tuple[str, Joined, Consumer | None]]:
    """Yield all consumers with their subscriptions. A subscription without consumers takes a step, too."""
    for name, subscription in tuple(by_name.items()):
        for consumer in tuple(subscription.consumers) or (None,):
            yield name, subscription, consumer


def _may_consume(consumer: Consumer, topic: TopicName, subscription: str) -> bool:
    return consumer.outbox.may(pb.BaseCommand.SUBSCRIBE, topic, subscription)
