"""References to snapshots, for the sweep of orphaned ledgers."""

from __future__ import annotations

import pytest

from magnetar.delayed.catalogue import CatalogueRecord, SnapshotReferences, catalogue_path, encode
from magnetar.delayed.snapshot_store import SnapshotStore
from magnetar.storage.managed.orphaned_ledgers import Verdict
from tests.delayed.world import NAME
from tests.twins.memory_ledgers import MemoryLedgerStore
from tests.twins.memory_metadata import MemoryMetadataStore


async def made():
    """(references, metadata, properties of a snapshot's ledger as the index makes it)."""
    ledgers, metadata = MemoryLedgerStore(), MemoryMetadataStore()
    writer = await SnapshotStore(ledgers, NAME).create()
    return SnapshotReferences(metadata), metadata, await ledgers.properties(writer.ledger_id)


async def test_without_a_catalogue_it_is_ownerless():
    references, _, properties = await made()
    assert await references.verdict(7, properties) is Verdict.OWNERLESS


@pytest.mark.parametrize(("ledger_id", "verdict"), [(7, Verdict.NAMED), (8, Verdict.FREE)])
async def test_doomed_ledgers_are_named_their_index_deletes_them(ledger_id, verdict):
    references, metadata, properties = await made()
    await metadata.put(catalogue_path(NAME), encode(CatalogueRecord(doomed=(7,))))
    assert await references.verdict(ledger_id, properties) is verdict


async def test_a_damaged_catalogue_protects_everything():
    references, metadata, properties = await made()
    await metadata.put(catalogue_path(NAME), encode(CatalogueRecord()) + b"x")
    assert await references.verdict(7, properties) is Verdict.UNKNOWN


async def test_ledgers_of_others_are_not_its_business():
    references, _, _ = await made()
    assert await references.verdict(7, {"component": "managed-ledger"}) is None
    assert await references.verdict(7, {"component": "delayed-index-bucket"}) is Verdict.UNKNOWN
