"""The iteration order of Java's hash tables, in which Apache Pulsar lists names and properties.

Apache Pulsar does not sort lists and properties over REST and on the wire: it lists names by the slot of their hash
code in a table that doubles when it is three quarters full. Names in the same slot keep the order in which they were
added.
"""

from collections.abc import Iterable
from typing import TypeVar

from magnetar.protocol.key_hash import java_hash

_SMALLEST_TABLE = 16

Key = TypeVar("Key", str, str | None)


def collected_order(keys: Iterable[str]) -> list[str]:
    """The keys in the iteration order of the HashMap of a Java collector (`Collectors.toMap`), which adds keys by
    `merge`: in front of the keys of their slot, and the table doubles a key later.
    """
    given = list(dict.fromkeys(keys))
    return _in_slots(given[::-1], len(given) - 1)


def java_order(keys: Iterable[Key], *, concurrent: bool = False) -> list[Key]:
    """The keys in the iteration order of a Java HashMap, or ConcurrentHashMap, to which they were added in the given
    order; null is in the first slot. A HashMap doubles with the first key beyond three quarters of its size, a
    ConcurrentHashMap a key earlier.
    """
    given = list(dict.fromkeys(keys))
    return _in_slots(given, len(given) + concurrent)


def java_text_key(text: str) -> bytes:
    """The key by which Java sorts a text: its UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def table_slots(counted: int) -> int:
    """The number of slots of the smallest table that holds `counted` keys without doubling."""
    slots = _SMALLEST_TABLE
    while counted > slots * 3 // 4:
        slots *= 2
    return slots


def slot_of(key: str, slots: int) -> int:
    """The slot of the key in a table of so many slots."""
    return _spread(java_hash(key)) & (slots - 1)


def _in_slots(keys: list[Key], counted: int) -> list[Key]:
    """The keys by their slots in a table that holds `counted` keys without doubling."""
    slots = table_slots(counted)
    return sorted(keys, key=lambda key: 0 if key is None else slot_of(key, slots))


def _spread(value: int) -> int:
    return value ^ value >> 16
