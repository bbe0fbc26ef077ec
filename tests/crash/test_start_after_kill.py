"""A process is killed between the write and the sync of its last change; later a power loss follows.

The system still shows these bytes to the next start, but they are not on stable storage: the start must sync them
before it makes anything durable that depends on them.
"""

from __future__ import annotations

import pytest

from tests.storage.engine_for_tests import World, append, run_until_crash, settle


def killed_in_a_change() -> World:
    """A store with an acknowledged entry whose last change of the metadata is written and not synced."""

    async def fill() -> None:
        storage = await world.open()
        await append(await storage.ledgers.create(), [b"entry"])
        await world.metadata.put("/key", b"1")
        await settle()
        world.disk.crash_at = world.disk.operations
        await world.metadata.put("/key", b"2")

    world = World()
    run_until_crash(world.disk, fill())
    assert world.disk.crashed
    assert world.disk.log[-1] == "write"
    return world


@pytest.mark.parametrize("files", ["nothing", "some", "everything"])
def test_a_power_loss_behind_the_start_leaves_a_store_that_opens(files: str):
    disk = killed_in_a_change().disk.after_kill()
    assert run_until_crash(disk, World(disk).open()) is None
    found: list[bytes] = []

    async def read() -> None:
        world = World(disk.after_crash(files, 5))
        storage = await world.open()
        node = await world.metadata.get("/key")
        assert node is not None
        found.append(node[0])
        assert not storage.recovery.damaged_files

    assert run_until_crash(disk, read()) is None
    assert found == [b"2"]


def test_a_power_loss_in_the_start_leaves_a_store_that_opens():
    before = killed_in_a_change().disk
    operation = 0
    while True:
        disk = before.after_kill()
        disk.crash_at = operation
        run_until_crash(disk, World(disk).open())
        if not disk.crashed:
            break
        for seed in range(3):
            after = disk.after_crash("some", seed)
            assert run_until_crash(after, World(after).open()) is None
        operation += 1
    assert operation > 3
