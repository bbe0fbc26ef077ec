import os
import platform
import subprocess
import sys

import pytest

from magnetar.broker.time_slices import SHORT_NS

ASK = """
import ctypes, os, platform, struct, sys, threading
from magnetar.broker.time_slices import take_short_slices
if len(sys.argv) > 1:
    os.sched_setscheduler(0, int(sys.argv[1]), os.sched_param(0))
os.nice(3)
take_short_slices()
number = {"x86_64": 315, "aarch64": 275}.get(platform.machine())  # sched_getattr(2)

def show():
    found = ctypes.create_string_buffer(48)
    if number:
        assert ctypes.CDLL(None).syscall(ctypes.c_long(number), 0, found, 48, 0) == 0
    print(os.sched_getscheduler(0), os.nice(0), struct.unpack_from("=Q", found, 24)[0])

show()
thread = threading.Thread(target=show)
thread.start()
thread.join()
"""
GRANTED = tuple(int(each) for each in platform.release().split("-")[0].split(".")[:2]) >= (6, 12)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the scheduler of Linux")


def asked(*arguments: str) -> list[list[int]]:
    """(policy, niceness, slice in ns) of the process and of a thread that it starts"""
    answer = subprocess.run([sys.executable, "-c", ASK, *arguments], capture_output=True, text=True, check=True)
    return [[int(each) for each in line.split()] for line in answer.stdout.splitlines()]


@pytest.mark.skipif(not GRANTED, reason="Linux 6.12 and later grant slices")
def test_a_process_and_its_threads_get_short_slices_and_keep_their_niceness():
    niceness = min(os.nice(0) + 3, 19)
    assert asked() == [[os.SCHED_OTHER, niceness, SHORT_NS]] * 2


def test_a_process_with_another_policy_keeps_its_slice():
    for policy, niceness, slice_ns in asked(str(os.SCHED_BATCH)):
        assert (policy, niceness) == (os.SCHED_BATCH, min(os.nice(0) + 3, 19))
        assert slice_ns != SHORT_NS
