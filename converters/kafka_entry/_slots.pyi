# The compiled helper; fast_slots.py describes it.
def plain_slots(
    records: bytes,
    count: int,
    base_timestamp: int,
    append_time: int | None,
    text_keys: bool,
    in_order: bool,
    max_bytes: int,
    /,
) -> bytes | None: ...
