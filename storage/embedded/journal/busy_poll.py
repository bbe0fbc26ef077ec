"""Busy polling: the loop's thread looks for the next event without sleeping, where the event comes within microseconds.

A producer that waits for each receipt has the broker sleep twice for each message: until the frame is on the disk, and
until the next message comes. Each sleep costs the time of a wake-up, and behind it the code runs with cold caches,
which costs more than the wake-up (docs/performance.md). ``QuickLaps`` decides whether such laps follow each other so
quickly that polling is worth the whole processor that it takes meanwhile. Polling through these waits is off by
default.

Behind an early receipt the loop polls for some microseconds in any case: the next message of most such producers comes
within ``TURN_S``, and its frame should begin before the books of the last message are kept. Behind these books the loop
polls for the end of the frame, at most ``END_S``: on a fast disk the frame is about to end.

A poll yields the processor to every other thread that wants it, ends with the first event of any connection, and ends
early where other threads took the processor for longer than a sleep would have lasted.
"""

from __future__ import annotations

import asyncio
import os
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Poll = Callable[[float], int]
    """Waits for the next event of the loop, at most so many seconds, and returns a value of ``Polled``."""

__all__ = ["DISK_S", "END_S", "REST_S", "SLOW_S", "TURN_S", "Pauses", "Poll", "Polled", "QuickLaps", "open_poll"]

REST_S = 0.0003
"""The longest rest of a quick lap in seconds, and the longest poll for the next append."""
DISK_S = 0.0005
"""The longest poll in seconds for the end of a frame. A longer wait is worth a sleep."""
TURN_S = 0.00004
"""The longest poll in seconds for the next message behind an early receipt: about the time that the books take."""
END_S = 0.00008
"""The longest poll in seconds for the end of a frame behind the books of the last message. A disk that takes 0.1 ms
reports within this time; on a slower disk the polls pause.
"""
_FIRST_RESTS = 8
"""So many short rests behind each other begin the polling."""
_FIRST_PAUSE = 4
"""The laps without a poll behind a failed poll; twice as many behind each further failure."""
_FIRST_TURN_PAUSE = 1
"""The same for polls for the next message: a lap without such a poll takes longer by all the books of a message, which
is more than a failed poll costs.
"""
_MOST_PAUSE = 16
_WORTH = 8
"""So many polls with an event outweigh a failed poll: the next pause is the first again."""
SLOW_S = 0.001
"""A frame that the system writes without a thread counts as a failed attempt if it takes longer than these seconds: the
disk is slow, or a client computes on the processor of the kernel's worker that ends the write.
"""
_SYSTEM_PAUSES = (16, 4096, 256)
"""For these frames: the laps behind a slow frame, the most laps, and the frames that outweigh a slow frame."""
_LEAST_PROCESSORS = 2
"""One for the poll, and one for the producer."""


class Polled(IntEnum):
    """How a poll ended."""

    DISTURBED = -1
    """Other threads took the processor meanwhile."""
    NOTHING = 0
    """The time passed without an event."""
    EVENT = 1


class Pauses:
    """The laps that go without a poll, for one of the waits of a lap, or without another attempt that may fail. A pause
    has ``first`` laps, behind a failure soon after a pause twice as many as that pause, at most ``most``; ``worth``
    attempts without a failure make the next pause the first again.
    """

    __slots__ = ("_attempts", "_first", "_left", "_most", "_pause", "_worth")

    def __init__(self, first: int = _FIRST_PAUSE, most: int = _MOST_PAUSE, worth: int = _WORTH) -> None:
        self._pause = self._first = first
        self._most, self._worth = most, worth
        self._left = 0
        self._attempts = 0

    def may_try(self) -> bool:
        """Count a lap; return whether the lap polls, or makes the attempt."""
        if self._left:
            self._left -= 1
            return False
        self._attempts += 1
        return True

    def failed(self) -> None:
        """Note that the attempt of this lap failed: the poll ended without an event."""
        if self._attempts > self._worth:
            self._pause = self._first
        self._left, self._attempts = self._pause, 0
        self._pause = min(2 * self._pause, self._most)


class QuickLaps:
    """Decides whether the loop polls. A lap is the time between two messages of a producer that waits for receipts; it
    consists of the write of a frame and of a rest, in which the journal has no work.

    ``are_quick`` begins behind ``_FIRST_RESTS`` short rests and ends with a long rest.
    """

    __slots__ = ("_short_rests", "are_quick", "disk", "end", "rest", "system", "turn")

    def __init__(self) -> None:
        self.are_quick = False
        self.disk, self.end, self.rest, self.turn = Pauses(), Pauses(), Pauses(), Pauses(_FIRST_TURN_PAUSE)
        self.system = Pauses(*_SYSTEM_PAUSES)
        self._short_rests = 0

    def rested(self, seconds: float) -> None:
        """Count a rest of the journal between the receipt of a lap and the next append."""
        self._short_rests = self._short_rests + 1 if seconds <= REST_S else 0
        self.are_quick = self._short_rests >= _FIRST_RESTS


def open_poll() -> Poll | None:
    """The poll of the running loop. None where the process has a single processor, where the helper was not built,
    where ``MAGNETAR_PURE`` is set, or where the loop has no descriptor to look at.
    """
    if os.environ.get("MAGNETAR_PURE"):
        return None
    try:
        from magnetar.storage.embedded.journal._frame_writer import poll  # noqa: PLC0415 - not built everywhere
    except ImportError:
        return None
    if len(os.sched_getaffinity(0)) < _LEAST_PROCESSORS:
        return None
    descriptor = _descriptor(asyncio.get_running_loop())
    return None if descriptor is None else lambda seconds: poll(descriptor, seconds)


def _descriptor(loop: asyncio.AbstractEventLoop) -> int | None:
    """The epoll descriptor that the loop waits for: neither uvloop nor asyncio has it in the public interface."""
    backend = getattr(loop, "_get_backend_id", None)
    if backend is None:
        backend = getattr(getattr(loop, "_selector", None), "fileno", None)
    found = backend() if backend is not None else None
    return found if isinstance(found, int) and found >= 0 else None
