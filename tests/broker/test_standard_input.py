"""The end of standard input ends the process."""

import subprocess
import sys

import pytest

PROGRAM = """
import signal
from magnetar.broker.standard_input import stop_with_input
signal.signal(signal.SIGTERM, lambda *_: exit(7))
stop_with_input()
print("ready", flush=True)
while True:
    signal.pause()
"""


def started(stdin):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=stdin, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def test_bytes_have_no_effect_and_the_end_is_a_signal():
    with started(subprocess.PIPE) as process:
        process.stdin.write(b"bytes")
        process.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.stdin.close()
        assert process.wait(30) == 7


def test_an_input_that_is_closed_from_the_start_is_at_its_end():
    closed = f"exec {sys.executable} -c '{PROGRAM}' <&-"
    assert subprocess.run(["/bin/sh", "-c", closed], stdout=subprocess.DEVNULL, timeout=60, check=False).returncode == 7
