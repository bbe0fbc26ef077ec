"""The messages that the client of a session in pull mode has permitted."""

from __future__ import annotations

__all__ = ["PullCredit"]

_MOST: int = (1 << 31) - 1


class PullCredit:
    """Permits as Apache Pulsar counts them: a `permit` command that finds none open delivers at least one message, also
    with 0 or fewer; messages so delivered are taken from the next permits.
    """

    def __init__(self) -> None:
        self.room = 0
        """How many messages the session may write now."""
        self._advance = 0
        """Delivered messages less permitted messages."""

    def permit(self, permits: int) -> int:
        """Add the permits of a command; return by how many messages the room grows."""
        before, found = self.room, self._advance
        self._advance = max(found - permits, -_MOST)
        if found >= 0:
            self.room += max(permits - found, 1)
        elif self._advance < 0:
            self.room += permits
        else:
            self.room += found + 1
        self.room = min(self.room, _MOST)
        return max(self.room - before, 0)

    def delivered(self) -> None:
        """A message was written."""
        self.room -= 1
        self._advance += 1
