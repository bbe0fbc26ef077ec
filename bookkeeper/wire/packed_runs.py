"""Add frames of a run of entries that lie in one buffer: no Python object per entry where the compiled helper is there.

encode_packed(data, offsets, skip, ledger_id, first, confirmed, length, digester, key)
    Entry k is ``data[offsets[k] + skip : offsets[k + 1]]``; `offsets` are native int64 as bytes, one more than there
    are entries. Returns the same frames as ``entries.encode_run``.

`MAGNETAR_PURE=1` in the environment takes the Python twin in any case, and so do digests other than CRC-32C.
"""

from __future__ import annotations

import contextlib
import os
from array import array
from typing import TYPE_CHECKING

from magnetar.bookkeeper.wire.digests import DigestType
from magnetar.bookkeeper.wire.entries import ADD_HEADER, EntryRun, encode_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.bookkeeper.wire.digests import Digester

__all__ = ["COMPILED", "encode_packed", "encode_packed_pure"]


def encode_packed_pure(
    data: bytes | memoryview,
    offsets: bytes,
    skip: int,
    ledger_id: int,
    first: int,
    confirmed: int,
    length: int,
    digester: Digester,
    key: bytes,
) -> EntryRun:
    """The Python twin of the compiled helper."""
    view, at = memoryview(data), memoryview(offsets).cast("q")
    payloads = [view[at[k] + skip : at[k + 1]] for k in range(len(at) - 1)]
    return encode_run(ledger_id, first, confirmed, length, payloads, digester, key)


_compiled: Callable[..., tuple[bytes, bytes, int]] | None = None
if not os.environ.get("MAGNETAR_PURE"):
    with contextlib.suppress(ImportError):  # no compiler at install time: the twin serves
        from magnetar.bookkeeper.wire._add_frames import encode_packed as _compiled
COMPILED = _compiled is not None


def encode_packed(
    data: bytes | memoryview,
    offsets: bytes,
    skip: int,
    ledger_id: int,
    first: int,
    confirmed: int,
    length: int,
    digester: Digester,
    key: bytes,
) -> EntryRun:
    """See the head of this file."""
    if _compiled is None or digester.type is not DigestType.CRC32C:
        return encode_packed_pure(data, offsets, skip, ledger_id, first, confirmed, length, digester, key)
    frames, ends, total = _compiled(data, offsets, skip, ledger_id, first, confirmed, length, key, ADD_HEADER)
    return EntryRun(first, first + len(offsets) // 8 - 2, frames, array("q", ends), total)
