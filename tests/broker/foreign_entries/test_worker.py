import os
import platform
import subprocess
import sys

import pytest

from magnetar.broker.foreign_entries.frames import DECLINED
from magnetar.broker.foreign_entries.worker import NICENESS, SLICE_NS, answer
from magnetar.converters.chain import ConverterChain, loaded
from magnetar.converters.examples import BytesConverter
from tests.broker.foreign_entries.converting_for_tests import foreign

ASK = """
import ctypes, os, platform, struct
from magnetar.broker.foreign_entries.worker import go_behind
go_behind()
found = ctypes.create_string_buffer(48)
number = {"x86_64": 315, "aarch64": 275}.get(platform.machine())  # sched_getattr(2)
if number:
    assert ctypes.CDLL(None).syscall(ctypes.c_long(number), 0, found, 48, 0) == 0
print(os.nice(0), os.sched_getscheduler(0), struct.unpack_from("=Q", found, 24)[0])
"""


def test_the_worker_itself_chooses():
    chain = ConverterChain([loaded(BytesConverter())])
    assert answer(chain, foreign(b"x")).messages == 1
    assert answer(chain, foreign(b"x", None)) is DECLINED
    assert answer(chain, b"") is DECLINED
    assert answer(chain, foreign(b"x", messages=3)).message == "raw bytes cannot hold 3 messages"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the scheduler of Linux")
def test_the_worker_has_a_lower_class_than_its_parent():
    answer = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    niceness, policy, slice_ns = (int(each) for each in answer.stdout.split())
    assert niceness == min(os.nice(0) + NICENESS, 19)
    assert policy == os.SCHED_BATCH
    release = tuple(int(each) for each in platform.release().split("-")[0].split(".")[:2])
    if release >= (6, 12) and platform.machine() in ("x86_64", "aarch64"):
        assert slice_ns == SLICE_NS


def test_it_is_done_once_more_without_harm():
    twice = ASK.replace("go_behind()\n", "go_behind()\ngo_behind()\n")
    answer = subprocess.run([sys.executable, "-c", twice], capture_output=True, text=True, check=True)
    assert int(answer.stdout.split()[0]) == min(os.nice(0) + 2 * NICENESS, 19)
