"""Which bookies a ledger gets: at random, spread over racks. Pure but for the chance given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

__all__ = ["choose_ensemble", "choose_replacement"]


def choose_ensemble(
    candidates: Iterable[str], size: int, write_quorum: int, rack_of: Callable[[str], str], chance: Random
) -> tuple[str, ...] | None:
    """`size` different bookies, None when there are too few. Each place takes the candidate whose rack occurs least
    among the places that share a write set with it: with as many racks as the quorum no write set has two of one rack.
    """
    left = sorted(candidates)
    if len(left) < size:
        return None
    chosen: list[str | None] = [None] * size
    for index in range(size):
        best = _best(chosen, index, left, write_quorum, rack_of, chance)
        left.remove(best)
        chosen[index] = best
    return tuple(bookie for bookie in chosen if bookie is not None)


def choose_replacement(
    ensemble: Sequence[str],
    index: int,
    candidates: Iterable[str],
    write_quorum: int,
    rack_of: Callable[[str], str],
    chance: Random,
) -> str | None:
    """A bookie for place `index` that is not in the ensemble yet; None when there is none."""
    left = sorted(set(candidates).difference(ensemble))
    return _best([*ensemble], index, left, write_quorum, rack_of, chance) if left else None


def _best(
    ensemble: Sequence[str | None],
    index: int,
    candidates: Sequence[str],
    write_quorum: int,
    rack_of: Callable[[str], str],
    chance: Random,
) -> str:
    size = len(ensemble)
    near = {(index + step) % size for step in range(1 - write_quorum, write_quorum)} - {index}
    racks = [rack_of(bookie) for place in near if (bookie := ensemble[place]) is not None]
    return min(candidates, key=lambda bookie: (racks.count(rack_of(bookie)), chance.random()))
