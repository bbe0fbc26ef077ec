"""When a delayed entry is due: the rule all trackers share (reference delayed-delivery a.8). Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DelayPolicy:
    """Policies of a topic. Times in milliseconds."""

    active: bool = True
    """delayedDeliveryEnabled; off: everything is delivered at once."""
    tick_ms: int = 1000
    """delayedDeliveryTickTimeMillis: how much early delivery may be when it is not strict, and how often due entries
    are looked for.
    """
    strict: bool = False
    """isDelayedDeliveryDeliverAtTimeStrict: never early."""
    max_delay_ms: int = 0
    """delayedDeliveryMaxDelayInMillis: a longer delay is refused at publish; 0 without limit."""


def is_due(deliver_at_ms: int, now_ms: int, policy: DelayPolicy) -> bool:
    """Whether an entry with that time is to be delivered now; one tick of earliness is allowed unless strict."""
    return not policy.active or deliver_at_ms <= now_ms + (0 if policy.strict else policy.tick_ms)
