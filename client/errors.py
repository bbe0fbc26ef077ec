"""Errors of work with a broker. Each class carries the exit code of a command (sysexits); its text names the remedy.

ClientError
├── InputError   66   an address, a token or a file cannot be used (EX_NOINPUT)
├── RefusedError 77   the broker refuses, and will refuse again (EX_NOPERM)
│   └── ForeignPeerError 69  the address leads to no broker, or to a broker without a trusted certificate
├── DeduplicationError 78 deduplication is off, or its state cannot be read (EX_CONFIG)
│   └── DeduplicationRefusedError 77  the role may not read the state, or not switch deduplication on
└── RetryError   69   the connection or the producer is gone, or the broker is busy: worth another attempt
    └── BusyError     the broker answers with an error that may pass
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_T = TypeVar("_T")


class ClientError(Exception):
    """Root of the errors of this room."""

    exit_code: ClassVar[int] = 1


class InputError(ClientError):
    """An address, a token or a file that the user gave cannot be used."""

    exit_code = 66


class RefusedError(ClientError):
    """The broker refuses the request, and will refuse its repetition."""

    exit_code = 77


class ForeignPeerError(RefusedError):
    """The peer at the address does not speak the protocol, or has no trusted certificate."""

    exit_code = 69


class DeduplicationError(ClientError):
    """Deduplication is off, or its state cannot be read: a repetition could store messages twice."""

    exit_code = 78


class DeduplicationRefusedError(DeduplicationError):
    """The admin API refuses these credentials: to read whether a topic deduplicates, or to switch deduplication on."""

    exit_code = 77


class RetryError(ClientError):
    """The connection or the producer is gone, or the broker is busy: worth another attempt."""

    exit_code = 69


class BusyError(RetryError):
    """The broker answers with an error that may pass, for example while its disk is full."""


async def retrying(work: Callable[[], Awaitable[_T]], seconds: float) -> _T:
    """Return the result of `work`; repeat `work` after each RetryError, with growing pauses, for so many seconds.

    Raises: the last RetryError; any other error at once.
    """
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, _FIRST_PAUSE_S
    while True:
        try:
            return await work()
        except RetryError:
            if loop.time() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)
