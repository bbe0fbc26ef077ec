#!/bin/sh
# A bare container and the README: tests/newcomer/newcomer.sh [PODMAN-RUN-OPTION...] > log
# The container has Python alone; make comes from Debian. Options give it its network's settings where it needs some.
set -eu
cd "$(dirname "$0")/../.."
containers=${CONTAINERS:-$(command -v podman || command -v docker)}
git archive --prefix=magnetar/ HEAD > "${TMPDIR:-/tmp}/magnetar-newcomer.tar"
exec "$containers" run --rm -v "${TMPDIR:-/tmp}/magnetar-newcomer.tar:/magnetar.tar:ro" "$@" \
    "${BASE:-docker.io/library/debian:bookworm-slim}" \
    sh -c 'cd /root && tar xf /magnetar.tar && exec python3 magnetar/tests/newcomer/newcomer.py'
