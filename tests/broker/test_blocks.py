"""The region of large blocks, each test in a process of its own: a region stays until the process ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("magnetar.broker._blocks")
LEAST = 64 << 10

_RANDOM_BLOCKS = """
import random, threading
from magnetar.broker._blocks import counts, install
UNIT, LEAST, REGION, KEPT = 16 << 10, 64 << 10, 8 << 20, 1 << 20
assert counts() == (0, 0)
assert install(REGION, KEPT) and install(1, 1), "a second call changes nothing"

def mark(block, number):
    for at in range(0, len(block), UNIT // 4):
        block[at] = (number + at // 64) % 256
    if block:
        block[-1] = number % 256

def check(block, number):
    last = len(block) - 1
    for at in range(0, len(block), UNIT // 4):
        assert block[at] == (number % 256 if at == last else (number + at // 64) % 256), (at, number)

def work(seed):
    rng, blocks = random.Random(seed), []
    for number in range(1500):
        what = rng.random()
        if what < 0.5 or not blocks:
            size = rng.choice((0, 100, LEAST - 100, LEAST, LEAST + 1, 300_000, 2_000_000, 9_000_000))
            block = bytearray(rng.randrange(size + 1))
            assert not any(block[:: UNIT // 8]), "zeros"
            mark(block, number)
            blocks.append((block, number))
        elif what < 0.8 or sum(len(block) for block, _ in blocks) > (12 << 20):
            check(*blocks.pop(rng.randrange(len(blocks))))
        else:
            at = rng.randrange(len(blocks))
            block, old = blocks[at]
            check(block, old)
            size = rng.randrange(2 * len(block) + 1)
            if size < len(block):
                del block[size:]
            else:
                block += bytes(size - len(block))
            mark(block, number)
            blocks[at] = block, number
    for block, number in blocks:
        check(block, number)

failures = []

def guarded(seed):
    try:
        work(seed)
    except BaseException as error:
        failures.append(repr(error))

threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures
used, resident = counts()
print(used, resident)
"""

_GIVEN_BACK = """
import os
from magnetar.broker._blocks import counts, install
def resident(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
install(256 << 20, 4 << 20)
first = resident()
blocks = [b"x" * 1_000_000 for _ in range(100)]
full = resident()
assert counts()[0] >= 100_000_000
assert full - first > 95_000_000
del blocks[1::2]
assert resident() - first < 62_000_000, "between blocks that stay, too"
blocks.clear()
used, kept = counts()
assert used == 0 and kept <= (4 << 20), (used, kept)
assert resident() - first < 10_000_000
again = [b"y" * 1_000_000 for _ in range(4)]
assert counts()[1] == kept, "kept memory is the first to be used"
shrunk = bytearray(1_000_000)
del shrunk[70_000:]
assert counts()[0] < 4 * 1_000_000 + 200_000 + 4 * 16384, "the rest of a block that shrank is free"
pid = os.fork()
if pid == 0:
    b"z" * 3_000_000
    os._exit(0 if again[0] == b"y" * 1_000_000 else 1)
assert os.waitpid(pid, 0)[1] == 0
"""

_SHRUNK = """
import os
from magnetar.broker._blocks import counts, install
install(64 << 20, 1 << 20)
reading, writing = os.pipe()
found = []
for number in range(500):
    os.write(writing, b"%03d" % number * 100)
    found.append(os.read(reading, 128 << 10))
assert found == [b"%03d" % number * 100 for number in range(500)]
assert counts()[0] < 200_000, counts()
block = bytearray(b"s" * 1_000_000)
del block[20_000:]
block += b"t" * 1_000_000
assert block == b"s" * 20_000 + b"t" * 1_000_000
"""

_NO_REGION = """
import tracemalloc
from magnetar.broker import heap
tracemalloc.start()
assert not heap.use_block_region()
tracemalloc.stop()
assert heap.use_block_region()
tracemalloc.start()
block = b"x" * 1_000_000
tracemalloc.stop()
del block
from magnetar.broker._blocks import counts
assert counts()[1]
"""

_LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (900 << 20, 900 << 20))
from magnetar.broker import heap
assert not heap.use_block_region()
b"x" * 1_000_000
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_blocks_keep_their_bytes_in_all_threads_also_when_the_region_is_full():
    used, resident = map(int, run(_RANDOM_BLOCKS).split())
    assert used <= LEAST * 4, "all blocks are free again, but for those of the interpreter"
    assert resident - used <= 1 << 20


@pytest.mark.parametrize(
    "program",
    [_GIVEN_BACK, _SHRUNK, _NO_REGION, _LIMITED],
    ids=["given-back", "short-reads-into-long-buffers", "watched-by-a-tool", "limited"],
)
def test_the_region(program: str):
    run(program)
