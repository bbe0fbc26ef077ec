"""The CLOSE_CONSUMERs of a subscription that closes all its consumers: a few at once, tens of thousands in turns.

The consumers leave their connections at once, so that no later command has an effect. A consumer counts for the limits
of its host until it gets its notice, behind which its client subscribes again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from magnetar.storage.empty_queue import NO_ITEMS

if TYPE_CHECKING:
    from collections.abc import Collection

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.consumers.host_counts import HostCounts
    from magnetar.broker.dispatchers.turns import DispatchTurns
    from magnetar.broker.meters.rates import RateMeter

NOTICES_AT_ONCE = 128
_NOTICES_IN_ONE_TURN = 512
_NOTICE_COST_BYTES = 512
"""The cost of a notice: two turns of full length fill no round of the event loop, three do."""


class SharedTurns(Protocol):
    """The part of a dispatcher's context that notices need; the topic may replace the turns at any time."""

    @property
    def turns(self) -> DispatchTurns: ...


class ClosedConsumers:
    """Consumers that their subscription has closed and that wait for their CLOSE_CONSUMER."""

    def __init__(self, context: SharedTurns) -> None:
        self._context = context
        self._waiting: deque[tuple[Consumer, HostCounts | None]] = NO_ITEMS
        self._told: asyncio.Event | None = None

    def add(self, consumers: Collection[Consumer], gone: RateMeter, hosts: HostCounts | None) -> None:
        """Close consumers that their dispatcher has removed, or is about to remove. Add their messages to `gone`.

        hosts: None for a topic without limits of hosts.
        """
        for consumer in consumers:
            consumer.leave_connection()
        sent = [consumer.out for consumer in consumers]
        gone.add(sum(meter.total_messages for meter in sent), sum(meter.total_bytes for meter in sent))
        behind = bool(self._waiting)
        if self._waiting is NO_ITEMS:
            self._waiting = deque()
        self._waiting.extend((consumer, hosts) for consumer in consumers)
        if not behind:
            try:
                self._tell(NOTICES_AT_ONCE)
            finally:
                if self._waiting:
                    self._context.turns.wait(self._turn)

    async def told(self) -> None:
        """Return when all closed consumers have their notice."""
        while self._waiting:
            self._told = self._told or asyncio.Event()
            await self._told.wait()

    def _turn(self) -> int:
        try:
            return self._tell(_NOTICES_IN_ONE_TURN) * _NOTICE_COST_BYTES
        finally:  # also behind a bug in one notice, or the subscription would wait for ever for the others
            if self._waiting:
                self._context.turns.wait(self._turn)
            elif self._told is not None:
                self._told.set()
                self._told = None

    def _tell(self, most: int) -> int:
        told = min(most, len(self._waiting))
        for _ in range(told):
            consumer, hosts = self._waiting.popleft()
            if hosts is not None:
                hosts.left(consumer)
            if consumer.consumer_id not in consumer.outbox.consumers:  # else the client has used the id again
                consumer.tell_closed()
        self._waiting = self._waiting or NO_ITEMS
        return told
