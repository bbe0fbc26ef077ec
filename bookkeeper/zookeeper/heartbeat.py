"""The pause after which a silent connection to ZooKeeper counts as lost: at most three quarters of the session.

kazoo pings after a third of the session without a request, and drops the connection unless the answer comes within
another third, less up to 0.4 s: with a session of 6 s each pause of 1.6 to 2 s in ZooKeeper ended the connection, and
the writes under way with it. Here kazoo pings twice as often, and waits for the answer for at least five twelfths of
the session, less 0.4 s: longer, and a server that is gone is noticed as early as before.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Heartbeat", "be_patient"]

_JITTER_S: Final = 0.4
"""kazoo pings up to so much earlier, and looks for the answer only when it could ping again."""


class Heartbeat:
    """In the place of kazoo's event ``ping_outstanding``: it is set only once a ping has had no answer for ``limit_s``.
    kazoo uses it on one of its threads alone.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = 0.0
        self._now_s = now_s
        self._since_s: float | None = None

    def set(self) -> None:
        """Note that kazoo has sent a ping."""
        if self._since_s is None:
            self._since_s = self._now_s()

    def clear(self) -> None:
        """Note an answer, or a new connection."""
        self._since_s = None

    def is_set(self) -> bool:
        """Whether kazoo should drop the connection."""
        return self._since_s is not None and self._now_s() - self._since_s >= self.limit_s


def be_patient(client: Any) -> None:
    """Give this client of kazoo the above pauses; before its start."""
    connection = client._connection  # noqa: SLF001 - kazoo has no setting for its pings
    connect = connection._connect  # noqa: SLF001
    heartbeat = connection.ping_outstanding = Heartbeat()

    def connect_patiently(*arguments: Any) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = connect(*arguments)  # two thirds of the session, the session
        heartbeat.limit_s = max(0.0, read_timeout_ms / 1000 * 5 / 8 - _JITTER_S)
        return read_timeout_ms / 2, connect_timeout_ms

    connection._connect = connect_patiently  # noqa: SLF001
