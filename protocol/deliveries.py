"""Entries that a broker pushes to one consumer, cut out of the stream as columns. For readers of many entries.

Compiled, else the pure twin, chosen as in `speed.py`.

deliveries(buffer, start, consumer_id) -> (table, end)
    The MESSAGE frames for this consumer at the beginning of ``buffer[start:]``, up to the first frame of another
    kind or an incomplete frame; `end` is the begin of that frame. Table: ``bytes`` of native int64, column by column,
    columns as DeliveryColumn; offsets count from the beginning of the buffer, u64 values of the wire are signed. A
    frame that is odd in any way (a field twice, a group, another command beside the MESSAGE, the id of a first chunk)
    ends the cut: `answers.AnswerCutter` takes the frame, or reports its fault.
    Raises ValueError for a start outside of the buffer.
"""

from __future__ import annotations

import os
from array import array
from enum import IntEnum
from typing import Any

from magnetar.protocol._pure_columns import BrokenFieldError, fields, signed64

__all__ = ["COMPILED", "DeliveryColumn", "deliveries", "pure_deliveries"]

_HEADER_BYTES = 8
_TYPE = 1
_FIRST_CHUNK = 7
_MESSAGE = 9
"""The type of a MESSAGE, and the number of its field in a BaseCommand."""


class DeliveryColumn(IntEnum):
    """Columns of `deliveries`, in their order."""

    LEDGER = 0
    ENTRY = 1
    START = 2
    END = 3


def pure_deliveries(buffer: Any, start: int, consumer_id: int, /) -> tuple[bytes, int]:
    view = memoryview(buffer).cast("B")
    if not 0 <= start <= len(view):
        raise ValueError("the start is not in the data")
    rows: list[tuple[int, int, int, int]] = []
    while len(view) - start >= _HEADER_BYTES:
        total, size = (int.from_bytes(view[at : at + 4], "big") for at in (start, start + 4))
        if total > len(view) - start - 4 or size + 4 > total:
            break
        body = start + 8 + size
        try:
            place = _command(view, start + 8, body, consumer_id)
        except BrokenFieldError:
            break
        start += 4 + total
        rows.append((*place, body, start))
    return b"".join(array("q", column).tobytes() for column in zip(*rows, strict=True)), start


def _command(view: memoryview, at: int, end: int, consumer_id: int) -> tuple[int, int]:
    """Ledger and entry of a MESSAGE for the consumer. Raises BrokenFieldError for anything else."""
    if any(number not in (_TYPE, _MESSAGE) for number, *_ in fields(view, at, end)):
        raise BrokenFieldError  # another command beside the MESSAGE, which may lack required fields
    found = _once(view, at, end, {_TYPE: 0, _MESSAGE: 2})
    if found[_TYPE][0] != _MESSAGE:
        raise BrokenFieldError
    size, after = found[_MESSAGE]
    message = _once(view, after - size, after, {1: 0, 2: 2})
    if message[1][0] != consumer_id:
        raise BrokenFieldError
    size, after = message[2]
    if any(number == _FIRST_CHUNK for number, *_ in fields(view, after - size, after)):
        raise BrokenFieldError  # an id of its own: the same
    ids = _once(view, after - size, after, {1: 0, 2: 0})
    return signed64(ids[1][0]), signed64(ids[2][0])


def _once(view: memoryview, at: int, end: int, wanted: dict[int, int]) -> dict[int, tuple[int, int]]:
    """Value and end of each wanted field, which is there once and of that wire type; others are passed over."""
    found: dict[int, tuple[int, int]] = {}
    for number, wire, value, after in fields(view, at, end):
        if number in wanted:
            if number in found or wire != wanted[number]:
                raise BrokenFieldError
            found[number] = value, after
    if len(found) != len(wanted):
        raise BrokenFieldError
    return found


COMPILED = False
deliveries = pure_deliveries

if not os.environ.get("MAGNETAR_PURE"):
    try:
        from magnetar.protocol import _deliveries
    except ImportError:  # no compiler at install time: the twin serves
        pass
    else:
        COMPILED = True
        deliveries = _deliveries.deliveries
