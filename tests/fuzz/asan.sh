#!/bin/sh
# Build the compiled helpers under the address and undefined behaviour sanitizers and compare them with their twins on random
# and mutated bytes. Usage: tests/fuzz/asan.sh [seconds] [python], from the top of the tree.
set -eu
seconds=${1:-60}
python=${2:-.venv/bin/python}
cc=${CC:-gcc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
for source in protocol/_speedups protocol/_entry_columns protocol/_deliveries delayed/_sorting converters/kafka_entry/_slots; do
    "$cc" -O1 -g -fPIC -shared -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=undefined \
        -I"$include" "$source.c" -o "$dir/$(basename "$source").so"
done
MAGNETAR_PURE=1 PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$("$cc" -print-file-name=libasan.so) \
    PYTHONPATH=tests/protocol:tests/converters/kafka_entry "$python" - "$dir" "$seconds" <<'PY'
import importlib.util
import random
import sys
import time

import column_twins
import delivery_twins
import slot_twins
import twins

from magnetar.delayed.sorted_run import Columns
from magnetar.delayed.sorting import pure_sorted_columns


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


helper, columns, sorting = built("_speedups"), built("_entry_columns"), built("_sorting")
pushed, slots = built("_deliveries"), built("_slots")
CHECKS = [(check, helper) for check in twins.CHECKS] + [(check, columns) for check in column_twins.CHECKS]
CHECKS += [(check, pushed) for check in delivery_twins.CHECKS]
CHECKS += [(check, slots) for check in slot_twins.CHECKS]
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
    rounds += 1
print(f"{rounds} rounds, no difference, nothing found by the sanitizers")
PY
