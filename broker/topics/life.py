"""The state of a topic: open (the usual state), fenced (an append failed; publishes are refused until pending
appends have drained), closing and closed (unload, deletion, shutdown).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from magnetar.broker.compat import wire_refusals

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.protocol.topic_name import TopicName


class TopicState(enum.Enum):
    """See the module."""

    OPEN = "open"
    FENCED = "fenced"
    CLOSING = "closing"
    CLOSED = "closed"


class TopicLife:
    """The state of one topic and the time of its last use; the topic and its parts share this object."""

    def __init__(self, name: TopicName, monotonic: Callable[[], float]) -> None:
        self.state = TopicState.OPEN
        self.last_used_s = monotonic()
        """The time by the monotonic clock of the last use: of a producer, of the deletion of a subscription, or of a
        check for inactive topics that found the topic in use. A consumer by itself is none (Apache Pulsar).
        """
        self.name = name
        self._monotonic = monotonic

    @property
    def is_open(self) -> bool:
        return self.state is TopicState.OPEN

    @property
    def has_ended(self) -> bool:
        """Whether the topic is being closed or is closed."""
        return self.state in (TopicState.CLOSING, TopicState.CLOSED)

    def used(self) -> None:
        """Note that the topic is in use now."""
        self.last_used_s = self._monotonic()

    def check_not_ended(self) -> None:
        """Raise ServiceNotReadyError when the topic is being closed or is closed."""
        if self.has_ended:
            raise wire_refusals.TOPIC_UNAVAILABLE.error(topic=self.name)

    def check_usable(self) -> None:
        """Raise ServiceNotReadyError unless the topic is open; the client then looks the topic up again."""
        if self.state is not TopicState.OPEN:
            raise wire_refusals.TOPIC_UNAVAILABLE.error(topic=self.name)


async def nothing_to_forget() -> None:
    """The topic has no schemas and policies of its own."""
