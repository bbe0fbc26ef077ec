"""Play the histories of seeds."""

from __future__ import annotations

import gc
import hashlib
import traceback
from typing import TYPE_CHECKING

import structlog.testing

from tests.simulation.plan import Plan
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable


def play(seed: int) -> tuple[str, str, dict[str, int]]:
    """The digest of the history, and why it failed ("" when it held)."""
    world = World(Plan.of(seed))
    failure = ""
    try:
        world.run()
    except Exception:
        failure = traceback.format_exc()
    digest = hashlib.sha256("\n".join(world.history.lines).encode()).hexdigest()[:16]
    counts, lines = world.history.counts, world.history.lines
    if failure:
        failure = "\n".join([*lines[-25:], failure])
    del world
    if failure:  # tasks of the history end here, and not with errors in the log of the next
        with structlog.testing.capture_logs():
            gc.collect()
    return digest, failure, counts


COLLECT_EVERY = 25
"""Histories. A full collection costs as much as half a history."""


def play_many(seeds: Iterable[int]) -> list[tuple[int, str]]:
    failed = []
    gc.collect()
    gc.freeze()  # modules and tables are not walked by each collection
    for number, seed in enumerate(seeds):
        _, failure, _ = play(seed)
        if failure:
            failed.append((seed, failure))
        if number % COLLECT_EVERY == 0:
            gc.collect()
    return failed
