#!/bin/sh
# Fuzz the compiled helpers, guided by their coverage, under the address and undefined behaviour sanitizers.
# Usage: tests/fuzz/compiled/run.sh [seconds a target] [python] [target ...], from the top of the tree. Needs clang.
set -eu
seconds=${1:-60}
python=${2:-.venv/bin/python}
[ $# -gt 2 ] && shift 2 || set -- cut records columns deliveries sorting add_frames batches key_hashes drawn
cc=$(command -v "${CLANG:-clang}" || ls /usr/bin/clang-[0-9]* 2>/dev/null | sort -V | tail -1 || true)
if [ -z "$cc" ]; then
    echo "tests/fuzz/compiled: no clang, so the compiled helpers are not fuzzed by coverage;" \
        "install it (apt-get install clang) or set CLANG" >&2
    exit 0
fi
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
lib=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
version=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("LDVERSION"))')
checks=address,undefined
for source in protocol/_speedups protocol/_entry_columns protocol/_deliveries protocol/_acks protocol/_key_hashes delayed/_sorting bookkeeper/wire/_add_frames; do
    "$cc" -O1 -g -fPIC -shared -fsanitize=fuzzer-no-link,$checks -fno-sanitize-recover=undefined \
        -I"$include" "$source.c" -o "$built/$(basename "$source").so"
done
"$cc" -O1 -g -rdynamic -fsanitize=fuzzer,$checks -I"$include" tests/fuzz/compiled/embed.c \
    -L"$lib" -lpython"$version" -Wl,-rpath,"$lib" -o "$built/fuzz"
MAGNETAR_PURE=1 PYTHONPATH=. "$python" -m tests.fuzz.compiled.targets "$built"
for target in "$@"; do
    corpus=tests/fuzz/corpus/compiled/$target
    mkdir -p "$built/$target" "$corpus"
    echo "== $target"
    MAGNETAR_PURE=1 MAGNETAR_FUZZ_PYTHON=$(realpath -s "$python") MAGNETAR_FUZZ_BUILT=$built MAGNETAR_FUZZ_TARGET=$target \
        PYTHONPATH=. PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 \
        "$built/fuzz" "$built/$target" "$corpus" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=4096 \
        -print_final_stats=1 -artifact_prefix="${ARTIFACTS:-/tmp/}" 2>"$built/$target.log" || {
        cat "$built/$target.log"
        exit 1
    }
    grep -E "cov: .*DONE|DONE|number_of_executed_units|slowest_unit|peak_rss" "$built/$target.log"
    if [ -n "${KEEP:-}" ]; then  # the smallest inputs that reach as much
        MAGNETAR_PURE=1 MAGNETAR_FUZZ_PYTHON=$(realpath -s "$python") MAGNETAR_FUZZ_BUILT=$built \
            MAGNETAR_FUZZ_TARGET=$target PYTHONPATH=. PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 \
            "$built/fuzz" -merge=1 "$corpus" "$built/$target" 2>/dev/null
    fi
done
