"""A dispatcher of a persistent topic as its subscription sees it; each subscription type has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        """The entries that consumers hold; None where the dispatcher serves a single consumer in order."""
        ...

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Connected consumers."""
        ...

    def occupant(self, consumer: Consumer) -> Consumer | None:
        """The consumer that keeps `consumer` out unless its connection turns out to be dead (Exclusive)."""
        ...

    def add_consumer(self, consumer: Consumer) -> None:
        """Admit a consumer; raises ConsumerBusyError or ConsumerAssignError."""
        ...

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; other consumers get the messages that it held. Idempotent."""
        ...

    def remove_all(self) -> None:
        """Remove all consumers; costs less than to remove each of thousands."""
        ...

    def remove_for_seek(self) -> list[Consumer]:
        """Remove and return the consumers that SEEK closes, whose clients subscribe again."""
        ...

    def can_unsubscribe(self, consumer: Consumer) -> bool:
        """Whether `consumer` is the only consumer, and not a standby."""
        ...

    def flow(self, consumer: Consumer) -> None:
        """Note that a consumer can use more permits."""
        ...

    def redeliver_all(self, consumer: Consumer, epoch: int | None) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES without ids."""
        ...

    def redeliver(self, consumer: Consumer, entries: Mapping[int, Sequence[int]]) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES with ids: entries by ledger."""
        ...

    def dropped_up_to(self, position: Position) -> None:
        """Forget the entries up to `position`, which were skipped or expired."""
        ...

    def forget_read(self) -> None:
        """Drop the result of the current read: the cursor is being moved elsewhere."""
        ...

    def reset(self) -> None:
        """Forget all read and held entries after the cursor was moved."""
        ...

    def set_settings(self) -> None:
        """Apply the context's settings after they were replaced."""
        ...

    def close(self) -> None:
        """End dispatch: no further turn runs. Idempotent."""
        ...

    def cut_cycles(self) -> None:
        """Clear the references of the parts to each other, once no read is under way after `close`: no cycle is left to
        the garbage collector. Idempotent.
        """
        ...
