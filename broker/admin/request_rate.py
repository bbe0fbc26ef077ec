"""How many HTTP requests are answered (httpRequestsLimitEnabled, httpRequestsMaxPerSecond)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings


class RequestRate:
    """A bucket that holds the requests of one second and refills steadily; pure but for its clock."""

    def __init__(self, per_second: float, monotonic: Callable[[], float]) -> None:
        self._per_second = per_second
        self._most = max(per_second, 1.0)
        self._monotonic = monotonic
        self._tokens = self._most
        self._at_s = monotonic()

    @classmethod
    def of(cls, settings: "Settings", monotonic: Callable[[], float]) -> Self | None:
        """The rate of the settings; None when it is off."""
        return cls(settings.http_requests_max_per_second, monotonic) if settings.http_requests_limit_enabled else None

    def admits(self) -> bool:
        """Count one request; False when it is one too many."""
        now_s = self._monotonic()
        self._tokens = min(self._most, self._tokens + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
