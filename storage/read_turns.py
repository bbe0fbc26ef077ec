"""When it is useful to read on: connects the pace of small frames with the sockets of producers.

A log that begins its small frames at a pace keeps the appends of producers that do not wait for receipts until the next
frame may begin. Reading such a producer in the meantime costs a turn of the loop for each of its packets, and no append
becomes durable earlier. So a connection stops reading and waits for its turn; all that the producer sends meanwhile
comes with a single read, and this read belongs to the next frame.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ReadTurns"]


class ReadTurns:
    """The connections that wait until the log takes appends again. Loop only.

    The log sets ``is_idle``. The log sets ``is_held`` and owes a ``begin`` from then on, within its pace, whatever
    happens to its frames.
    """

    __slots__ = ("_waiting", "is_held", "is_idle", "last_reader")

    def __init__(self) -> None:
        self.is_held = False
        """Whether a small append that comes now waits for the next frame."""
        self.is_idle = False
        """Whether the log has no work, so that the frame of an append that comes now begins at the end of this turn. A
        log without frames of its own is never idle.
        """
        self.last_reader: object = None
        """The last connection with a large read, by an object of this connection."""
        self._waiting: list[Callable[[], None]] = []

    def wait(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once, with the next ``begin``. Precondition: ``is_held``."""
        self._waiting.append(resume)

    def begin(self) -> None:
        """Let the waiting connections read on, each before the next frame begins."""
        self.is_held = False
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            try:
                resume()
            except Exception as error:  # noqa: BLE001 - a connection that cannot read must not keep others waiting
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a connection cannot read on", "exception": error}
                )
