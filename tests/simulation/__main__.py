"""``python -m tests.simulation [SEED ...] [--first N --seeds N --jobs N]``: play histories, name the seeds that fail."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.plan import Plan
from tests.simulation.play import play, play_many
from tests.simulation.world import World

HASH_SEED = "0"
SEEDS_A_TASK = 50
REPORT_EVERY_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", nargs="*", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbose", action="store_true", help="the whole history of each seed")
    a = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:  # sets of texts are walked in the same order then
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": HASH_SEED},
        )
    sys.unraisablehook = lambda _: None  # coroutines of processes that crashed
    if a.seed:
        return replay(a.seed, verbose=a.verbose)
    seeds = range(a.first, a.first + a.seeds)
    chunks = [list(seeds[at : at + SEEDS_A_TASK]) for at in range(0, len(seeds), SEEDS_A_TASK)]
    started_s = reported_s = time.monotonic()
    played = failures = 0
    with ProcessPoolExecutor(a.jobs) as pool:
        for chunk, failed in zip(chunks, pool.map(play_many, chunks), strict=True):
            played += len(chunk)
            for seed, failure in failed:
                failures += 1
                print(f"seed {seed} FAILED; replay: python -m tests.simulation {seed}\n{failure}", flush=True)
            if time.monotonic() - reported_s >= REPORT_EVERY_S or played == a.seeds:
                reported_s = time.monotonic()
                print(
                    f"{played} of {a.seeds} seeds from {a.first} on, {failures} failed, {reported_s - started_s:.0f} s",
                    flush=True,
                )
    return 1 if failures else 0


def replay(seeds: list[int], *, verbose: bool) -> int:
    failures = 0
    for seed in seeds:
        digest, failure, counts = play(seed)
        failures += bool(failure)
        print(f"seed {seed}: {'FAILED' if failure else 'held'}, digest {digest}, {counts}")
        if failure:
            print(failure)
        if verbose:
            world = World(Plan.of(seed))
            with contextlib.suppress(Exception):
                world.run()
            print(world.plan, *world.history.lines, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
