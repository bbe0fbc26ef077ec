"""Cuts the entries that a broker pushes to one consumer out of the stream, as columns. For readers of many entries.

Compiled, else the pure twin, chosen as in `speed.py`.

deliveries(buffer, start, consumer_id) -> (table, end)
    The MESSAGE frames for this consumer at the beginning of ``buffer[start:]``, up to the first frame of another
    kind or an incomplete frame; `end` is the start of that frame. Table: ``bytes`` of native int64, column by column,
    columns as DeliveryColumn; offsets count from the beginning of the buffer, u64 values of the wire are signed. An
    unusual frame (a field twice, a group, another command beside the MESSAGE, the id of a first chunk) ends the cut:
    the caller passes it to `answers.AnswerCutter`, which returns its command or raises.
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
    """Return ledger and entry of a MESSAGE for the consumer. Raises BrokenFieldError for any other command."""
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
        raise BrokenFieldError  # the id of the first chunk may lack required fields, too
    ids = _once(view, after - size, after, {1: 0, 2: 0})
    return signed64(ids[1][0]), signed64(ids[2][0])


def _once(view: memoryview, at: int, end: int, wanted: dict[int, int]) -> dict[int, tuple[int, int]]:
    """Return value and end of each wanted field; skip all other fields.

    Raises BrokenFieldError unless each wanted field occurs exactly once and has the given wire type.
    """
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
    except ImportError:  # no compiler at install time: the twin is used
        pass
    else:
        COMPILED = True
        deliveries = _deliveries.deliveries
