# The compiled helper; speed.py describes it.
from collections.abc import Sequence
from typing import Any

from magnetar.protocol._pure import Facts

def cut(
    buffer: Any, start: int, end: int, max_frame_bytes: int, gap: int = 0, /
) -> tuple[int, list[tuple[Any, ...]], str | None]: ...
def stamp(
    data: bytes,
    offsets: bytes,
    num_messages: bytes,
    i: int,
    j: int,
    ledger_id: int,
    first_entry_id: int,
    last_add_confirmed: int,
    broker_timestamp_ms: int,
    index_before: int,
    gap: int = 0,
    /,
) -> tuple[bytes, bytes]: ...
def stamp_in_place(
    data: bytes,
    offsets: bytes,
    num_messages: bytes,
    gap: int,
    verified: bool,
    ledger_id: int,
    first_entry_id: int,
    last_add_confirmed: int,
    broker_timestamp_ms: int,
    index_before: int,
    /,
) -> int | None: ...
def scan_records(
    buffer: Any, start: int, end: int, ledger_id: int, proof: int = 0, /
) -> tuple[bytes, int, str | None]: ...
def encode_receipts(
    producer_id: int,
    sequence_ids: bytes,
    highest_sequence_ids: bytes,
    i: int,
    j: int,
    ledger_id: int,
    first_entry_id: int,
    step: int = 1,
    /,
) -> bytes: ...
def encode_messages(
    consumer_id: int,
    slab: bytes,
    record_offsets: bytes,
    i: int,
    j: int,
    partition: int,
    mode: int,
    consumer_epoch: int,
    redelivery_counts: Sequence[int] | None,
    /,
) -> bytes: ...
def send_messages(
    fd: int,
    consumer_id: int,
    slab: bytes,
    record_offsets: bytes,
    i: int,
    j: int,
    partition: int,
    mode: int,
    consumer_epoch: int,
    /,
) -> bytes: ...
def encode_picked(
    consumer_id: int,
    slab: bytes,
    record_offsets: bytes,
    picks: bytes,
    partition: int,
    mode: int,
    consumer_epoch: int,
    /,
) -> tuple[bytes, int]: ...
def entry_facts(slab: bytes, record_offsets: bytes, i: int, j: int, want_hash: bool, /) -> Facts: ...
def crc32c(data: Any, value: int = 0, /) -> int: ...
