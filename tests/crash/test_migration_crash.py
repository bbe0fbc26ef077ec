"""The power fails at every operation of a start that converts a store of format 1: the next start converts it again."""

from __future__ import annotations

import random

import pytest

from magnetar.storage.embedded.metadata.changes import PUT, SEQUENCE
from magnetar.storage.embedded.metadata.node_tree import NodeTree
from magnetar.storage.embedded.store_version import encode_version, store_id_of
from magnetar.storage.errors import StorageFullError
from tests.crash.engine_scenario import Promise, Scenario, check
from tests.storage.engine_for_tests import ROOT, World, run_until_crash
from tests.twins.memory_metadata import MemoryMetadataStore
from tests.twins.sim_files import SimulatedCrash

CLOSED = [("nothing", 0), ("everything", 0), ("some", 1), ("some", 2)]


def old_store() -> tuple[World, Promise]:
    """A store of format 1. A fake reader returns the metadata in place of a reader of SQLite; the database file has no
    real content.
    """
    before, promise = World(given=MemoryMetadataStore()), Promise()
    assert run_until_crash(before.disk, Scenario(before, promise).run()) is None
    assert before.given is not None
    given = before.given
    store_id = store_id_of(given._nodes["/store"])
    assert store_id is not None

    def read(path: str) -> NodeTree:
        assert path == f"{ROOT}/metadata.sqlite"
        tree = NodeTree()
        tree.apply((PUT, node, version, value) for node, (value, version) in given._nodes.items())
        tree.apply((SEQUENCE, name, number, b"") for name, number in given._sequences.items())
        return tree

    world = World(before.disk.copy())
    world.read_format_1 = read
    world.disk.put(f"{ROOT}/VERSION", encode_version(store_id, 1))
    world.disk.put(f"{ROOT}/metadata.sqlite", b"a database")
    return world, promise


def operations() -> int:
    world, _ = old_store()
    begun = world.disk.operations
    run_until_crash(world.disk, world.open())
    return world.disk.operations - begun


OPERATIONS = operations()


@pytest.mark.parametrize("operation", range(OPERATIONS))
def test_a_crash_while_it_is_brought_over(operation: int):
    world, promise = old_store()
    world.disk.crash_at = world.disk.operations + operation
    assert isinstance(run_until_crash(world.disk, world.open()), SimulatedCrash)
    for mode, seed in CLOSED:
        after = world.after_crash(mode, seed)
        assert run_until_crash(after.disk, check(after, promise)) is None
        assert f"{ROOT}/metadata.sqlite.format-1" in after.disk.paths()


def test_two_crashes():
    chance = random.Random(1)
    for _ in range(60):
        world, promise = old_store()
        world.disk.crash_at = world.disk.operations + chance.randrange(OPERATIONS)
        run_until_crash(world.disk, world.open())
        again = world.after_crash("some", chance.randrange(100))
        again.disk.crash_at = chance.randrange(OPERATIONS)
        run_until_crash(again.disk, again.open())
        after = again.after_crash("some", chance.randrange(100))
        assert run_until_crash(after.disk, check(after, promise)) is None


@pytest.mark.parametrize("operation", range(0, OPERATIONS, 2))
def test_a_full_disk_meanwhile(operation: int):
    """The start is refused with the remedy; the old metadata are unchanged."""
    world, promise = old_store()
    world.disk.full_at = world.disk.operations + operation
    try:
        run_until_crash(world.disk, world.open())
    except StorageFullError as error:
        assert "free some and start again" in str(error)  # noqa: PT017 - not every operation writes
    after = world.after_crash("everything")
    assert run_until_crash(after.disk, check(after, promise)) is None
