#!/bin/sh
# Build the compiled helper under the address and undefined behaviour sanitizers and compare it with its twin on random and
# mutated bytes. Usage: tests/fuzz/asan.sh [seconds] [python], from the top of the tree.
set -eu
seconds=${1:-60}
python=${2:-.venv/bin/python}
cc=${CC:-gcc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
"$cc" -O1 -g -fPIC -shared -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=undefined \
    -I"$include" protocol/_speedups.c -o "$dir/_speedups.so"
MAGNETAR_PURE=1 PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$("$cc" -print-file-name=libasan.so) \
    PYTHONPATH=tests/protocol "$python" - "$dir/_speedups.so" "$seconds" <<'PY'
import importlib.util
import random
import sys
import time

import twins

spec = importlib.util.spec_from_file_location("_speedups", sys.argv[1])
helper = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helper)
rng, end, rounds = random.Random(), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    seed = rng.getrandbits(60)
    for check in twins.CHECKS:
        try:
            check(helper, random.Random(seed))
        except Exception:
            print(f"{check.__name__} with seed {seed}", file=sys.stderr)
            raise
    rounds += 1
print(f"{rounds} rounds, no difference, nothing found by the sanitizers")
PY
