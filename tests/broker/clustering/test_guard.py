"""The guard ends a broker whose loop or process stands still, and leaves a running broker alone."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

from magnetar.broker.clustering.guard_process import is_starved, processor_s
from tests.waiting import wait_for

PROGRAM = """
    import asyncio, os, signal, subprocess, sys, time
    from magnetar.broker.clustering.guard import Guard

    async def main():
        guard = Guard({limit_s})
        guard.start()
        print(guard._process.pid, flush=True)
        await asyncio.sleep(0.2)
        {then}
        guard.stop()
        print("ended", guard._process is None, flush=True)

    asyncio.run(main())
"""


def run(then, limit_s=0.6):
    program = textwrap.dedent(PROGRAM).format(then=then, limit_s=limit_s)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


STARVES = """
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(guard._process.pid, processors[1:])
    os.sched_setaffinity(0, processors[:1])
    busy = "import time; end_s = time.monotonic() + {seconds}\\nwhile time.monotonic() < end_s: pass"
    quiet = {{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
    subprocess.Popen([sys.executable, "-S", "-c", busy], **quiet)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    end_s = time.monotonic() + {seconds}
    while time.monotonic() < end_s: pass
    await asyncio.sleep(0.2)"""
"""Computes for so many seconds without a turn of the loop, beside a process that gets the processor."""


@pytest.mark.parametrize("standstill", ["os.kill(os.getpid(), signal.SIGSTOP)", "signal.pause()"])
def test_a_standstill_ends_the_process(standstill):
    done = run(standstill)
    assert done.returncode == -signal.SIGKILL
    assert "stood still for 0.6 s" in done.stderr
    assert "ended" not in done.stdout


def test_an_endless_computation_ends_the_process():
    assert run("while True: pass").returncode == -signal.SIGKILL


def test_a_loop_that_turns_goes_on_and_the_guard_ends_with_it():
    done = run("await asyncio.sleep(1)", limit_s=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("ended True\n")


def test_a_guard_whose_broker_ended_ends_too():
    done = run("os._exit(7)", limit_s=30)
    assert done.returncode == 7  # standard error is closed: the guard, which shares it, has ended


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_a_starved_process_may_stand_still_for_longer():
    done = run(STARVES.format(seconds=2), limit_s=1.2)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_a_process_that_starves_without_an_end_is_ended():
    done = run(STARVES.format(seconds=4), limit_s=0.6)
    assert done.returncode == -signal.SIGKILL
    assert "stood still for 1.8 s" in done.stderr


def test_a_process_is_starved_that_is_ready_to_run_and_gets_no_processor():
    used_s = processor_s(os.getpid())
    assert is_starved(os.getpid(), used_s, 60)
    assert not is_starved(os.getpid(), used_s - 31, 60)
    with subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"]) as other:
        wait_for(lambda: "S" in pathlib.Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2])
        assert not is_starved(other.pid, 0, 60)
        other.kill()
    assert not is_starved(other.pid, 0, 60)
