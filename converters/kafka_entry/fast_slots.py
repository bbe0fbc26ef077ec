"""Converts the records of a whole Kafka batch to messages with the compiled helper, for batches without special cases.

`MAGNETAR_PURE=1` in the environment disables the helper; then, and for every other batch, `slots.SlotWriter` converts
record by record. Both give equal bytes (tests/converters/kafka_entry/test_fast_slots.py).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    PlainSlots = Callable[[bytes, int, int, int | None, bool, bool, int], bytes | None]

__all__ = ["COMPILED", "plain_slots"]


def _never(
    records: bytes,  # noqa: ARG001
    count: int,  # noqa: ARG001
    base_timestamp: int,  # noqa: ARG001
    append_time: int | None,  # noqa: ARG001
    text_keys: bool,  # noqa: ARG001
    in_order: bool,  # noqa: ARG001
    max_bytes: int,  # noqa: ARG001
) -> bytes | None:
    return None


COMPILED = False
plain_slots: PlainSlots = _never
"""plain_slots(records, count, base_timestamp, append_time, text_keys, in_order, max_bytes) -> payload of the messages.

records: the uncompressed records part of a batch. append_time: the timestamp of all records; None: base_timestamp plus
the delta of each record. text_keys: keys that are UTF-8 become text. in_order: the offset deltas have to be
0, 1, ... count - 1.

Returns None when a record is damaged, needs a companion property or has another offset delta, or when the payload is
larger than max_bytes.
"""
if not os.environ.get("MAGNETAR_PURE"):
    try:
        from magnetar.converters.kafka_entry import _slots
    except ImportError:  # no compiler at install time
        pass
    else:
        COMPILED, plain_slots = True, _slots.plain_slots
