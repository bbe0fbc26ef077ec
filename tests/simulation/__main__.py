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
    started_s = time.monotonic()
    chunks = [list(range(a.first + k, a.first + a.seeds, a.jobs * 8)) for k in range(a.jobs * 8)]
    failures = 0
    with ProcessPoolExecutor(a.jobs) as pool:
        for failed in pool.map(play_many, chunks):
            for seed, failure in failed:
                failures += 1
                print(f"seed {seed} FAILED; replay: python -m tests.simulation {seed}\n{failure}", flush=True)
    print(f"{a.seeds} seeds from {a.first} on, {failures} failed, {time.monotonic() - started_s:.0f} s")
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
