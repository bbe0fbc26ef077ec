"""Assigns the entries of a read to consumers of a Key_Shared subscription. A pure decision.

An entry goes to the consumer that owns its hash, unless

    no consumer owns the hash, or its owner has no permits left (counted in entries here),
    the hash is draining: its former owner still holds entries of it,
    an earlier entry of the hash waits in the replay queue or was refused before in this read.

So entries of one hash stay in order through all joins, leaves and redeliveries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Blocks(Protocol):
    """The queries of the plan about the order of keys."""

    def drains(self, key_hash: int, consumer: object) -> bool:
        """Whether the hash must wait for its former owner."""
        ...

    def waits_behind(self, key_hash: int, position: tuple[int, int]) -> bool:
        """Whether an earlier entry of the hash is in the replay queue."""
        ...


C = TypeVar("C")


@dataclass(slots=True)
class KeyPlan(Generic[C]):
    """``given``: (consumer, index of the entry) in order; ``refused``: indices; ``left``: entries that each consumer
    could still take.
    """

    given: list[tuple[C, int]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    left: dict[C, int] = field(default_factory=dict)


def plan_by_key(
    entries: Iterable[tuple[tuple[int, int], int]],
    select: Callable[[int], C | None],
    permits: Callable[[C], int],
    blocks: Blocks | None,
) -> KeyPlan[C]:
    """Plan for ``entries`` = (position, hash) in order of position. ``blocks``: None when order does not matter."""
    plan: KeyPlan[C] = KeyPlan()
    left = plan.left
    refused_hashes: set[int] = set()
    for index, (position, key_hash) in enumerate(entries):
        consumer = None if key_hash in refused_hashes else select(key_hash)
        if consumer is not None:
            available = left.get(consumer)
            if available is None:
                available = left[consumer] = permits(consumer)
            held = blocks is not None and (blocks.drains(key_hash, consumer) or blocks.waits_behind(key_hash, position))
            if available > 0 and not held:
                left[consumer] = available - 1
                plan.given.append((consumer, index))
                continue
        plan.refused.append(index)
        if blocks is not None:
            refused_hashes.add(key_hash)
    return plan
