"""Entries as columns: the metadata of many entries, or of the messages of many batches, as tables of int64. For bulk
readers.

Compiled, else the pure twin, chosen as in `speed.py`. A table is ``bytes`` of native int64, column by column: value r
of column c is element ``c * rows + r``. Offsets count from the beginning of the buffer; a length of -1 means that there
is no such field; number columns are 0 without a value. u64 values of the wire are signed. Metadata are read as
protobuf prescribes: the last of a repeated scalar counts, unknown fields are skipped, and so are known fields of
another wire type; groups, and a KeyValue or EncryptionKeys that is not whole, make metadata unreadable.

entry_columns(buffer, starts, ends, verify) -> table
    A row for each entry ``buffer[starts[i]:ends[i]]`` (native int64 arrays), columns as EntryColumn. `verify`: compute
    the checksums that entries carry. STATUS is an EntryStatus; the other columns are valid only with FINE.
message_columns(buffer, starts, ends, counts, max_rows, entry, start, index)
        -> (table, entry, start, index, broken)
    A row for each message of the uncompressed batches ``buffer[starts[i]:ends[i]]`` of counts[i] messages, columns as
    MessageColumn, beginning with message `index` of batch `entry` at offset `start`; at most max_rows. Returns the
    place of the next call; when `broken`, that message is inconsistent (and the rest of its batch is lost), else entry
    = len(starts) at the end. The payload begins at METADATA_END.
property_columns(buffer, starts, ends, field_number, rows) -> table
    The `rows` properties (KeyValue fields of that number) of the metadata ``buffer[starts[i]:ends[i]]``, in order:
    columns i, key start, key length, value start, value length.
gather(buffers, which, starts, lengths) -> (offsets, data)
    The values ``buffers[which[i]][starts[i] : starts[i] + lengths[i]]`` one behind the other, empty for a length below
    0; native int32 offsets[n + 1] into data, so together at most 2 GiB. At most 4096 buffers.
All raise ValueError for arrays that do not fit the buffer or each other.
"""

from __future__ import annotations

import os

from magnetar.protocol import _pure_columns
from magnetar.protocol._pure_columns import ColumnFlag, EntryColumn, EntryStatus, MessageColumn

__all__ = [
    "COMPILED",
    "ColumnFlag",
    "EntryColumn",
    "EntryStatus",
    "MessageColumn",
    "entry_columns",
    "gather",
    "message_columns",
    "property_columns",
]


COMPILED = False
entry_columns = _pure_columns.entry_columns
message_columns = _pure_columns.message_columns
property_columns = _pure_columns.property_columns
gather = _pure_columns.gather

if not os.environ.get("MAGNETAR_PURE"):
    try:
        from magnetar.protocol import _entry_columns
    except ImportError:  # no compiler at install time: the twin is used
        pass
    else:
        COMPILED = True
        entry_columns = _entry_columns.entry_columns
        message_columns = _entry_columns.message_columns
        property_columns = _entry_columns.property_columns
        gather = _entry_columns.gather
