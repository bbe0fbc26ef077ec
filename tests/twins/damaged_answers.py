"""Damages to the frames of a bookie's answers. Each takes the chance and a frame, and returns the bytes that arrive."""

from __future__ import annotations

import struct

__all__ = ["KINDS", "noticeable"]

ADD = 1
BEGIN_BYTES = 12
"""Length, header and code."""


def flipped(chance, frame):
    at = chance.randrange(8 * len(frame))
    damaged = bytearray(frame)
    damaged[at // 8] ^= 1 << at % 8
    return bytes(damaged)


def flipped_length(chance, frame):
    return struct.pack(">I", int.from_bytes(frame[:4], "big") ^ 1 << chance.randrange(23)) + frame[4:]


def other_ids(chance, frame):
    damaged = bytearray(frame)
    struct.pack_into(">q", damaged, chance.choice([12, 20]), chance.randrange(300))
    return bytes(damaged)


def other_code(chance, frame):
    return frame[:8] + struct.pack(">I", chance.choice([0, 1, 2, 100, 101, 103, 105, 106, 107, 77])) + frame[12:]


def twice(_chance, frame):
    return frame + frame


def shortened(chance, frame):
    return frame[: chance.randrange(len(frame))]


def left_out(_chance, _frame):
    return b""


KINDS = [flipped, flipped_length, other_ids, other_code, twice, shortened, left_out]


def noticeable(chance, frame):
    """A damage that a client can notice. An acknowledgement of another entry is as good as a true one: the protocol has
    no checksum for it.
    """
    if chance.random() < 0.3:
        return chance.choice([twice, shortened, left_out])(chance, frame)
    if frame[5] == ADD:
        return flipped(chance, frame[:BEGIN_BYTES]) + frame[BEGIN_BYTES:]
    return flipped(chance, frame)
