"""Every recorded scenario against a broker of this project: the log must be that of Apache Pulsar 4.2.4.

All scenarios of a profile run against one broker, several at a time, in the order in which pytest will ask for them.
MAGNETAR_CONFORMANCE_JOBS sets how many (default 64); MAGNETAR_CONFORMANCE_DEFAULT, ..._AUTH and ..._QUOTAS name a
running broker ("pulsar://HOST:PORT http://HOST:PORT") to use instead of starting one. MAGNETAR_CONFORMANCE_SHARE=N
runs a fixed part of the scenarios: one of each file and about one in N of all.

Waits go by a clock that stands still while the broker does not answer (harness/clock.py), so a busy machine causes no
false silence. But a message that becomes due in half a second, or a token with so short a life, goes by real time. So
the few scenarios that differ run once more when all others have ended, and must be equal then; a run in which the
broker could not answer at once is no evidence, and is repeated some times.
"""

import contextlib
import itertools
import json
import os
import pathlib
import sys
import tomllib
import zlib
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

HERE = pathlib.Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import transcript  # noqa: E402  # scenarios import it by this name, too
from harness.broker import profile_of, running_broker  # noqa: E402
from harness.clock import BrokerClock  # noqa: E402
from harness.runner import Runner, compare, load  # noqa: E402
from harness.words import LEFT_OUT, without_words  # noqa: E402

JOBS = int(os.environ.get("MAGNETAR_CONFORMANCE_JOBS", "64"))
FEW = 20  # scenarios that are run again though nothing disturbed them
IN_CLUSTER = "MAGNETAR_CONFORMANCE_CLUSTER" in os.environ
"""The broker is a member of a cluster: clients connect to the owner of a topic, not through their service address."""
RUNS = 5  # alone, of one scenario, as long as each is disturbed
LOST_SECONDS = 0.1  # seconds without answers in a run, which disturb steps that depend on real time
WAIT_SECONDS = 1800  # seconds to wait for the log of a scenario, on a busy machine
DIFFERENCES = tomllib.loads((HERE / "differences.toml").read_text())


def recordings(folder):
    """The expected log of each scenario, by name, for each file of scenarios."""
    return {p.stem: json.loads(p.read_text()) for p in sorted((HERE / folder).glob("*.json"))}


GOLDEN = recordings("golden")
OWN = {name: lines for names in recordings("own").values() for name, lines in names.items()}
SHARE = int(os.environ.get("MAGNETAR_CONFORMANCE_SHARE", "1"))
CASES = [(stem, name) for stem, names in GOLDEN.items() for name in names]


def place(name):
    """A number that follows from the name of a scenario alone."""
    return zlib.crc32(name.encode())


def part_of(cases, share):
    """Of each file the scenario with the least number and those whose numbers are multiples of `share`."""
    least = {}
    for stem, name in cases:
        least[stem] = min(least.get(stem, name), name, key=place)
    return [(stem, name) for stem, name in cases if place(name) % share == 0 or least[stem] == name]


def expected(stem, name):
    log = OWN[name] if name in DIFFERENCES else GOLDEN[stem][name]
    if not IN_CLUSTER:
        return log
    alone, member = (f'"proxy_through_service_url": {each}' for each in ("true", "false"))
    return json.loads(json.dumps(log).replace(json.dumps(alone)[1:-1], json.dumps(member)[1:-1]))


class Logs:
    """The logs of all selected scenarios, run at the same time; of a single scenario, run alone."""

    def __init__(self, pool, runners, wanted):
        self._pool, self._runners = pool, runners
        for stem, _ in wanted:
            load(HERE / "scenarios" / f"{stem}.py")
        self._futures = {name: pool.submit(self._run, stem, name) for stem, name in wanted}
        self._again = itertools.count(1)

    def _run(self, stem, name):
        return self._runners[profile_of(stem)].run_measured(name)

    def of(self, name):
        return self._futures[name].result()[0]

    def alone(self, stem, name):
        """Logs up to that of the first undisturbed run; none when too many have differed without any disturbance."""
        _, lost = self._futures[name].result()
        if lost < LOST_SECONDS and next(self._again) > FEW:
            return
        wait(self._futures.values())
        for _ in range(RUNS):
            log, lost = self._pool.submit(self._run, stem, name).result()
            yield log
            if lost < LOST_SECONDS:
                return


@pytest.fixture(scope="session")
def logs(request, tmp_path_factory):
    wanted = [i.callspec.params["case"] for i in request.session.items if getattr(i, "originalname", "") == TEST]
    profiles = {profile_of(stem) for stem, _ in wanted}
    with ThreadPoolExecutor(JOBS) as pool, _runners(profiles, tmp_path_factory) as runners:
        yield Logs(pool, runners, wanted)
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _runners(profiles, tmp_path_factory):
    """A runner, with a broker and its clock, for each profile; all stop at the end in any case."""
    with contextlib.ExitStack() as stack:
        runners = {}
        for profile in sorted(profiles):
            running = os.environ.get(f"MAGNETAR_CONFORMANCE_{profile.upper()}")
            directory = tmp_path_factory.mktemp(profile)
            urls = running.split() if running else stack.enter_context(running_broker(profile, directory))
            runners[profile] = Runner(*urls, clock=stack.enter_context(BrokerClock(urls[0])))
        yield runners


@pytest.mark.blackbox
@pytest.mark.timeout(WAIT_SECONDS)
@pytest.mark.parametrize("case", part_of(CASES, SHARE), ids="-".join)
def test_log_is_as_recorded(case, logs):
    stem, name = case
    difference = compare(expected(stem, name), logs.of(name), name)
    if difference:
        print(f"{stem}.{name} differed among others:", *difference, sep="\n")
        for log in logs.alone(stem, name):
            difference = compare(expected(stem, name), log, name)
            if not difference:
                break
    assert not difference, "\n".join([f"{stem}.{name}", *difference])


TEST = test_log_is_as_recorded.__name__


def test_a_part_has_scenarios_of_each_file_and_the_whole_has_all():
    part = part_of(CASES, 8)
    assert {stem for stem, _ in part} == set(GOLDEN)
    assert len(CASES) / 9 < len(part) < len(CASES) / 5
    assert part_of(CASES, 1) == CASES


def test_each_scenario_has_a_recording():
    known = {name for _, name in CASES}
    missing = [n for p in sorted((HERE / "scenarios").glob("*.py")) for n in load(p) if n not in known]
    assert not missing


def test_each_recording_has_a_scenario():
    defined = {p.stem: set(load(p)) for p in (HERE / "scenarios").glob("*.py")}
    assert not [case for case in CASES if case[1] not in defined.get(case[0], ())]


@pytest.mark.parametrize("folder", ["golden", "own"])
def test_recordings_are_compact(folder):
    for path in sorted((HERE / folder).glob("*.json")):
        assert path.read_text() == transcript.compact(json.loads(path.read_text())), path.name


def test_files_of_scenarios_are_named_after_their_subject():
    vague = {"more", "extra", "mixed", "misc", "wide", "found", "other", "new"}
    assert not [p.stem for p in (HERE / "scenarios").glob("*.py") if vague & set(p.stem.split("_"))]


def test_each_scenario_that_leaves_out_words_has_words():
    recorded = {name: lines for names in GOLDEN.values() for name, lines in names.items()}
    assert not [name for name in LEFT_OUT if without_words(recorded[name]) == recorded[name]]


def test_each_difference_is_pinned_and_real():
    recorded = {name: lines for names in GOLDEN.values() for name, lines in names.items()}
    for name, reason in DIFFERENCES.items():
        assert reason.strip()
        assert OWN[name] != recorded[name]
    assert set(OWN) == set(DIFFERENCES)
