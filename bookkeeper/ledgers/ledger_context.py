"""The services of the client that writers, readers and recoveries of ledgers use, as one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magnetar.bookkeeper.bookies.isolation import allowed_bookies, groups_of_ledger
from magnetar.bookkeeper.bookies.placement import choose_ensemble, choose_replacement, equal_weight, region_of
from magnetar.bookkeeper.metadata.bookie_racks import DEFAULT_RACK

if TYPE_CHECKING:
    from asyncio import Semaphore
    from collections.abc import Callable, Collection, Mapping, Sequence
    from random import Random

    from magnetar.bookkeeper.background import Background
    from magnetar.bookkeeper.bookies.pool import BookiePool
    from magnetar.bookkeeper.metadata.ports import BookieRegistry, LedgerMetadataStore
    from magnetar.bookkeeper.options import ClientOptions, LedgerOptions

__all__ = ["LedgerContext"]


class LedgerContext(NamedTuple):
    store: LedgerMetadataStore
    registry: BookieRegistry
    pool: BookiePool
    options: ClientOptions
    background: Background
    chance: Random
    watch_slots: Semaphore
    """Held while the watch of a ledger is being set."""
    weight_of: Callable[[str], float] = equal_weight
    """The relative chance that the placement chooses a bookie; greater than 0."""

    def new_ensemble(self, wanted: LedgerOptions, custom: Mapping[str, bytes]) -> tuple[str, ...] | None:
        """Return bookies for a new ledger, by the rules of the placement; None when too few bookies fit. Bookies in
        quarantine serve only where the others do not suffice.
        """
        rules, rack_of = self.options.placement, self.registry.rack
        for quarantined in (False, True):
            bookies = self._bookies(custom, wanted.ensemble_size, quarantined=quarantined)
            found = choose_ensemble(
                bookies, wanted.ensemble_size, wanted.write_quorum, rules, rack_of, self.chance, self.weight_of
            )
            if found is not None:
                return found
        return None

    def replacement(
        self,
        ensemble: Sequence[str],
        place: int,
        without: Collection[str],
        write_quorum: int,
        custom: Mapping[str, bytes],
    ) -> str | None:
        """Return a bookie for a place of the ensemble, not in `without`; None when no bookie fits. A bookie in
        quarantine serves only where no other bookie fits.
        """
        rules, rack_of = self.options.placement, self.registry.rack
        for quarantined in (False, True):
            bookies = set(self._bookies(custom, len(ensemble), quarantined=quarantined)).difference(without)
            found = choose_replacement(
                ensemble, place, bookies, write_quorum, rules, rack_of, self.chance, self.weight_of
            )
            if found is not None:
                return found
        return None

    def distances(self) -> Callable[[str], int]:
        """Return a function from a bookie to its distance: 0 in the rack of this process, 1 in another rack of the same
        region, 2 elsewhere; always 0 if the rack of this process is unknown.
        """
        host, rack_of = self.options.local_host, self.registry.rack
        near = next((b for b, address in self.registry.writable.items() if host and address.host == host), None)
        if near is None or rack_of(near) == DEFAULT_RACK:
            return lambda _bookie: 0
        rack = rack_of(near)

        def distance(bookie: str) -> int:
            return 0 if rack_of(bookie) == rack else 1 if region_of(rack_of(bookie)) == region_of(rack) != "" else 2

        return distance

    def _bookies(self, custom: Mapping[str, bytes], size: int, *, quarantined: bool) -> list[str]:
        """Return the writable bookies that a ledger with this custom metadata may use, with or without those in
        quarantine.
        """
        groups = groups_of_ledger(custom, self.options.placement.isolation)
        allowed = allowed_bookies(self.registry.writable, groups, self.registry.groups, size)
        return [b for b in allowed if quarantined or not self.pool.is_quarantined(b)]
