"""A disk that fills while slabs are parked: the entries of the journal have room in the ledger files."""

import contextlib

from magnetar.storage.errors import StorageFullError
from tests.storage.embedded.test_parked_bytes import PARKING
from tests.storage.engine_for_tests import World, append, read_all

CAPACITY_BYTES = 400 << 10


async def filled_disk(world):
    """An engine whose disk took no more entries, its writer and the bodies of the entries that were confirmed."""
    storage = await world.open(PARKING)
    writer = await storage.ledgers.create()
    world.disk.capacity_bytes = CAPACITY_BYTES
    bodies = []
    with contextlib.suppress(StorageFullError):
        while True:
            body = bytes([len(bodies) % 256]) * 1000
            await append(writer, [body])
            bodies.append(body)
    return storage, writer, bodies


async def test_a_start_on_the_full_disk_finds_room_for_parked_slabs():
    world = World()
    _, writer, bodies = await filled_disk(world)
    after = World(world.disk.after_kill())
    after.disk.capacity_bytes = CAPACITY_BYTES
    storage = await after.open(PARKING)
    await storage.ledgers.open_recover(writer.ledger_id)
    assert await read_all(storage.ledgers, writer.ledger_id, len(bodies) - 1) == bodies
    await storage.close()


async def test_parked_slabs_reach_their_ledger_file_on_the_full_disk():
    storage, writer, bodies = await filled_disk(World())
    await storage.checkpoint()
    assert not storage.ledgers._states[writer.ledger_id].unwritten
    assert await read_all(storage.ledgers, writer.ledger_id, len(bodies) - 1) == bodies
    await storage.close()
