"""Deleting a ledger whose file cannot be removed, or is opened meanwhile."""

from __future__ import annotations

import errno

import pytest

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.ledger_files import LedgerFiles
from magnetar.storage.errors import NoSuchLedgerError
from tests.storage.engine_for_tests import ROOT, ManualClock, World, append, run_until_crash
from tests.storage.records_for_tests import record
from tests.twins.sim_files import SimDisk


def test_a_ledger_deleted_again_while_its_file_is_there_does_not_stop_the_next_start():
    """The note of the first deletion stays: without it a start finds entries of an unknown ledger."""
    world = World()

    async def main() -> None:
        storage = await world.open()
        writer = await storage.ledgers.create()
        await append(writer, [b"entry"])
        await storage.checkpoint()
        real = world.disk.remove

        def remove(path: str) -> None:
            raise OSError(errno.EACCES, "not now (simulated)", path)

        world.disk.remove = remove  # type: ignore[method-assign]
        await storage.ledgers.delete(writer.ledger_id)
        await storage.ledgers.delete(writer.ledger_id)
        await storage.close()
        world.disk.remove = real  # type: ignore[method-assign]
        assert world.disk.exists(Layout(ROOT).ledger(writer.ledger_id))
        again = await world.open()
        assert await again.ledgers.list_ledgers() == []
        assert not world.disk.exists(Layout(ROOT).ledger(writer.ledger_id))
        assert await world.metadata.children("/deleted-ledgers") == []
        await again.close()

    assert run_until_crash(world.disk, main()) is None


def test_a_read_that_meets_the_deletion_finds_no_ledger_rather_than_damage():
    """Write-behind passes over the slabs of a deleted ledger, so its file may lack entries that were confirmed."""
    world = World()

    async def main() -> None:
        storage = await world.open()
        writer = await storage.ledgers.create()
        await append(writer, [b"entry"])
        state = storage.ledgers._states[writer.ledger_id]
        await storage.ledgers.delete(writer.ledger_id)
        with pytest.raises(NoSuchLedgerError):
            await storage.ledgers._reads.read(state, 0, 0, 1 << 20)
        assert storage.ledgers._reads.corrupt_entries == 0
        await storage.close()

    assert run_until_crash(world.disk, main()) is None


def test_no_descriptor_of_a_removed_file_stays_open():
    disk, layout = SimDisk(), Layout(ROOT)
    disk.make_dir(layout.ledgers)
    files = LedgerFiles(disk, layout, b"s" * 16, ManualClock(), max_open=4)
    files.write(7, [record(7, 0, b"body")], FILE_HEADER_BYTES)
    real = disk.remove

    def remove(path: str) -> None:
        assert files.read(7, 1000, FILE_HEADER_BYTES)  # a reader that comes before the name is gone
        real(path)

    disk.remove = remove  # type: ignore[method-assign]
    files.remove(7)
    assert files.open_files == 0
