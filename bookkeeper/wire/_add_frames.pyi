# The compiled helper; what it does stands in packed_runs.py.

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
