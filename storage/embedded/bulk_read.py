"""Reads ranges of a file past the system's cache, for bytes that are read once.

A page that enters the system's cache costs memory, and a copy besides that of the device; a ledger that a consumer
reads in order is rarely read again soon. The bytes come into aligned memory of the calling thread, and go from there
into an object of their own without the interpreter lock.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from magnetar.storage.embedded.direct_io import BLOCK_BYTES, aligned_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.storage.embedded.files import Buffer, File

__all__ = ["joined", "read_ranges"]

_MEMORY_BYTES = 2 << 20
_local = threading.local()

joined: Callable[[Sequence[Buffer]], bytes] = b"".join
"""The bytes of all buffers, one after the other."""
if not os.environ.get("MAGNETAR_PURE"):
    with contextlib.suppress(ImportError):  # not built everywhere
        from magnetar.storage.embedded.journal._frame_writer import joined  # without the interpreter lock


def read_ranges(file: File, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return the bytes of these ranges, joined; fewer only where the file ends.

    ``ranges``: (offset, size), each behind the range before. One read covers them all and the gaps between them;
    ranges of more than 2 MiB together are read one by one, through the cache, as are ranges whose common read fails.
    Raises OSError.
    """
    first = ranges[0][0] & -BLOCK_BYTES
    offset, size = ranges[-1]
    whole = -(-(offset + size - first) // BLOCK_BYTES) * BLOCK_BYTES
    if whole > _MEMORY_BYTES:
        return _one_by_one(file, ranges)
    memory = _memory()
    try:
        got = file.read_past_cache(memory[:whole], first)
    except OSError:
        return _one_by_one(file, ranges)  # the bytes that cannot be read may lie between the ranges
    found: list[Buffer] = []
    for offset, size in ranges:
        start = offset - first
        found.append(memory[start : min(start + size, max(got, start))])
        if got < start + size:
            break
    return joined(found)


def _one_by_one(file: File, ranges: Sequence[tuple[int, int]]) -> bytes:
    found: list[bytes] = []
    for offset, size in ranges:
        part = file.read(size, offset)
        found.append(part)
        if len(part) < size:
            break
    return found[0] if len(found) == 1 else joined(found)


def _memory() -> memoryview:
    """The aligned memory of this thread."""
    found: memoryview | None = getattr(_local, "memory", None)
    if found is None:
        mapped, start = aligned_memory(_MEMORY_BYTES)
        found = _local.memory = memoryview(mapped)[start : start + _MEMORY_BYTES]
    return found
