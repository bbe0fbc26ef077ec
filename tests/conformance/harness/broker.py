"""A broker process for the scenarios of one profile."""

import contextlib
import pathlib
import re
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent.parent
PROJECT = HERE.parents[1]
READY = re.compile(r"ready (pulsar://\S+) (http://\S+)")
START_SECONDS = 60
STOP_SECONDS = 20
SLOW_CALLBACK = re.compile(r"loop\.slow_callback\W.*?\bcpu_ms\W+([0-9.]+).*")
SLOWEST_CALLBACK_MS = 200


QUOTAS = ("admin_quota_levels", "wire_backlog_quotas", "wire_backlog_evictions", "wire_evicted_places")
"""Scenarios that wait for the next check of quotas, which is late beside thousands of topics of other scenarios."""


def profile_of(stem):
    """The broker of the scenarios of that file: with the settings of auth.conf, or of default.conf, alone for quotas."""
    if stem in QUOTAS:
        return "quotas"
    return "auth" if stem.startswith("security") else "default"


@contextlib.contextmanager
def running_broker(profile, directory):
    """Start `magnetar standalone` with the profile's settings on free ports; yields its two URLs."""
    settings = HERE / ("auth.conf" if profile == "auth" else "default.conf")
    command = [sys.executable, "-m", "magnetar", "standalone", "--config", str(settings)]
    command += ["--data-dir", str(directory / "data"), "--set", "brokerServicePort=0", "--set", "webServicePort=0"]
    with (
        (directory / "stderr").open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=PROJECT) as process,
    ):
        try:
            yield _wait_ready(process, directory / "stderr")
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()
    log = (directory / "stderr").read_text(errors="replace")
    slow = [found[0] for found in SLOW_CALLBACK.finditer(log) if float(found[1]) > SLOWEST_CALLBACK_MS]
    assert not slow, f"the loop was held: {slow}"


def _wait_ready(process, errors):
    watchdog = threading.Timer(START_SECONDS, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            if found := READY.search(line):
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return found.groups()
    finally:
        watchdog.cancel()
    raise RuntimeError(f"the broker did not become ready: {errors.read_text(errors='replace')[-2000:]}")
