"""Further records of a log: the former owner changes none of them."""

from __future__ import annotations

import pytest

from magnetar.storage.errors import ManagedLedgerFencedError
from magnetar.storage.interfaces import MUST_NOT_EXIST
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.storage.managed_for_tests import Ground, append


async def test_the_owner_writes_reads_and_deletes_a_record_also_behind_changes_of_its_list():
    ledger = await Ground(layout=PulsarLayout()).open()
    assert await ledger.records.get("/r") is None
    version = await ledger.records.put("/r", b"1", MUST_NOT_EXIST)
    await append(ledger, [b"x"])
    await ledger.set_property("a", "b")
    version = await ledger.records.put("/r", b"2", version)
    assert await ledger.records.get("/r") == (b"2", version)
    await ledger.records.delete("/r")
    assert await ledger.records.get("/r") is None


async def test_a_former_owner_changes_no_record():
    ground = Ground(layout=PulsarLayout())
    former = await ground.open()
    version = await former.records.put("/r", b"1", MUST_NOT_EXIST)
    await Ground(ground.ledgers, ground.metadata, PulsarLayout()).open()
    for change in (former.records.put("/r", b"2", version), former.records.delete("/r")):
        with pytest.raises(ManagedLedgerFencedError):
            await change
    assert await former.records.get("/r") == (b"1", version)
