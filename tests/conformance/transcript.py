#!/usr/bin/env python3
"""Sends the same commands to two brokers and compares their answers frame by frame.

    transcript.py record FILE.py...     against Apache Pulsar: every scenario three times; stable logs are kept
    transcript.py check  FILE.py...     against any broker: the recordings must come out again
    transcript.py show   FILE.py...     prints the logs

A scenario is a function of a session, marked with @scenario:

    from transcript import scenario

    @scenario
    def subscribe_to_unknown_namespace(s):
        c = s.connect()
        c.subscribe("persistent://public/nope/t", "s")

Its sent and received frames are logged. Values that may differ between two correct brokers are made neutral: ledger ids
become L1, L2, ... in order of appearance, times T, generated names 'generated', addresses are dropped. The text of a
refusal is logged as `words`; scenarios listed in words.toml are compared without them. Where the order of two answers
is free, use recv_sorted; where nothing may come, none(). A scenario has 30 seconds. Files named security* need the
broker of auth.conf, all others that of default.conf.
"""

import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[1]):  # the harness, and the project when it is not installed
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
sys.modules.setdefault("transcript", sys.modules[__name__])

from harness.clock import BrokerClock  # noqa: E402
from harness.runner import Runner, compare, load, scenario  # noqa: E402  # importable only from here on
from harness.wire import encode, encode_send, fill, jwt, pb  # noqa: E402

__all__ = ["encode", "encode_send", "fill", "jwt", "pb", "scenario"]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("mode", choices=["record", "check", "show"])
    p.add_argument("files", nargs="+", type=pathlib.Path)
    p.add_argument("--url", default="pulsar://127.0.0.1:6650")
    p.add_argument("--http", default="http://127.0.0.1:8080")
    p.add_argument("--token")
    p.add_argument("--golden", default=HERE / "golden", type=pathlib.Path)
    p.add_argument("--only", default="*", help="a shell pattern of scenario names")
    p.add_argument("--new", action="store_true", help="record only what has no recording yet")
    p.add_argument("--jobs", default=1, type=int, help="scenarios run at the same time")
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--verbose", action="store_true")
    return p.parse_args()


def recorded(path):
    return json.loads(path.read_text()) if path.exists() else {}


def compact(logs):
    """A file of recordings: a line for each scenario, so that a change of a scenario changes a single line."""
    return "{\n" + ",\n".join(f"{json.dumps(n)}: {json.dumps(log)}" for n, log in logs.items()) + "\n}\n"


def main():
    a = arguments()
    with BrokerClock(a.url) as clock:
        return run(a, Runner(a.url, a.http, a.token, a.jobs, a.verbose, clock))


def run(a, runner):
    passed, failed = [], {}
    files = {file: load(file, a.only) for file in a.files}
    for file, names in files.items():
        kept = a.golden / (file.stem + ".json")
        golden = recorded(kept)
        if a.mode == "show":
            for name, lines in runner.run(names):
                print(f"== {name}", *lines, sep="\n")
        elif a.mode == "record":
            wanted = [n for n in names if not (a.new and n in golden)]
            for name, lines, unstable in runner.record(wanted):
                golden.pop(name, None)
                if unstable:
                    failed[name] = unstable
                    report("unstable", name, unstable)
                else:
                    golden[name] = lines
                    passed.append(name)
            every = [n for n in load(file, "*") if n in golden]
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(compact({n: golden[n] for n in every}))
        else:
            for name, lines in runner.run([n for n in names if n in golden]):
                if diff := compare(golden[name], lines, name):
                    failed[name] = diff
                    report("differs", name, diff)
                else:
                    passed.append(name)
    if a.json:
        a.json.write_text(json.dumps({"passed": passed, "failed": failed}, indent=1))
    if a.mode != "show":
        print(f"{len(passed)} of {len(passed) + len(failed)} scenarios {'recorded' if a.mode == 'record' else 'equal'}")
    return 1 if failed else 0


def report(what, name, diff):
    print(f"{what}: {name}", *diff, sep="\n    ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
