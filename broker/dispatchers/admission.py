"""Whether, and when, a consumer may join the consumers of a subscription, which have one type and share keys one way,
and whether a consumer may end the subscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from magnetar.broker.compat import wire_refusals
from magnetar.broker.consumers.consumer import EXCLUSIVE, FAILOVER, TYPE_NAMES
from magnetar.broker.dispatchers.key_shared import policy_of
from magnetar.broker.dispatchers.turns import ROUND_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.held_entries import HeldEntries
    from magnetar.broker.dispatchers.turns import DispatchTurns
    from magnetar.broker.errors import BrokerError

_MANY_HELD = 5000
_COST_OF_A_JOIN_BYTES = ROUND_BYTES
"""Cost of a join that looks through up to 200,000 held messages: one in a round of the event loop."""


class KeySharing(Protocol):
    """How the consumers of a Key_Shared subscription share the keys."""

    @property
    def sticky(self) -> bool: ...

    @property
    def allow_out_of_order(self) -> bool: ...


class Leavable(Protocol):
    """The members of a dispatcher that decide whether a consumer may end the subscription."""

    @property
    def consumers(self) -> Sequence[Consumer]: ...

    def can_unsubscribe(self, consumer: Consumer) -> bool: ...


def refusal_to_join(sub_type: int, sharing: KeySharing | None, consumer: Consumer) -> BrokerError | None:
    """The refusal of a consumer whose type, or whose policy for keys, differs; None for a consumer that fits."""
    if sub_type != consumer.sub_type:
        return wire_refusals.SUBSCRIPTION_TYPE_DIFFERS.error(
            active=TYPE_NAMES[sub_type], joining=TYPE_NAMES[consumer.sub_type]
        )
    if sharing is None:
        return None
    policy = policy_of(consumer)
    if sharing.sticky != policy.sticky:
        return wire_refusals.KEY_SHARED_MODE_DIFFERS.error(active=_mode(sharing.sticky), joining=_mode(policy.sticky))
    if sharing.allow_out_of_order and not policy.allow_out_of_order:
        return wire_refusals.KEY_SHARED_ORDER_NOT_KEPT.error()
    if policy.allow_out_of_order and not sharing.allow_out_of_order:
        return wire_refusals.KEY_SHARED_ORDER_KEPT.error()
    return None


def refusal_to_unsubscribe(dispatcher: Leavable | None, consumer: Consumer, *, force: bool) -> BrokerError | None:
    """The refusal of an UNSUBSCRIBE: unless `force` is set, of any consumer but the only consumer, also of a standby;
    with it, of a consumer that has left.
    """
    if dispatcher is not None and (consumer in dispatcher.consumers if force else dispatcher.can_unsubscribe(consumer)):
        return None
    if force and consumer.sub_type in (EXCLUSIVE, FAILOVER):
        return wire_refusals.CONSUMER_NOT_CONNECTED.error()
    return wire_refusals.UNSUBSCRIBE_REFUSED.error()


async def turn_to_join(held: HeldEntries | None, turns: DispatchTurns) -> None:
    """Wait for a turn where the consumers hold many messages, whose hashes a join of Key_Shared looks through."""
    if held is not None and held.unacked.total > _MANY_HELD:
        await turns.take(_COST_OF_A_JOIN_BYTES)


def _mode(sticky: bool) -> str:
    return "STICKY" if sticky else "AUTO_SPLIT"
