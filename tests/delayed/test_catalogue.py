"""The stored record, and references to snapshots for the sweep of orphaned ledgers."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from magnetar.delayed.catalogue import (
    Catalogue,
    CatalogueRecord,
    SnapshotReferences,
    catalogue_path,
    decode,
    encode,
)
from magnetar.delayed.errors import CatalogueConflictError
from magnetar.delayed.snapshot_store import SnapshotStore
from magnetar.storage.errors import BadVersionError, StorageUnavailableError
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


class LateRecords(MemoryMetadataStore):
    """A store whose writes get no answer, and are carried out when the test calls ``arrive``."""

    def __init__(self):
        super().__init__()
        self.late = []
        self.silent = False

    async def put(self, path, value, expected_version=None, guard=None):
        if self.silent:
            self.late.append((path, value, expected_version))
            raise StorageUnavailableError("no answer")
        return await super().put(path, value, expected_version, guard)

    async def arrive(self):
        for write in self.late:
            with contextlib.suppress(BadVersionError):
                await super().put(*write)


async def test_a_write_without_an_answer_that_arrives_late_is_recognised():
    records = LateRecords()
    catalogue = Catalogue(SimpleNamespace(records=records), NAME)
    await catalogue.save(CatalogueRecord(doomed=(1,)))
    records.silent = True
    for doomed in (2, 3):
        with pytest.raises(StorageUnavailableError):
            await catalogue.save(CatalogueRecord(doomed=(doomed,)))
    records.silent = False
    await records.arrive()
    await catalogue.save(CatalogueRecord(doomed=(4,)))
    await catalogue.save(CatalogueRecord(doomed=(5,)))
    assert decode((await records.get(catalogue_path(NAME)))[0]).doomed == (5,)


async def test_a_write_of_another_owner_behind_a_write_without_an_answer_is_a_conflict():
    records = LateRecords()
    catalogue, other = (Catalogue(SimpleNamespace(records=records), NAME) for _ in range(2))
    await catalogue.save(CatalogueRecord(doomed=(1,)))
    records.silent = True
    with pytest.raises(StorageUnavailableError):
        await catalogue.save(CatalogueRecord(doomed=(2,)))
    records.silent = False
    await other.load()
    await other.save(CatalogueRecord(doomed=(3,)))
    for _ in range(2):
        with pytest.raises(CatalogueConflictError):
            await catalogue.save(CatalogueRecord(doomed=(4,)))
    assert decode((await records.get(catalogue_path(NAME)))[0]).doomed == (3,)


async def test_a_write_whose_caller_was_cancelled_is_recognised():
    records = MemoryMetadataStore()
    catalogue = Catalogue(SimpleNamespace(records=records), NAME)
    await catalogue.save(CatalogueRecord(doomed=(1,)))
    put = records.put

    async def slow(*arguments):
        await put(*arguments)
        await asyncio.Event().wait()

    records.put = slow
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(catalogue.save(CatalogueRecord(doomed=(2,))), 0.01)
    records.put = put
    await catalogue.save(CatalogueRecord(doomed=(3,)))
    assert decode((await records.get(catalogue_path(NAME)))[0]).doomed == (3,)
