"""Chooses the active consumer of a Failover subscription. A pure choice, made at every join and leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.dispatchers.hash_ring import ring_choice

if TYPE_CHECKING:
    from collections.abc import Sequence


def active_order(consumers: Sequence[tuple[int, str]]) -> list[int]:
    """Return the indices of the ``(priority level, name)`` pairs, sorted by priority level, name, order of arrival."""
    return sorted(range(len(consumers)), key=lambda i: consumers[i])


def choose_active(
    consumers: Sequence[tuple[int, str]], partition: int, topic_name: str, *, consistent_hashing: bool = False
) -> int:
    """Return the index of the active consumer among ``(priority level, name)``; with at least one pair.

    The choice is among the consumers with the best (lowest) priority level. For a partition the partition number
    decides, so that a partitioned topic spreads over its consumers. For other topics, and with
    activeConsumerFailoverConsistentHashing, the hash ring of the consumers' names decides.
    """
    order = active_order(consumers)
    best = consumers[order[0]][0]
    candidates = [i for i in order if consumers[i][0] == best]
    if partition >= 0 and not consistent_hashing:
        return candidates[partition % len(candidates)]
    return candidates[ring_choice([consumers[i][1] for i in candidates], topic_name)]
