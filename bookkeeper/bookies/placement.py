"""Chooses the bookies of a ledger: at random by weight, spread over regions and racks. Pure, except for `chance`.

A rack is a path: ``/rack``, or ``/region/rack`` for the rules that know regions. Each place of an ensemble takes the
candidate whose region and rack occur least among the places that share a write set with it, so that with as many racks
as the quorum no write set has two of one rack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.bookkeeper.metadata.bookie_racks import DEFAULT_RACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from magnetar.bookkeeper.bookies.isolation import IsolationGroups

__all__ = ["PlacementRules", "choose_ensemble", "choose_replacement", "equal_weight", "region_of"]

_ATTEMPTS = 20
"""Ensembles tried at random before a write quorum counts as short of racks."""


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """How ensembles are spread. The fields have the names of Apache Pulsar's settings ``bookkeeperClient*``."""

    rack_aware: bool = True
    region_aware: bool = False
    min_racks_per_write_quorum: int = 2
    enforce_min_racks: bool = False
    """Refuse an ensemble if a write quorum would have fewer racks, and choose no bookies of the default rack."""
    isolation: IsolationGroups | None = None
    """The isolation groups of a ledger that names no groups."""

    def racks_required(self, write_quorum: int) -> int:
        """Return how many racks each write quorum must have; 1 where the rules enforce no minimum."""
        knows_racks = self.rack_aware or self.region_aware
        return min(self.min_racks_per_write_quorum, write_quorum) if knows_racks and self.enforce_min_racks else 1


def region_of(rack: str) -> str:
    """Return the first part of the path ``/region/rack``; the empty text for a path without a region."""
    parts = rack.split("/")
    return parts[1] if len(parts) > 2 else ""


def equal_weight(_bookie: str) -> float:
    return 1.0


def choose_ensemble(
    candidates: Iterable[str],
    size: int,
    write_quorum: int,
    rules: PlacementRules,
    rack_of: Callable[[str], str],
    chance: Random,
    weight_of: Callable[[str], float] = equal_weight,
) -> tuple[str, ...] | None:
    """Return `size` different bookies; None when there are too few bookies, or too few racks under enforced rules.

    weight_of: greater than 0; among bookies that spread the ensemble equally well, a bookie of twice the weight has
    twice the chance.
    """
    required = rules.racks_required(write_quorum)
    usable = sorted(b for b in candidates if required < 2 or rack_of(b) != DEFAULT_RACK)
    if len(usable) < size:
        return None
    for _ in range(_ATTEMPTS if required > 1 else 1):
        left = list(usable)
        chosen: list[str | None] = [None] * size
        for index in range(size):
            best = _best(chosen, index, left, write_quorum, rules, rack_of, chance, weight_of)
            left.remove(best)
            chosen[index] = best
        ensemble = tuple(bookie for bookie in chosen if bookie is not None)
        if _racks_suffice(ensemble, write_quorum, required, rack_of):
            return ensemble
    return None


def choose_replacement(
    ensemble: Sequence[str],
    index: int,
    candidates: Iterable[str],
    write_quorum: int,
    rules: PlacementRules,
    rack_of: Callable[[str], str],
    chance: Random,
    weight_of: Callable[[str], float] = equal_weight,
) -> str | None:
    """Return a bookie outside the ensemble for place `index`; None when the rules allow no candidate."""
    left = sorted(set(candidates).difference(ensemble))
    required = rules.racks_required(write_quorum)
    if required > 1:
        left = [
            bookie
            for bookie in left
            if rack_of(bookie) != DEFAULT_RACK
            and _racks_suffice([*ensemble[:index], bookie, *ensemble[index + 1 :]], write_quorum, required, rack_of)
        ]
    return _best([*ensemble], index, left, write_quorum, rules, rack_of, chance, weight_of) if left else None


def _best(
    ensemble: Sequence[str | None],
    index: int,
    candidates: Sequence[str],
    write_quorum: int,
    rules: PlacementRules,
    rack_of: Callable[[str], str],
    chance: Random,
    weight_of: Callable[[str], float] = equal_weight,
) -> str:
    size = len(ensemble)
    near = {(index + step) % size for step in range(1 - write_quorum, write_quorum)} - {index}
    racks = [rack_of(bookie) for place in near if (bookie := ensemble[place]) is not None]
    regions = [region_of(rack) for rack in racks]

    def cost(bookie: str) -> tuple[int, int, float]:
        rack = rack_of(bookie)
        in_region = regions.count(region_of(rack)) if rules.region_aware else 0
        in_rack = racks.count(rack) if rules.rack_aware or rules.region_aware else 0
        return in_region, in_rack, -math.log(1.0 - chance.random()) / weight_of(bookie)

    return min(candidates, key=cost)


def _racks_suffice(ensemble: Sequence[str], write_quorum: int, required: int, rack_of: Callable[[str], str]) -> bool:
    """Whether each write set has at least `required` racks."""
    size = len(ensemble)
    if required < 2:
        return True
    sets = ({rack_of(ensemble[(first + step) % size]) for step in range(write_quorum)} for first in range(size))
    return all(len(racks) >= required for racks in sets)
