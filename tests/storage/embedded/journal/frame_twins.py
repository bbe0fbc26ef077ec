"""The compiled writer of frames and its twin in plain Python on random input; ``tests/fuzz/asan.sh`` has them checked
under sanitizers.
"""

from __future__ import annotations

import os
import select
import tempfile
from typing import TYPE_CHECKING, Any

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.journal.format import PAGE_BYTES, encode_frame

if TYPE_CHECKING:
    import random

__all__ = ["CHECKS"]

_SIZES = (0, 1, 63, 64, 511, 512, 4031, 4032, 4033, 40_000, 300_000)
_WAIT_MS = 60_000
_U64 = (1 << 64) - 1


def check_frames(helper: Any, rng: random.Random) -> None:
    """Frames of one writer have the bytes of the format."""
    writer = helper.Writer(rng.random() < 0.5)
    with tempfile.NamedTemporaryFile() as file:
        direct_fd = _direct(file.name) if rng.random() < 0.5 else -1
        for _ in range(rng.randrange(1, 6)):
            _check_frame(writer, file.fileno(), direct_fd, rng)
        if direct_fd >= 0:
            os.close(direct_fd)
    if rng.random() < 0.5:
        writer.close()


def _check_frame(writer: Any, fd: int, direct_fd: int, rng: random.Random) -> None:
    payload: list[Any] = [rng.randbytes(rng.choice(_SIZES)) for _ in range(rng.randrange(6))]
    payload = [memoryview(each)[rng.randrange(len(each) + 1) :] if rng.random() < 0.3 else each for each in payload]
    checksums = [crc32c(each) if rng.random() < 0.5 else -1 for each in payload] if rng.random() < 0.5 else []
    prefix = rng.randbytes(PAGE_BYTES * rng.randrange(3))
    offset = PAGE_BYTES * rng.randrange(4)
    numbers = [rng.choice((0, 1, 1 << 63, _U64)) for _ in range(3)]
    written_ms, metadata = rng.choice((-(1 << 63), -1, 0, 1 << 62)), rng.choice((0, _U64))
    for bad in (
        (prefix, payload, [*checksums, 1 << 32]),
        (prefix + b"x", payload, ()),
        (prefix, [*payload, 3], ()),
    ):
        try:
            writer.write(fd, direct_fd, offset, bad[0], *numbers, written_ms, metadata, bad[1], bad[2])
        except (ValueError, TypeError):
            continue
        raise AssertionError("a frame that cannot be written is refused")
    is_awaited = rng.random() < 0.5
    writer.write(fd, direct_fd, offset, prefix, *numbers, written_ms, metadata, payload, checksums, is_awaited)
    poll = select.poll()
    poll.register(writer.fileno(), select.POLLIN)
    found = None
    while found is None:
        found = writer.reap_within(rng.choice((0.0, 0.0001)))
        if found is None and rng.random() < 0.5:
            assert poll.poll(_WAIT_MS), "the frame is written"
            found = writer.reap()
    assert found[0] == 0, os.strerror(found[0])
    expected = prefix + b"".join(encode_frame(*numbers, payload, written_ms, metadata))
    assert os.pread(fd, len(expected), offset) == expected


def _direct(path: str) -> int:
    """A descriptor past the cache; -1 on a file system that has none."""
    try:
        return os.open(path, os.O_RDWR | os.O_DIRECT)
    except OSError:
        return -1


def check_copies(helper: Any, rng: random.Random) -> None:
    """Pieces copied into a target, from any byte on."""
    pieces = [rng.randbytes(rng.randrange(50)) for _ in range(rng.randrange(6))]
    whole = b"".join(pieces)
    start, size = rng.randrange(-2, len(whole) + 3), rng.randrange(len(whole) + 3)
    target = bytearray(size)
    try:
        helper.copy(target, pieces, start)
    except ValueError:
        assert start < 0 or size > len(whole) - start
        assert target == bytes(size)
        return
    assert start >= 0
    assert target == whole[start : start + size]


def check_joined(helper: Any, rng: random.Random) -> None:
    """Pieces of any kind as one object."""
    pieces: list[Any] = [rng.randbytes(rng.choice((0, 1, 50, 5000))) for _ in range(rng.randrange(6))]
    expected = b"".join(pieces)
    kinds = (bytes, bytearray, memoryview)
    assert helper.joined([rng.choice(kinds)(piece) for piece in pieces]) == expected
    try:
        helper.joined([*pieces, 3])
    except TypeError:
        return
    raise AssertionError("a number is not a piece")


def check_resident(helper: Any, rng: random.Random) -> None:
    """A part of any range, of any descriptor."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(rng.randrange(50_000)))
        file.flush()
        for fd in (file.fileno(), -1, 1 << 20):
            offset, size = rng.choice((-1, 0, 1, 4096, 40_000, 1 << 62)), rng.choice((-5, 0, 1, 4096, 100_000, 1 << 40))
            if size < 1 << 40 or offset < 0:
                assert 0 <= helper.resident(fd, offset, size) <= 1


CHECKS = (check_frames, check_copies, check_joined, check_resident)
