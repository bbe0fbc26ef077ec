"""Places for large commands: how many of them the broker holds parsed at a time.

Ids of messages take twelve times the bytes of their command once they are parsed. Without places a hundred connections
with a command of a MiB each held a GiB, beyond all limits of the memory account, and other clients were refused. A
command without a place waits as bytes. Places go to the addresses in turn.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ParsedCommands:
    """The places of a broker. The limits are in bytes of memory; a command that is alone may exceed them."""

    def __init__(self, per_address: int, total: int) -> None:
        self._per_address = per_address
        self._total = total
        self._used = 0
        self._of: dict[str, int] = {}
        """Bytes of the taken places, by address."""
        self._waiting: dict[str, deque[Place]] = {}
        """By address, in the order of their turns."""

    def place(self, address: str, size: int, on_taken: Callable[[], None]) -> Place:
        """Return a place for a command of this address that takes `size` bytes. When the place is not taken yet,
        `on_taken` is called later, unless the place is left before.
        """
        found = Place(self, address, size, on_taken)
        self._waiting.setdefault(address, deque()).append(found)
        for taken in self._let_in():
            if taken is not found:
                taken.on_taken()
        return found

    def _fits_address(self, place: Place) -> bool:
        of_address = self._of.get(place.address, 0)
        return not of_address or of_address + place.size <= self._per_address

    def _fits_total(self, place: Place) -> bool:
        return not self._used or self._used + place.size <= self._total

    def _take(self, place: Place) -> None:
        place.is_taken = True
        self._used += place.size
        self._of[place.address] = self._of.get(place.address, 0) + place.size

    def _leave(self, place: Place) -> None:
        if place.is_taken:
            self._used -= place.size
            self._of[place.address] -= place.size
            if not self._of[place.address]:
                del self._of[place.address]
        else:
            waiting = self._waiting[place.address]
            waiting.remove(place)
            if not waiting:
                del self._waiting[place.address]
        for taken in self._let_in():
            taken.on_taken()

    def _let_in(self) -> list[Place]:
        """Give the free places to the addresses, one to each in turn. No address passes an earlier address that waits
        for the total alone.
        """
        found: list[Place] = []
        before = -1
        while before < len(found):
            before = len(found)
            for address in list(self._waiting):
                waiting = self._waiting[address]
                if not self._fits_address(waiting[0]):
                    continue
                if not self._fits_total(waiting[0]):
                    return found  # smaller commands of other addresses would keep this command out for ever
                self._take(waiting[0])
                found.append(waiting.popleft())
                del self._waiting[address]
                if waiting:
                    self._waiting[address] = waiting
        return found


class Place:
    """The place of one command."""

    __slots__ = ("_places", "address", "is_taken", "on_taken", "size")

    def __init__(self, places: ParsedCommands, address: str, size: int, on_taken: Callable[[], None]) -> None:
        self._places: ParsedCommands | None = places
        self.address = address
        self.size = size
        self.on_taken = on_taken
        self.is_taken = False

    def leave(self) -> None:
        """Free the place, or wait no longer for it; safe to call twice."""
        if self._places is not None:
            places, self._places = self._places, None
            places._leave(self)  # noqa: SLF001 - the other half of this class
