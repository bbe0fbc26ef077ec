"""Whether a consumer may join the consumers of a subscription: they have one type and one way to share keys."""

from typing import Protocol

from magnetar.broker.compat import wire_refusals
from magnetar.broker.consumers.consumer import TYPE_NAMES, Consumer
from magnetar.broker.dispatchers.key_shared import policy_of
from magnetar.broker.errors import BrokerError


class KeySharing(Protocol):
    """How the consumers of a Key_Shared subscription share the keys."""

    @property
    def sticky(self) -> bool: ...

    @property
    def allow_out_of_order(self) -> bool: ...


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


def _mode(sticky: bool) -> str:
    return "STICKY" if sticky else "AUTO_SPLIT"
