"""A dispatcher of a persistent topic as its subscription sees it; each subscription type has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.held_entries import HeldEntries
    from magnetar.broker.dispatchers.read_loop import ReadLoop
    from magnetar.storage.position import Position


class Dispatcher(Protocol):
    """The consumers of a subscription; assigns entries to them."""

    loop: ReadLoop
    """Reads for the dispatcher; woken when permits, entries or acknowledgements change."""

    @property
    def sub_type(self) -> int: ...
    @property
    def held(self) -> HeldEntries | None:
        """The books of individual acknowledgements; None where a single consumer is served in order."""
        ...

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Connected consumers."""
        ...

    def occupant(self, consumer: Consumer) -> Consumer | None:
        """The consumer that keeps `consumer` out unless its connection turns out to be dead (Exclusive)."""
        ...

    def add_consumer(self, consumer: Consumer) -> None:
        """Admit a consumer; raises the refusal."""
        ...

    def remove_consumer(self, consumer: Consumer) -> None:
        """A consumer left; other consumers get its held messages. Safe to call twice."""
        ...

    def remove_for_seek(self, consumer: Consumer) -> None:
        """Like `remove_consumer`, for a consumer that should return."""
        ...

    def closed_by_seek(self) -> list[Consumer]:
        """The consumers that SEEK closes."""
        ...

    def can_unsubscribe(self, consumer: Consumer) -> bool:
        """Whether this is the only consumer."""
        ...

    def flow(self, consumer: Consumer) -> None:
        """A consumer can use more permits."""
        ...

    def redeliver_all(self, consumer: Consumer, epoch: int | None) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES without ids."""
        ...

    def redeliver(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES with ids."""
        ...

    def dropped_up_to(self, position: Position) -> None:
        """The backlog up to `position` was skipped or expired: nothing of it is held or awaited any more."""
        ...

    def forget_read(self) -> None:
        """Drop the result of the current read: the cursor is being moved elsewhere."""
        ...

    def reset(self) -> None:
        """The cursor was moved: forget everything that belongs to the old place."""
        ...

    def set_settings(self) -> None:
        """The context's settings were replaced."""
        ...

    def close(self) -> None:
        """No more turns. Idempotent."""
        ...
