"""Unacknowledged messages of all Shared and Key_Shared subscriptions of a broker (maxUnackedMessagesPerBroker).

When the broker reaches the limit, it stops every subscription that holds more than its share, and later each
subscription that exceeds its share while the broker is blocked. A stopped subscription goes on when its messages fall
to half of its share; all stopped subscriptions go on when the broker's messages fall to half of the limit. The rules
are those of Apache Pulsar 4.2, which checks the limit every 30 s; here the limit takes effect at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from magnetar.broker.consumers.permits import UnackedLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.settings import Settings

log = structlog.get_logger(__name__)


class UnackedTotal:
    """The limit of one broker. `share` is the part of it that a subscription may hold while the broker is blocked."""

    def __init__(self, limit: int, share: float) -> None:
        self.limit = limit
        self.per_subscription = int(limit * share)
        self.total = 0
        self.blocked = False
        self._holders: dict[SharedUnackedLimit, None] = {}
        """Subscriptions with unacknowledged messages."""

    @classmethod
    def of(cls, settings: Settings) -> UnackedTotal | None:
        """Return the limit that the settings give; None when they set no limit."""
        limit = settings.max_unacked_messages_per_broker
        share = settings.max_unacked_messages_per_subscription_on_broker_blocked
        return cls(limit, share) if limit > 0 else None

    def book(self, limit: int, wake: Callable[[], None]) -> SharedUnackedLimit:
        """The books of one subscription; `wake` is called when the broker's limit no longer stops it."""
        return SharedUnackedLimit(limit, self, wake)

    def added(self, book: SharedUnackedLimit, messages: int) -> None:
        """Note that a subscription holds `messages` more messages."""
        self.total += messages
        if book.total:
            self._holders[book] = None
        if not self.blocked and self.total >= self.limit:
            self.blocked = True
            log.warning("broker.unacked_blocked", messages=self.total, limit=self.limit)
            for holder in self._holders:
                self._hold_if_large(holder)
        elif self.blocked:
            self._hold_if_large(book)

    def _hold_if_large(self, book: SharedUnackedLimit) -> None:
        if book.total > self.per_subscription:
            book.hold()

    def removed(self, book: SharedUnackedLimit, messages: int) -> None:
        """Note that a subscription holds `messages` fewer messages."""
        self.total -= messages
        if not book.total:
            self._holders.pop(book, None)
        if self.blocked and self.total <= self.limit // 2:
            self.blocked = False
            log.info("broker.unacked_unblocked", messages=self.total, limit=self.limit)
            for holder in [book, *self._holders]:
                holder.let_go()
        elif book.total <= self.per_subscription // 2:
            book.let_go()


class SharedUnackedLimit(UnackedLimit):
    """The limit of a subscription whose messages count for the broker's limit too; either limit sets `blocked`."""

    __slots__ = ("_held", "_pool", "_wake")

    def __init__(self, limit: int, pool: UnackedTotal, wake: Callable[[], None]) -> None:
        super().__init__(limit)
        self._pool = pool
        self._wake = wake
        self._held = False

    def add(self, messages: int) -> None:
        super().add(messages)
        self._pool.added(self, messages)

    def remove(self, messages: int) -> bool:
        before = self.total
        released = super().remove(messages)
        self._pool.removed(self, before - self.total)
        return released

    def _check_release(self) -> bool:
        return not self._held and super()._check_release()

    def hold(self) -> None:
        """Stop the subscription, because the broker is over its limit and the subscription over its share."""
        self._held = self.blocked = True

    def let_go(self) -> None:
        """End the stop by the broker's limit; the subscription's own limit may still block it."""
        if self._held:
            self._held = False
            self.blocked = 0 < self.limit <= self.total
            if not self.blocked:
                self._wake()
