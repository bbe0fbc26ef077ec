"""The places of an entry in the ensemble, and the numbers of answers that prove an acknowledgement or its absence. Pure
arithmetic on the places 0 .. E-1 of an ensemble.

Entry e goes to the W places ``(e + i) mod E``, i = 0 .. W-1. It is acknowledged once A of these places have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["can_reach_quorum", "covers", "holds", "last_held", "write_set"]


def write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    """Return the places of the entry, in the order in which readers send their requests."""
    return tuple((entry_id + step) % ensemble_size for step in range(write_quorum))


def holds(place: int, entry_id: int, ensemble_size: int, write_quorum: int) -> bool:
    """Whether the entry goes to this place."""
    return (place - entry_id) % ensemble_size < write_quorum


def last_held(place: int, entry_id: int, ensemble_size: int, write_quorum: int) -> int:
    """Return the last entry up to `entry_id` that goes to this place; a negative number when there is no such entry."""
    distance = (place - entry_id) % ensemble_size
    return entry_id if distance < write_quorum else entry_id - (ensemble_size - distance)


def covers(answered: Collection[int], ensemble_size: int, write_quorum: int, ack_quorum: int) -> bool:
    """Whether every set of A places that could acknowledge an entry has at least one of these places (for example, of
    the fenced places): every write set has fewer than A places outside `answered`.
    """
    for first in range(ensemble_size):
        silent = sum((first + step) % ensemble_size not in answered for step in range(write_quorum))
        if silent >= ack_quorum:
            return False
    return True


def can_reach_quorum(alive: Collection[int], ensemble_size: int, write_quorum: int, ack_quorum: int) -> bool:
    """Whether every write set has at least A of these places."""
    return all(
        sum((first + step) % ensemble_size in alive for step in range(write_quorum)) >= ack_quorum
        for first in range(ensemble_size)
    )
