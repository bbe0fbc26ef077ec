"""The allocator has one arena for all threads, and an idle broker gives free memory back."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys

import pytest

from magnetar.broker import heap
from magnetar.broker.heap import LOOK_S, Heap

_ARENAS = """
import ctypes, threading
from magnetar.broker.heap import use_one_arena
use_one_arena()
held = []
threads = [threading.Thread(target=lambda: held.extend(bytes(4096) for _ in range(100))) for _ in range(3)]
barrier = threading.Barrier(4)
for thread in threads:
    thread.run = lambda run=thread.run: (barrier.wait(), run(), barrier.wait())
    thread.start()
barrier.wait()
barrier.wait()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def arenas(**environment: str) -> int:
    kept = {key: value for key, value in os.environ.items() if key not in {"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"}}
    done = subprocess.run(
        [sys.executable, "-c", _ARENAS], check=True, capture_output=True, text=True, env=kept | environment
    )
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the allocator of glibc")
def test_threads_share_an_arena_unless_the_operator_decides():
    assert arenas() == 1
    assert arenas(MALLOC_ARENA_MAX="8") > 1


class Process:
    def __init__(self, free: int, kept: int = 0) -> None:
        self.cpu_s, self.free, self.given, self.kept = 0.0, free, 0, kept

    def give(self) -> None:
        self.given += 1
        self.free = self.kept

    def heap(self) -> Heap:
        return Heap(lambda: self.cpu_s, lambda: self.free, self.give)


@pytest.mark.parametrize(("part", "given"), [(0.01, 1), (0.2, 1), (0.5, 0)], ids=["idle", "calm", "busy"])
def test_a_process_without_much_work_gives_much_free_memory_back(part: float, given: int):
    process = Process(free=64 << 20)
    looked = process.heap()
    process.cpu_s += part * LOOK_S
    looked.look()
    assert process.given == given


def test_free_memory_that_the_allocator_keeps_is_given_back_once():
    process = Process(free=64 << 20, kept=60 << 20)
    looked = process.heap()
    for _ in range(100):
        process.cpu_s += 0.01 * LOOK_S
        looked.look()
    assert process.given == 1
    process.free = 120 << 20
    looked.look()
    assert process.given == 2
    process.free = 10 << 20
    for _ in range(100):
        looked.look()
    process.free = 60 << 20
    looked.look()
    assert process.given == 3, "the blocks around the kept memory are free"


@pytest.mark.parametrize(("part", "given"), [(0.01, 1), (0.2, 0)], ids=["idle", "calm"])
def test_less_free_memory_is_given_back_after_an_idle_half_minute(part: float, given: int):
    process = Process(free=20 << 20)
    looked = process.heap()
    for _ in range(int(30 / LOOK_S) - 1):
        process.cpu_s += part * LOOK_S
        looked.look()
    assert process.given == 0
    process.cpu_s += part * LOOK_S
    looked.look()
    assert process.given == given


def test_memory_that_is_needed_again_and_again_is_given_back_once_in_half_a_minute():
    process = Process(free=64 << 20)
    looked = process.heap()
    for _ in range(int(60 / LOOK_S)):
        looked.look()
        process.free = 64 << 20
    assert process.given == 2


def test_after_a_busy_time_it_gives_memory_back_once():
    process = Process(free=64 << 20)
    looked = process.heap()
    process.cpu_s += LOOK_S
    for _ in range(3):
        looked.look()
    assert process.given == 1


def test_a_little_free_memory_stays():
    process = Process(free=1 << 20)
    process.heap().look()
    assert process.given == 0


async def test_it_looks_again_and_again_until_it_stops(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heap, "LOOK_S", 0.001)
    looks = itertools.count(1)
    second: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def free() -> int:
        if next(looks) == 2:
            second.set_result(None)
        return 0

    looked = Heap(lambda: 0.0, free, lambda: None)
    looked.stop()
    looked.start()
    async with asyncio.timeout(30):
        await second
    looked.stop()
    assert looked._timer is None


def test_the_functions_of_the_allocator_answer():
    assert heap.free_bytes() >= 0
    heap.give_back()
