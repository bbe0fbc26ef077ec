"""Payloads of compressed entries, decompressed one behind the other into one arena."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from magnetar.protocol.compression import decompress_into
from magnetar.protocol.entry_columns import EntryColumn
from magnetar.protocol.errors import CompressionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from magnetar.pipeline.decode.headers import Headers

    Int64s = NDArray[np.int64]


class Arena(NamedTuple):
    """Payload of entries[i] is ``data[starts[i]:ends[i]]``; failures: entry -> why it was not decompressed."""

    data: memoryview
    entries: Int64s
    starts: Int64s
    ends: Int64s
    failures: dict[int, str]


def decompressed(data: memoryview, headers: Headers, entries: Int64s, max_bytes: int) -> Arena:
    """The payloads of these compressed entries. Memory: the sum of the declared sizes up to max_bytes.

    A payload that grows beyond its declared size, or stays below it, fails; a payload that declares more than max_bytes
    fails unread.
    """
    sizes = headers[EntryColumn.UNCOMPRESSED_SIZE][entries]
    failures = {int(e): f"declares {n} bytes, {max_bytes} are allowed" for e, n in _pairs(entries, sizes, max_bytes)}
    entries, sizes = entries[sizes <= max_bytes], sizes[sizes <= max_bytes]
    ends = np.cumsum(sizes + 1)  # the decoders get one byte more, to see a payload that is larger than it declares
    starts = ends - sizes - 1
    arena = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8).data
    codecs = headers[EntryColumn.COMPRESSION][entries].tolist()
    stored = headers[EntryColumn.METADATA_END][entries].tolist()
    stops = headers.ends[entries].tolist()
    good = np.ones(len(entries), np.bool_)
    for i, (entry, codec, start, stop, at, end) in enumerate(
        zip(entries.tolist(), codecs, stored, stops, starts.tolist(), ends.tolist(), strict=True)
    ):
        try:
            decompress_into(codec, data[start:stop], arena[at:end])
        except CompressionError as e:
            failures[entry] = str(e)
            good[i] = False
    return Arena(arena, entries[good], starts[good], ends[good] - 1, failures)


def _pairs(entries: Int64s, sizes: Int64s, max_bytes: int) -> zip[tuple[int, int]]:
    large = sizes > max_bytes
    return zip(entries[large].tolist(), sizes[large].tolist(), strict=True)
