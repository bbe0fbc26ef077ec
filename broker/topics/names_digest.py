"""The hash of a long sorted list of names that changes by single names, in parts.

The hash is `topics_hash`, the CRC-32C of the joined names. A checksum is linear: the checksum of a text behind another
text is that of as many zero bytes behind the other text, combined with the share of the text itself. So each part of
some hundred names keeps its share, and a change costs the names of its part, not all names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.broker.slices import give_way
from magnetar.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NamesDigest"]

NAMES_OF_A_PART: Final = 256
_PARTS_IN_ONE_TURN: Final = 8


class _Part:
    """Consecutive names: their number, their bytes with the comma before them, and their share of the checksum."""

    __slots__ = ("adds", "names", "size")

    def __init__(self, names: int) -> None:
        self.names = names
        self.size = self.adds = 0


class NamesDigest:
    """The hash of a list that its owner keeps sorted, and of whose changes the owner gives notice."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._changed: set[_Part] = set()
        self._zeros = memoryview(b"")
        self._found: str | None = None

    def reset(self, names: int) -> None:
        """Begin anew with a list of so many names."""
        full, rest = divmod(names, NAMES_OF_A_PART)
        self._parts = [_Part(NAMES_OF_A_PART) for _ in range(full)] + ([_Part(rest)] if rest else [])
        self._changed = set(self._parts)
        self._found = None

    def inserted(self, at: int) -> None:
        """Note that a name has come into the list, at this index."""
        self._found = None
        if not self._parts:
            self._parts.append(_Part(0))
        index = self._index(at)
        part = self._parts[index]
        part.names += 1
        self._changed.add(part)
        if part.names > 2 * NAMES_OF_A_PART:
            later = _Part(part.names // 2)
            part.names -= later.names
            self._parts.insert(index + 1, later)
            self._changed.add(later)

    def deleted(self, at: int) -> None:
        """Note that the name at this index has left the list."""
        self._found = None
        index = self._index(at)
        part = self._parts[index]
        part.names -= 1
        self._changed.add(part)
        if not part.names:
            del self._parts[index]
            self._changed.discard(part)
            if not index and self._parts:  # no comma is before the first name
                self._changed.add(self._parts[0])

    def _index(self, at: int) -> int:
        """The index of the part with the name at an index of the list, or of the last part."""
        for index, part in enumerate(self._parts):
            at -= part.names
            if at < 0:
                return index
        return len(self._parts) - 1

    async def refresh(self, names: Sequence[str]) -> None:
        """Hash the parts that have changed, some in each turn of the event loop, so that ``of`` is quick. The list may
        change meanwhile.
        """
        while len(self._changed) > _PARTS_IN_ONE_TURN:
            self._hash_changed(names, _PARTS_IN_ONE_TURN)
            await give_way()

    def of(self, names: Sequence[str]) -> str:
        """The hash of the names."""
        if self._found is None:
            self._hash_changed(names, len(self._changed))
            found = 0
            for part in self._parts:
                found = crc32c(self._zeros[: part.size], found) ^ part.adds
            self._found = found.to_bytes(4, "little").hex()
        return self._found

    def _hash_changed(self, names: Sequence[str], most: int) -> None:
        start = 0
        for part in self._parts if most else ():
            if part in self._changed:
                text = (("," if start else "") + ",".join(names[start : start + part.names])).encode()
                part.size = len(text)
                if part.size > len(self._zeros):
                    self._zeros = memoryview(bytes(part.size))
                part.adds = crc32c(text) ^ crc32c(self._zeros[: part.size])
                self._changed.discard(part)
                most -= 1
                if not most:
                    return
            start += part.names
