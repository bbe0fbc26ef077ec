"""A stage of `make test`: pytest, and once more, alone, for the few tests that failed beside others.

    python -m tests.stage NAME [ARGUMENTS OF PYTEST]

Tests against processes and sockets share two processors with other work, and a missed deadline there has no meaning for
the broker. Up to `MOST` failed tests run again, one after the other in one process, with the random seed of the first
run, so that a failure that does not depend on time repeats itself (hypothesis keeps its failing examples, too). A test
that fails twice fails the stage, so do more than `MOST` failures and every other error of pytest. The stage names the
repeated tests: each is a defect of the test or of the broker to look at.

The last line of a stage has its time and its processor time, with those of its processes: on two processors the sum of
the latter bounds how quick `make test` can be.
"""

from __future__ import annotations

import json
import pathlib
import random
import resource
import subprocess
import sys
import time

MOST = 4
TESTS_FAILED = 1  # pytest's exit code; the others are interruptions, internal errors, usage, no tests


def failed_tests(cache: pathlib.Path) -> list[str]:
    """The node ids of failed tests that the last run wrote to its cache folder."""
    try:
        return sorted(json.loads((cache / "v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


def may_repeat(code: int, failed: list[str]) -> bool:
    """Whether a run that ended with `code` is repeated for the `failed` tests."""
    return code == TESTS_FAILED and 0 < len(failed) <= MOST


def run(name: str, arguments: list[str]) -> int:
    """Run the stage `name` and return its exit code: 0 when every test passed in the first or in the second run."""
    cache = pathlib.Path("build") / "stages" / name
    (cache / "v/cache/lastfailed").unlink(missing_ok=True)
    common = ["-o", f"cache_dir={cache}", f"--randomly-seed={random.randrange(2**32)}"]
    code = subprocess.call([sys.executable, "-m", "pytest", *common, *arguments])
    if not may_repeat(code, failed := failed_tests(cache)):
        return code
    print(
        f"stage {name}: {len(failed)} tests failed beside others and run again alone:", *failed, sep="\n  ", flush=True
    )
    code = subprocess.call([sys.executable, "-m", "pytest", *common, "-n", "0", *_options(arguments), *failed])
    if code == 0:
        print(f"stage {name}: passed the second time, look at them:", *failed, sep="\n  ", flush=True)
    return code


def _options(arguments: list[str]) -> list[str]:
    """The options that apply to single tests as well."""
    return [f"--timeout={arguments[i + 1]}" for i, each in enumerate(arguments) if each == "--timeout"] + ["-q"]


def timed(name: str, arguments: list[str]) -> int:
    """``run``, followed by a line with the seconds that the stage and its processes took."""
    began_s = time.monotonic()
    code = run(name, arguments)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took_s, computed_s = time.monotonic() - began_s, used.ru_utime + used.ru_stime
    print(f"stage {name}: {took_s:.1f} s, {computed_s:.1f} s of processor time", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(timed(sys.argv[1], sys.argv[2:]))
