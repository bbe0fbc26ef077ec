#!/bin/sh
# Builds the image `magnetar` with podman or docker ($CONTAINERS names another): docker/build.sh [BUILD-ARGUMENT...]
# Where this machine's Python is that of the image (3.11), its wheels are taken along and the build needs no network.
set -eu
cd "$(dirname "$0")/.."
containers=${CONTAINERS:-$(command -v podman || command -v docker)}
python=${PYTHON:-python3}
rm -f docker/wheels/*.whl
if [ "$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')" = 3.11 ]; then
    "$python" -m pip wheel -q -w docker/wheels .
    if command -v strip > /dev/null && "$python" -m wheel version > /dev/null 2>&1; then # 25 MB of the image
        for wheel in docker/wheels/*-linux_*.whl docker/wheels/*-manylinux*.whl; do
            [ -f "$wheel" ] || continue
            unpacked=$(mktemp -d)
            "$python" -m wheel unpack -d "$unpacked" "$wheel" > /dev/null
            find "$unpacked" -name '*.so*' -exec strip --strip-unneeded {} +
            "$python" -m wheel pack -d docker/wheels "$unpacked"/* > /dev/null # with the digests of the stripped files
            rm -rf "$unpacked"
        done
    fi
fi
format=""
case $containers in *podman*) format="--format docker" ;; esac # OCI's own format knows no HEALTHCHECK
# shellcheck disable=SC2086
"$containers" build -q $format -t "${IMAGE:-magnetar}" "$@" -f docker/Dockerfile .
