"""The compiled direct reader against the file's bytes on random input; ``tests/fuzz/asan.sh`` runs the check under
sanitizers.
"""

from __future__ import annotations

import os
import select
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

__all__ = ["CHECKS"]

_PAGE = 4096
_WAIT_MS = 60_000


def check_reads(helper: Any, rng: random.Random) -> None:
    """Reads of one reader, up to four under way, have the bytes of the file or an error number."""
    content = rng.randbytes(rng.choice((0, 1, _PAGE, 70_000)))
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        reader = helper.Reader()
        poll = select.poll()
        poll.register(reader.fileno(), select.POLLIN)
        fd = _direct(file.name)
        for _ in range(rng.randrange(4)):
            _check_round(reader, poll, fd if fd >= 0 else file.fileno(), content, rng)
        if fd >= 0:
            os.close(fd)
        if rng.random() < 0.5:
            reader.close()


def _check_round(reader: Any, poll: select.poll, fd: int, content: bytes, rng: random.Random) -> None:
    for bad in ((fd, 1, _PAGE), (fd, 0, _PAGE + 1), (fd, 0, 0), (fd, -_PAGE, _PAGE), (fd, 0, (1 << 20) + _PAGE)):
        _refused(reader.begin, *bad)
    reads = {}
    for _ in range(rng.randrange(1, 7)):
        first, size = _PAGE * rng.randrange(20), _PAGE * rng.randrange(1, 20)
        number = reader.begin(fd, first, size)
        assert number not in reads
        if number >= 0:
            reads[number] = (first, size)
    assert len(reads) <= 4
    for number in reads:
        _refused(reader.take, number + 4, [])
    while reads:
        assert poll.poll(_WAIT_MS), "a read does not end"
        for number, got in reader.reap():
            first, size = reads.pop(number)
            _check_taken(reader, number, got, content[first : first + size], rng)


def _check_taken(reader: Any, number: int, got: int, expected: bytes, rng: random.Random) -> None:
    ranges = [(rng.randrange(90_000), rng.randrange(90_000)) for _ in range(rng.randrange(4))]
    if rng.random() < 0.2:
        _refused(reader.take, number, [*ranges, rng.choice(((-1, 1), (1, -1)))])
        return
    if got >= 0:
        assert got == len(expected)
    else:
        expected = b""
    assert reader.take(number, ranges) == b"".join(expected[at : at + size] for at, size in ranges)
    _refused(reader.take, number, ranges)


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
