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
    ended = subprocess.run(["/bin/sh", "-c", closed], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 7
    assert "standard input has ended" in ended.stderr


def test_a_line_tells_the_reason(tmp_path):
    command = [
        sys.executable,
        "-m",
        "magnetar",
        "standalone",
        "--stop-with-stdin",
        "--data-dir",
        str(tmp_path / "data"),
    ]
    command += ["--set", "brokerServicePort=0", "--set", "webServicePort=0"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert "standard input has ended, so the broker stops (--stop-with-stdin)" in ended.stderr
