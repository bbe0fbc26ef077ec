# The compiled function; its contract stands in picking.py.
from typing import Any

def pick(
    murmurs: bytes, parts: list[tuple[int, int]], ledger_id: int, first_entry_id: int, hand: object, /
) -> tuple[dict[Any, tuple[bytes, bytes]], list[int], list[int]]: ...
