"""Joins the acknowledgements of consecutive adds: the compiled helper makes no Python object per entry.

join_added(data, at)
    Returns (ledger id, first entry, last entry, offset after the last) for the acknowledgements that begin at `at`:
    whole answers to adds with code OK, of one ledger, of consecutive entries. Returns None when another frame, or only
    a part of a frame, begins at `at`.

An answer is ``u32 length = 24 | u32 version << 24 | opcode << 16 | u32 code | ledger id | entry id``, as in
``frames``; bookies answer without flags. `MAGNETAR_PURE=1` in the environment takes the Python twin in any case.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COMPILED", "join_added", "join_added_pure"]

_ANSWER = struct.Struct(">IIIqq")
_LENGTH = _ANSWER.size - 4
_ADDED, _OK = 0x02010000, 0


def join_added_pure(data: bytes, at: int) -> tuple[int, int, int, int] | None:
    """The Python twin of the compiled helper."""
    ledger_id, first, last = -1, -1, -1
    while len(data) - at >= _ANSWER.size:
        size, header, code, ledger, entry = _ANSWER.unpack_from(data, at)
        if size != _LENGTH or header != _ADDED or code != _OK or ledger < 0 or entry < 0:
            break
        if last < 0:
            ledger_id, first = ledger, entry
        elif ledger != ledger_id or entry != last + 1:
            break
        last = entry
        at += _ANSWER.size
    return None if last < 0 else (ledger_id, first, last, at)


_compiled: Callable[[bytes, int], tuple[int, int, int, int] | None] | None = None
if not os.environ.get("MAGNETAR_PURE"):
    with contextlib.suppress(ImportError):  # no compiler at install time: the twin serves
        from magnetar.bookkeeper.wire._add_frames import join_added as _compiled
COMPILED = _compiled is not None
join_added = _compiled or join_added_pure
