"""The functions of the hot path: compiled when the helper was built, else their pure twin.

`MAGNETAR_PURE=1` in the environment takes the twin in any case. Both give equal results for any input
(tests/protocol/test_speed_twins.py). Arrays are ``bytes`` of native int64 ("q") unless noted otherwise; u64 values of
the wire are signed (2^64-1 is -1).

Log record, little-endian: ``u32 body_bytes | u32 crc32c | u64 ledger_id | u64 entry_id | i64 last_add_confirmed |
body``; the checksum covers bytes 0..3 and 8..end. The body is an entry: an optional broker entry metadata part
(``0x0e02 | u32 size | BrokerEntryMetadata``, big-endian) and the client's headers and payload.

cut(buffer, start, end, max_frame_bytes, gap=0) -> (consumed_end, items, error)
    Cut complete frames. Items in stream order: the fields of an EntryRun as a tuple of 14, or (command type, command
    bytes). A malformed or oversized frame ends the cut with the reason in `error`; `items` has the frames before.
    `gap` bytes (at most 1024) are left before each entry of a run, for `stamp_in_place`.
stamp(data, offsets, num_messages, i, j, ledger_id, first_entry_id, last_add_confirmed, broker_timestamp_ms,
        index_before, gap=0) -> (slab, record_offsets)
    Log records of entries i .. j-1 of a run. broker_timestamp_ms < 0: no timestamp; index_before -2: no index, else
    the index of the message before. An entry of no messages (num_messages <= 0) gets neither.
stamp_in_place(data, offsets, num_messages, gap, verified, ledger_id, first_entry_id, last_add_confirmed,
        broker_timestamp_ms, index_before) -> checksum of the records or -1, or None
    Turn the run's own `data` into the records that `stamp` gives for all its entries; `offsets` then are the offsets of
    the records. None, without a change, unless the bytes before each entry take exactly `gap` bytes; the twin always
    gives None.
    Precondition: no other object has used these bytes as a value. verified: each entry begins with its checksum, and
    the checksum is right (then the record's checksum follows from it, and long entries are not read again). -1: the
    checksum of all records together is unknown, because it would need another read of an entry.
scan_records(buffer, start, end, ledger_id or -1, proof=0) -> (record_offsets, valid_end, reason or None)
    The valid records from `start` on; reason why it stopped early: short, crc, ledger, proof, order. A proof other than
    0 must be the field `last_add_confirmed` of each record.
encode_receipts(producer_id, sequence_ids, highest_sequence_ids, i, j, ledger_id, first_entry_id, step=1) -> bytes
    SEND_RECEIPT frames; with step 0 all receipts have the same entry id (duplicates, non-persistent topics).
encode_messages(consumer_id, slab, record_offsets, i, j, partition, mode, consumer_epoch, redelivery_counts) -> bytes
    MESSAGE frames. mode 0: without broker entry metadata, 1: with it, 2: also without checksum. consumer_epoch -1:
    not set.
send_messages(fd, consumer_id, slab, record_offsets, i, j, partition, mode, consumer_epoch) -> bytes
    Send the MESSAGE frames of `encode_messages`, without redelivery counts, to a socket that does not block; return the
    bytes that the socket did not take, all of them where it fails. The compiled helper sends entries from the slab.
encode_picked(consumer_id, slab, record_offsets, picks, partition, mode, consumer_epoch) -> (bytes, record bytes)
    MESSAGE frames of the entries with these indexes (native int64), and the size of their records. Precondition: none
    of these entries was delivered before.
entry_facts(slab, record_offsets, i, j, want_hash) -> Facts
    Facts from each entry's metadata; an unreadable entry counts as one message. key_hashes are 31 bit Murmur hashes
    of the sticky keys: every selector reduces them to its own range.
"""

from __future__ import annotations

import os

from magnetar.protocol import _pure
from magnetar.protocol._pure import RECORD_HEADER, Facts, after_prefix, as_sent, entry_prefix

__all__ = [
    "COMPILED",
    "RECORD_HEADER",
    "Facts",
    "after_prefix",
    "as_sent",
    "cut",
    "encode_messages",
    "encode_picked",
    "encode_receipts",
    "entry_facts",
    "entry_prefix",
    "scan_records",
    "send_messages",
    "stamp",
    "stamp_in_place",
]

COMPILED = False
cut = _pure.cut
stamp = _pure.stamp
stamp_in_place = _pure.stamp_in_place
scan_records = _pure.scan_records
encode_receipts = _pure.encode_receipts
encode_messages = _pure.encode_messages
send_messages = _pure.send_messages
encode_picked = _pure.encode_picked
entry_facts = _pure.entry_facts

if not os.environ.get("MAGNETAR_PURE"):
    try:
        from magnetar.protocol import _speedups
    except ImportError:  # no compiler at install time: the twin is used
        pass
    else:
        COMPILED = True
        cut = _speedups.cut
        stamp = _speedups.stamp
        stamp_in_place = _speedups.stamp_in_place
        scan_records = _speedups.scan_records
        encode_receipts = _speedups.encode_receipts
        encode_messages = _speedups.encode_messages
        send_messages = _speedups.send_messages
        encode_picked = _speedups.encode_picked
        entry_facts = _speedups.entry_facts
