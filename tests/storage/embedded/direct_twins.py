"""The compiled direct reader against the file's bytes and the scan of records in Python, on random input; ``tests/fuzz/asan.sh`` runs the check under
sanitizers.
"""

from __future__ import annotations

import os
import select
import struct
import tempfile
from typing import TYPE_CHECKING, Any

from magnetar.protocol import _pure
from magnetar.protocol.checksum import crc32c

if TYPE_CHECKING:
    import random

__all__ = ["CHECKS"]

_PAGE = 4096
_WAIT_MS = 60_000


def check_reads(helper: Any, rng: random.Random) -> None:
    """Reads of one reader, up to four under way, have the bytes of the file and their records, or an error number."""
    content = rng.randbytes(rng.choice((0, 1, _PAGE, 70_000))) if rng.random() < 0.5 else _log(rng)
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        reader = helper.Reader()
        poll = select.poll()
        poll.register(reader.fileno(), select.POLLIN)
        fd = _direct(file.name)
        for _ in range(rng.randrange(4)):
            if not _check_round(reader, poll, fd if fd >= 0 else file.fileno(), content, rng):
                break
        if fd >= 0:
            os.close(fd)
        if rng.random() < 0.5:
            reader.close()


def _log(rng: random.Random) -> bytes:
    """Records of ledger 3 with proof 8, some of them damaged."""
    found = bytearray()
    for entry_id in range(rng.randrange(300)):
        body = rng.randbytes(rng.choice((0, 1, 100, 3000)))
        rest = struct.pack("<QQq", 3, entry_id, 8) + body
        length = struct.pack("<I", len(body))
        found += length + struct.pack("<I", crc32c(rest, crc32c(length))) + rest
    if found and rng.random() < 0.3:
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _check_round(reader: Any, poll: select.poll, fd: int, content: bytes, rng: random.Random) -> bool:
    for bad in ((fd, 1, _PAGE), (fd, 0, _PAGE + 1), (fd, 0, 0), (fd, -_PAGE, _PAGE), (fd, 0, (1 << 20) + _PAGE)):
        _refused(reader.begin, *bad, [], 3, 8)
    for wrong in ((-1, 1), (1, -1), (0, _PAGE + 1), (_PAGE + 1, 0), (_PAGE, 1)):
        _refused(reader.begin, fd, 0, _PAGE, [(0, 0), wrong], 3, 8)
    _refused(reader.begin, fd, 0, _PAGE, [(0, 5), (4, 1)], 3, 8)
    reads = {}
    for _ in range(rng.randrange(1, 7)):
        first, size = _PAGE * rng.randrange(20), _PAGE * rng.randrange(1, 20)
        ranges = _ranges(size, rng)
        wanted = (rng.choice((-1, 3, 3, 3, 4)), rng.choice((0, 8, 8, 9)))
        number = reader.begin(fd, first, size, ranges, *wanted)
        assert number not in reads
        if number >= 0:
            reads[number] = (content[first : first + size], ranges, wanted)
    assert len(reads) <= 4
    for number in reads:
        _refused(reader.take, number + 4)
    if rng.random() < 0.1:
        return False  # the reader is closed with reads under way
    while reads:
        assert poll.poll(_WAIT_MS), "a read does not end"
        for number, got in reader.reap():
            _check_taken(reader, number, got, *reads.pop(number))
    return True


def _ranges(size: int, rng: random.Random) -> list[tuple[int, int]]:
    if rng.random() < 0.5:
        return [(0, size)]
    places = sorted(rng.randrange(size + 1) for _ in range(2 * rng.randrange(4)))
    return [(start, end - start) for start, end in zip(places[::2], places[1::2], strict=True)]


def _check_taken(
    reader: Any, number: int, got: int, expected: bytes, ranges: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    if got >= 0:
        assert got == len(expected)
    else:
        expected = b""
    joined = b"".join(expected[at : at + size] for at, size in ranges)
    assert reader.take(number) == (joined, _pure.scan_records(joined, 0, len(joined), *wanted)[0])
    _refused(reader.take, number)


def _refused(call: Any, *arguments: Any) -> None:
    try:
        call(*arguments)
    except ValueError:
        return
    raise AssertionError(f"{call.__name__}{arguments} is refused")


def _direct(name: str) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return -1


CHECKS = (check_reads,)
