# The compiled helper; packed_runs.py, packed_answers.py and packed_batches.py describe it.

def encode_packed(
    data: bytes | memoryview,
    offsets: bytes,
    skip: int,
    ledger_id: int,
    first: int,
    confirmed: int,
    length: int,
    key: bytes,
    opcode: int,
    /,
) -> tuple[bytes, bytes, int]: ...
def records_of_batch(packed: bytes, ledger_id: int, first: int, most: int, /) -> tuple[bytes, bytes]: ...
def join_added(data: bytes, at: int, /) -> tuple[int, int, int, int] | None: ...
