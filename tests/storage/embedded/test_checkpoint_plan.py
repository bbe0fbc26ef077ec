"""How many files of a checkpoint are synced at a time."""

from __future__ import annotations

import dataclasses

import pytest

from magnetar.storage.embedded.engine import open_embedded
from magnetar.storage.embedded.environment import EngineEnvironment
from magnetar.storage.embedded.lanes import RealThreads
from tests.storage.engine_for_tests import append


class NotedThreads(RealThreads):
    """Notes the items and workers of each call of ``together``."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def together(self, job, items, workers):
        self.calls.append((len(items), workers))
        super().together(job, items, workers)


@pytest.mark.parametrize(("ledgers", "workers"), [(100, 8), (10, 1)])
async def test_a_stop_syncs_many_files_several_at_a_time(tmp_path, ledgers, workers):
    """A stop of 70,000 loaded topics reached its limit of a minute in the syncs of their ledger files, 2 ms each."""
    threads = NotedThreads()
    environment = dataclasses.replace(EngineEnvironment.real(), threads=threads)
    storage = await open_embedded(str(tmp_path), environment=environment)
    await storage.checkpoint()
    for _ in range(ledgers):
        writer = await storage.ledgers.create({})
        await append(writer, [b"entry"])
    await storage.close()
    assert threads.calls[-1] == (ledgers, workers)
    assert all(used == 1 for _, used in threads.calls[:-1])
