"""Histories of two owners (``two_owners``): a sample here, 10,000 with MAGNETAR_CLUSTER_LONG=1 (``make cluster``)."""

from __future__ import annotations

import os

import pytest

from magnetar.storage.managed.ledger_list import LedgerList
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.model.two_owners import ViolationError, play
from tests.twins.memory_metadata import MemoryMetadataStore

SEEDS = 10_000 if os.environ.get("MAGNETAR_CLUSTER_LONG") == "1" else 60


def play_many(seeds, first=0):
    return sum(play(seed) for seed in range(first, first + seeds))


@pytest.mark.timeout(1800)
def test_histories_hold():
    assert play_many(SEEDS) > 5 * SEEDS


def without_guard(name, patch):
    """Records depend on their own version alone in these calls."""
    guarded = LedgerList.guarded

    async def partly(self, write):
        return await (write(None) if write.func.__name__ == name else guarded(self, write))

    patch.setattr(LedgerList, "guarded", partly)


def write_without_guard(patch):
    without_guard("put", patch)


def delete_without_guard(patch):
    without_guard("delete", patch)


def open_without_a_change(patch):
    """A new owner changes the list only with its first ledger."""
    patch.setattr(PulsarLayout, "saves_at_open", False)


def recognise_every_next_version(patch):
    """After a save without an answer the owner takes the next version for its own."""
    look = LedgerList._look

    async def look_at_versions(self):
        found = await self._metadata.get(self.path)
        if found is not None and found[1] == self._version + 1 and self._unanswered:
            self._stored(*found)
        return await look(self)

    patch.setattr(LedgerList, "_look", look_at_versions)


def ignore_versions_of_records(patch):
    """A late write of an earlier state replaces a later state."""
    put = MemoryMetadataStore.put

    async def put_any(self, path, value, expected=None, guard=None):
        return await put(self, path, value, expected if guard is None else None, guard)

    patch.setattr(MemoryMetadataStore, "put", put_any)


PLANTED = [
    write_without_guard,
    delete_without_guard,
    open_without_a_change,
    recognise_every_next_version,
    ignore_versions_of_records,
]
FIRST_SEEDS = {ignore_versions_of_records: 1470}
"""Where the first seeds do not find a defect, the seed from which the search begins."""


@pytest.mark.parametrize("defect", PLANTED, ids=lambda defect: defect.__name__)
def test_a_planted_defect_is_found(defect):
    with pytest.MonkeyPatch.context() as patch:
        defect(patch)
        with pytest.raises(ViolationError):
            play_many(1000, FIRST_SEEDS.get(defect, 0))
