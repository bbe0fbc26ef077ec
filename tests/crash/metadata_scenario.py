"""A run of all operations of the metadata log, with a record of its promises: changes, groups, logs that fill up,
snapshots, a clean end.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from magnetar.storage.embedded.lanes import InlineThreads
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.metadata.log_writer import LogEnvironment
from magnetar.storage.embedded.metadata.logged_metadata import LoggedMetadataStore
from magnetar.storage.embedded.metadata.opening import open_metadata
from magnetar.storage.errors import StorageFullError
from tests.storage.engine_for_tests import ROOT, ManualClock, ManualScheduler, settle
from tests.twins.sim_files import SimDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.embedded.metadata.node_tree import NodeTree

LOG_BYTES = 48 << 10
FOLDER = f"{ROOT}/metadata"


class MetadataWorld:
    """A simulated disk with nothing but metadata."""

    def __init__(self, disk: SimDisk | None = None, threads: Callable[[], Threads] = InlineThreads) -> None:
        self.disk = disk or SimDisk()
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.entropy = random.Random(7).randbytes
        self.threads = threads

    def open(self) -> LoggedMetadataStore:
        self.disk.make_dir(ROOT)
        world = LogEnvironment(self.disk, Layout(ROOT), self.clock, self.entropy, LOG_BYTES)
        return LoggedMetadataStore(world, open_metadata(world, _no_database), self.threads(), self.scheduler)

    def after_crash(self, mode: str = "nothing", seed: int = 0) -> MetadataWorld:
        return MetadataWorld(self.disk.after_crash(mode, seed), self.threads)

    def files(self) -> list[str]:
        return [path for path in self.disk.paths() if path.startswith(FOLDER + "/")]


def _no_database(path: str) -> NodeTree:
    raise AssertionError(path)


class Told:
    """The states of the store after answered operations and after operations under way."""

    def __init__(self) -> None:
        self.states: list[dict[str, bytes]] = [{}]
        """The nodes after each group of changes, in order."""
        self.durable = 0
        """Index of the last state that was answered."""
        self.given: dict[str, int] = {}
        self.asked: dict[str, int] = {}

    @property
    def allowed(self) -> list[dict[str, bytes]]:
        """The states that a start may find: the last answered state and every later state."""
        return self.states[self.durable :]


class MetadataRun:
    """``rounds`` groups of changes of a few nodes."""

    def __init__(self, world: MetadataWorld, told: Told, seed: int = 1, rounds: int = 26) -> None:
        self.world, self.told, self.rounds = world, told, rounds
        self.chance = random.Random(seed)
        self.store: LoggedMetadataStore | None = None
        self.full = 0
        self.atomic = True
        """Whether the requests of one turn of the loop form one group. A thread takes the requests that have arrived,
        which may be a part of them.
        """

    async def run(self) -> None:
        self.store = self.world.open()
        for number in range(self.rounds):
            await self.group(number)
            if number % 9 == 4:
                self.world.scheduler.advance(1.5)
                await settle()
        await self.store.close()

    async def group(self, number: int) -> None:
        """Send some puts and deletes at once; with ``atomic`` the store makes all of them durable or none."""
        assert self.store is not None
        state = dict(self.told.states[-1])
        changes = []
        for _ in range(self.chance.randint(1, 3)):
            path = f"/n/{self.chance.randint(0, 7)}"
            if path in state and self.chance.random() < 0.3:
                del state[path]
                changes.append(self.store.delete(path))
            else:
                size = 9000 if number % 11 == 7 else self.chance.randint(0, 60)
                state[path] = b"%d." % number + bytes(size)
                changes.append(self.store.put(path, state[path]))
            if not self.atomic:
                self.told.states.append(dict(state))
        sequence = "/s/a"
        self.told.asked[sequence] = self.told.asked.get(sequence, 0) + 3
        changes.append(self.store.next_sequence(sequence, 3))
        self.told.states.append(state)
        try:
            *_, first = await asyncio.gather(*changes)
        except StorageFullError:
            self.full += 1
            self.told.states.pop()
            return
        assert first >= self.told.given.get(sequence, 0), "a number was given twice"
        self.told.given[sequence] = first + 3
        self.told.durable = len(self.told.states) - 1


async def state_of(store: LoggedMetadataStore) -> dict[str, bytes]:
    """Path -> value of every node below ``/n``."""
    found = {}
    for name in await store.children("/n"):
        node = await store.get(f"/n/{name}")
        assert node is not None
        found[f"/n/{name}"] = node[0]
    return found


async def check(world: MetadataWorld, told: Told) -> None:
    """Open the store, compare it with the answered operations, change it, and open it again."""
    store = world.open()
    assert not store.found_damage
    assert await state_of(store) in told.allowed
    assert await store.next_sequence("/s/a") >= told.given.get("/s/a", 0)
    await store.put("/n/new", b"life")
    expected = await state_of(store)
    await store.close()
    again = world.open()
    assert not again.found_damage
    assert await state_of(again) == expected
    await again.close()
