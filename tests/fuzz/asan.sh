#!/bin/sh
# Build the compiled helpers under gcc's address and undefined behaviour sanitizers and compare them with their twins: on
# random input, and on the kept inputs of the guided fuzzing, as they are and mutated. Usage: tests/fuzz/asan.sh [seconds]
# [python], from the top of the tree. Without the sanitizers' libraries it prints a notice and stops.
set -eu
seconds=${1:-60}
python=${2:-.venv/bin/python}
cc=${CC:-gcc}
asan=$("$cc" -print-file-name=libasan.so)
if [ ! -e "$asan" ]; then
    echo "tests/fuzz: $cc has no address sanitizer, so the compiled helpers do not run under it" >&2
    exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
for source in protocol/_speedups protocol/_entry_columns protocol/_deliveries protocol/_acks protocol/_key_hashes \
    delayed/_sorting converters/kafka_entry/_slots bookkeeper/wire/_add_frames storage/embedded/journal/_frame_writer \
    storage/embedded/_direct_reader broker/dispatchers/_picking; do
    "$cc" -O1 -g -fPIC -shared -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=undefined \
        -I"$include" "$source.c" -o "$dir/$(basename "$source").so"
done
MAGNETAR_PURE=1 PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$asan \
    PYTHONPATH=.:tests/protocol:tests/converters/kafka_entry "$python" - "$dir" "$seconds" <<'PY'
import importlib.util
import pathlib
import random
import sys
import time

import column_twins
import delivery_twins
import slot_twins
import twins

from magnetar.broker.dispatchers.picking import pure_pick
from magnetar.delayed.sorted_run import Columns
from magnetar.delayed.sorting import pure_sorted_columns
from tests.broker.dispatchers.test_picking import Case
from tests.fuzz.compiled.targets import TARGETS, seeds
from tests.fuzz.test_fuzz_targets import mutated
from tests.storage.embedded import direct_twins
from tests.storage.embedded.journal import frame_twins

KEPT = pathlib.Path("tests/fuzz/corpus/compiled")


def built(name):
    spec = importlib.util.spec_from_file_location(name, f"{sys.argv[1]}/{name}.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_sorting(helper, rng):
    span = rng.choice((3, 1 << 62))
    parts = [
        Columns.of((rng.randrange(span), rng.randrange(span), rng.getrandbits(32)) for _ in range(rng.randrange(200)))
        for _ in range(rng.randrange(6))
    ]
    assert helper.sorted_columns(parts) == pure_sorted_columns(parts)
    short = [(bytes(rng.randrange(40)), bytes(rng.randrange(40)), bytes(rng.randrange(20)))]
    try:
        helper.sorted_columns(short)
    except ValueError:
        pass


def check_picking(helper, rng):
    case = Case(rng.getrandbits(60))
    assert case.play(helper.pick) == case.play(pure_pick)


names = ("_speedups", "_entry_columns", "_sorting", "_deliveries", "_slots", "_add_frames", "_frame_writer", "_picking", "_acks", "_key_hashes", "_direct_reader")
helpers = {name: built(name) for name in names}
helper, columns, sorting, pushed, slots, adding, writing, picking, _, _, reading = helpers.values()
CHECKS = [(check, helper) for check in twins.CHECKS] + [(check, columns) for check in column_twins.CHECKS]
CHECKS += [(check, pushed) for check in delivery_twins.CHECKS]
CHECKS += [(check, slots) for check in slot_twins.CHECKS]
CHECKS += [(check, writing) for check in frame_twins.CHECKS] + [(check_picking, picking)]
CHECKS += [(check, reading) for check in direct_twins.CHECKS]


def of_target(name):
    """The function of a target, and the inputs to begin with."""
    run, wanted = TARGETS[name]
    given = [helpers[each] for each in wanted]
    kept = [path.read_bytes() for path in sorted((KEPT / name).glob("*"))]
    return lambda data: run(given if len(given) > 1 else given[0], data), seeds(name) + kept


def run_target(name, run, data):
    try:
        run(data)
    except Exception:
        print(f"target {name} with {data!r}", file=sys.stderr)
        raise


inputs = 0
targets = {name: of_target(name) for name in TARGETS}
for name, (run, begin) in targets.items():
    for data in begin:
        run_target(name, run, data)
        inputs += 1
rng, end, rounds = random.Random(), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    seed = rng.getrandbits(60)
    for check, module in CHECKS:
        try:
            check(module, random.Random(seed))
        except Exception:
            print(f"{check.__name__} with seed {seed}", file=sys.stderr)
            raise
    check_sorting(sorting, random.Random(seed))
    for name, (run, begin) in targets.items():
        for _ in range(10):
            run_target(name, run, mutated(rng.choice(begin), rng))
            inputs += 1
    rounds += 1
print(f"{rounds} rounds, {inputs} inputs of the fuzzer, no difference, nothing found by the sanitizers")
PY
