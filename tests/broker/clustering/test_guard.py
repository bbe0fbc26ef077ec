"""The guard ends a broker whose loop or process stands still, and leaves a running broker alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import asyncio, os, signal
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


@pytest.mark.parametrize("standstill", ["os.kill(os.getpid(), signal.SIGSTOP)", "signal.pause()"])
def test_a_standstill_ends_the_process(standstill):
    done = run(standstill)
    assert done.returncode == -signal.SIGKILL
    assert "stood still for 0.6 s" in done.stderr
    assert "ended" not in done.stdout


def test_a_loop_that_turns_goes_on_and_the_guard_ends_with_it():
    done = run("await asyncio.sleep(1)", limit_s=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("ended True\n")


def test_a_guard_whose_broker_ended_ends_too():
    done = run("os._exit(7)", limit_s=30)
    assert done.returncode == 7  # standard error is closed: the guard, which shares it, has ended
