"""Scenarios found in files, run against a broker (several at a time), their logs compared."""

import difflib
import fnmatch
import importlib.util
import traceback
from concurrent.futures import ThreadPoolExecutor

from harness.clock import WallClock
from harness.session import Session
from harness.words import LEFT_OUT, without_words

SCENARIOS = {}
_LOADED = {}
TIMES = 3  # runs of a scenario that must agree before it is recorded


def scenario(function):
    if function.__name__ in SCENARIOS:
        raise ValueError(f"two scenarios are named {function.__name__}")
    SCENARIOS[function.__name__] = function
    return function


def load(path, only="*"):
    """The names of the scenarios in that file, in its order."""
    path = path.resolve()
    if path not in _LOADED:
        before = set(SCENARIOS)
        spec = importlib.util.spec_from_file_location(f"scenarios_{path.stem}", path)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        _LOADED[path] = [n for n in SCENARIOS if n not in before]
    return [n for n in _LOADED[path] if fnmatch.fnmatch(n, only)]


def compare(want, got, name=None):
    """The difference of two logs as lines, none when they agree; without words if the scenario leaves them out."""
    if name in LEFT_OUT:
        want, got = without_words(want), without_words(got)
    return list(difflib.unified_diff(want, got, "expected", "got", lineterm="", n=2))


class Runner:
    def __init__(self, url, http, token=None, jobs=1, verbose=False, clock=None):
        self.url, self.http, self.token, self.jobs, self.verbose = url, http.rstrip("/"), token, jobs, verbose
        self.clock = clock or WallClock()

    def run_one(self, name):
        """The scenario's log; an error of the scenario itself is its last line."""
        return self.run_measured(name)[0]

    def run_measured(self, name):
        """The log and the seconds in which the broker did not answer while it was made."""
        lost = self.clock.lost
        session = Session(name, self.url, self.http, self.token, self.clock)
        try:
            SCENARIOS[name](session)
        except Exception as e:
            session.lines.append(f"! {type(e).__name__}: {str(e)[:200]}")
            if self.verbose:
                traceback.print_exc()
        finally:
            session.finish()
        return session.lines, self.clock.lost - lost

    def run(self, names):
        """Pairs of name and log, in the given order."""
        with ThreadPoolExecutor(self.jobs) as pool:
            yield from zip(names, pool.map(self.run_one, names), strict=True)

    def record(self, names):
        """Triples of name, log and the difference between runs (empty when they agree and none of them broke)."""
        with ThreadPoolExecutor(self.jobs) as pool:
            runs = [pool.map(self.run_one, names) for _ in range(TIMES)]
            for name, *logs in zip(names, *runs, strict=True):
                first = logs[0]
                other = next((log for log in logs if log != first), None)
                broken = [line for log in logs for line in log if line.startswith("! ")]
                yield name, first, compare(first, other) if other else broken
