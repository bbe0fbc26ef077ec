"""Bitmaps of entries as bit sets and back, in every form of a part."""

from __future__ import annotations

import random

import pytest
from pyroaring import BitMap

from magnetar.storage.pulsar_layout.entry_bits import bitmap_of_bits, bits_of_bitmap

CHANCE = random.Random(7)
CASES = {
    "one": [0],
    "last of a part": [65_535],
    "first of a part": [65_536],
    "a full part": range(65_536),
    "listed": range(0, 65_536, 16),
    "one more than listed": [*range(0, 65_536, 16), 1],
    "dense": CHANCE.sample(range(65_536), 30_000),
    "a far part": [5, 3 * 65_536 + 7],
    "six parts": [part << 16 | entry for part in (0, 1, 2, 5, 6, 9) for entry in range(part * 7 + 1)],
    "parts of all forms": [
        *range(40_000),
        *range(65_536, 65_600),
        *range(2 << 16, 3 << 16, 2),
        *range(3 << 16, 7 << 16),
    ],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_runs", [False, True])
def test_bits_of_a_bitmap_and_back(case, with_runs):
    held = BitMap(list(CASES[case]))
    if with_runs:
        held.run_optimize()
    bits = bits_of_bitmap(held)
    assert [entry for entry in range(8 * len(bits)) if bits[entry >> 3] >> (entry & 7) & 1] == sorted(held)
    assert bits[-1]
    assert bitmap_of_bits(bits) == held
    assert bitmap_of_bits(bits + bytes(20_000)) == held


def test_no_bits():
    assert bitmap_of_bits(b"") == bitmap_of_bits(bytes(9)) == BitMap()
