"""The bookies of an entry, and the numbers of answers that are proofs. Pure arithmetic on places 0 .. E-1 of an
ensemble.

Entry e is on the W places ``(e + i) mod E``. It is acknowledged once A of them have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["can_reach_quorum", "covers", "holds", "last_held", "write_set"]


def write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    """The places of the entry, in the order in which readers ask them."""
    return tuple((entry_id + step) % ensemble_size for step in range(write_quorum))


def holds(place: int, entry_id: int, ensemble_size: int, write_quorum: int) -> bool:
    """Whether the entry goes to this place."""
    return (place - entry_id) % ensemble_size < write_quorum


def last_held(place: int, entry_id: int, ensemble_size: int, write_quorum: int) -> int:
    """The last entry up to `entry_id` that goes to this place; negative when there is none."""
    distance = (place - entry_id) % ensemble_size
    return entry_id if distance < write_quorum else entry_id - (ensemble_size - distance)


def covers(answered: Collection[int], ensemble_size: int, write_quorum: int, ack_quorum: int) -> bool:
    """Whether these places (for example the fenced places) meet every set of A places that could acknowledge an entry:
    in no write set do A or more places lack an answer.
    """
    for first in range(ensemble_size):
        silent = sum((first + step) % ensemble_size not in answered for step in range(write_quorum))
        if silent >= ack_quorum:
            return False
    return True


def can_reach_quorum(alive: Collection[int], ensemble_size: int, write_quorum: int, ack_quorum: int) -> bool:
    """Whether each entry finds A living places in its write set."""
    return all(
        sum((first + step) % ensemble_size in alive for step in range(write_quorum)) >= ack_quorum
        for first in range(ensemble_size)
    )
