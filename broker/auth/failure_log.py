"""One warning per refused proof of a role, bounded: an attacker must not fill the disk with the log of its attempts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_IN_WINDOW", "WINDOW_S", "FailureLog"]

log = structlog.get_logger(__name__)
WINDOW_S: Final = 10.0
MOST_IN_WINDOW: Final = 10


class FailureLog:
    """Logs at most `MOST_IN_WINDOW` failures in `WINDOW_S`; the first line of a later window gives the number of
    failures left out before it as `left_out`. `pulsar_authentication_failures_total` counts all of them. Loop only.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._since_s = now_s()
        self._lines = 0
        self._left_out = 0

    def failed(self, door: str, address: str, method: str, reason: str) -> None:
        """Report one failure.

        door: ``binary`` or ``http``; address: of the peer; method: of the proof, as the peer names it; reason: without
        secrets.
        """
        now_s = self._now_s()
        if now_s - self._since_s >= WINDOW_S:
            self._since_s, self._lines = now_s, 0
        if self._lines >= MOST_IN_WINDOW:
            self._left_out += 1
            return
        self._lines += 1
        more = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        log.warning("authentication.failed", door=door, address=address, method=method, reason=reason, **more)
