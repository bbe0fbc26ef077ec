"""A quick sample of ``make fuzz``, without guidance by coverage: kept inputs, and mutations of the first inputs.

MAGNETAR_FUZZ_SEED repeats a failed run.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import signal
import time

import pytest

from tests.fuzz.targets import CPU_SECONDS, TARGETS, OutOfTimeError, limited, without_checksums

SEED = int(os.environ.get("MAGNETAR_FUZZ_SEED", "20240229"))
CORPUS = pathlib.Path(__file__).parent / "corpus" / "guided"
MUTATIONS = 150


def mutated(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 2, 6))):
        at = chance.randrange(len(out))
        match chance.randrange(4):
            case 0:
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                out[at : at + 4] = chance.choice((b"\xff" * 4, bytes(4), chance.randbytes(4)))
            case 2:
                del out[at : at + chance.randrange(1, 20)]
            case _:
                out[at:at] = out[: chance.randrange(1, 40)]
        if not out:
            return b""
    return bytes(out)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_taken_or_refused(name):
    target, chance = TARGETS[name], random.Random(SEED)
    with without_checksums() if target.of_files else contextlib.nullcontext():
        begin = target.seeds()
        kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
        for data in [*begin, *kept, *(mutated(chance.choice(begin + kept), chance) for _ in range(MUTATIONS))]:
            began = time.thread_time()
            try:
                target.run(data)
            except BaseException:
                print(f"input: {data[:2000]!r}")
                raise
            assert time.thread_time() - began < CPU_SECONDS, data[:2000]


def test_an_input_without_end_is_a_finding():
    before = signal.getsignal(signal.SIGPROF)

    def endless(_data: bytes) -> None:
        while True:
            with contextlib.suppress(Exception):
                _data.index(b"x")

    try:
        with pytest.raises(OutOfTimeError):
            limited(endless, 0.02)(b"")
        assert signal.getitimer(signal.ITIMER_PROF) == signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGPROF, before)
