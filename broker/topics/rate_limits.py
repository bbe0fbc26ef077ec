"""Rate limits of policies and settings: publish, dispatch, subscribe (Apache Pulsar's token buckets).

A bucket holds the tokens of a period and refills steadily. A caller may overdraw the bucket, so that a batch or a burst
passes whole; the next caller waits until the refill has paid the debt. Pure: the clock is an argument.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from magnetar.broker.slices import PUBLISH_RATE

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from magnetar.protocol.runs import EntryRun

UNLIMITED = 1 << 62
LEAST_WAIT_S = 0.016
"""The shortest time of a publish rate: SENDs that wait at a high rate pass in runs of so many seconds."""

_EXACT_S = 1e-6
"""A shorter wait is a rounding error of the clock's seconds."""


class TokenBucket:
    """A bucket of `limit` tokens per `period_s`; a limit of 0 or less is unlimited."""

    __slots__ = ("_at_s", "_limit", "_rate", "_tokens")

    def __init__(self, limit: int, period_s: float, now_s: float) -> None:
        self._limit = limit
        self._rate = limit / period_s if period_s > 0 else float(limit)
        self._tokens = float(limit)
        self._at_s = now_s

    def _refill(self, now_s: float) -> None:
        self._tokens = min(self._limit, self._tokens + (now_s - self._at_s) * self._rate)
        self._at_s = now_s

    def set_limit(self, limit: int, period_s: float, now_s: float) -> None:
        """Set the limit from now on; earlier permits stay valid."""
        self._refill(now_s)
        self._tokens += limit - self._limit
        self._limit = limit
        self._rate = limit / period_s if period_s > 0 else float(limit)

    def take(self, count: int, now_s: float) -> None:
        """Take `count` tokens; the bucket may be in debt afterwards."""
        if self._limit > 0:
            self._refill(now_s)
            self._tokens -= count

    def room(self, now_s: float) -> int:
        """Tokens that are available now; 0 when the bucket is empty or in debt."""
        if self._limit <= 0:
            return UNLIMITED
        self._refill(now_s)
        return max(int(self._tokens), 0)

    def wait_s(self, now_s: float, least_s: float = 0.0) -> float:
        """Seconds until a token is available; until all tokens of `least_s` seconds are, where these are more."""
        if self._limit <= 0:
            return 0.0
        self._refill(now_s)
        return max(0.0, (max(1.0, min(self._rate * least_s, self._limit)) - self._tokens) / self._rate)


class PeriodBucket:
    """A bucket of `limit` tokens that is filled at the end of each period, as for Apache Pulsar's dispatch rates; debt
    counts in the next period. Periods begin when the first token is taken. A limit of 0 or less is unlimited.
    """

    __slots__ = ("_began_s", "_limit", "_period_s", "_taken")

    def __init__(self, limit: int, period_s: float, _now_s: float) -> None:
        self._limit = limit
        self._period_s = period_s if period_s > 0 else 1.0
        self._taken = 0
        self._began_s: float | None = None

    def _renew(self, now_s: float) -> None:
        if self._began_s is None:
            return
        periods = int((now_s - self._began_s) / self._period_s)
        if self._began_s + (periods + 1) * self._period_s <= now_s:  # the quotient was rounded down
            periods += 1
        self._began_s += periods * self._period_s
        self._taken = max(0, self._taken - periods * self._limit)

    def set_limit(self, limit: int, period_s: float, now_s: float) -> None:
        """Set the limit from now on; taken tokens stay taken."""
        self._renew(now_s)
        self._limit = limit
        self._period_s = period_s if period_s > 0 else 1.0

    def take(self, count: int, now_s: float) -> None:
        """Take `count` tokens; the bucket may be in debt afterwards."""
        if self._limit > 0:
            self._renew(now_s)
            self._taken += count
            if self._began_s is None:
                self._began_s = now_s

    def room(self, now_s: float) -> int:
        """Tokens that are available now; 0 when the bucket is empty or in debt."""
        if self._limit <= 0:
            return UNLIMITED
        self._renew(now_s)
        return max(self._limit - self._taken, 0)

    def wait_s(self, now_s: float, _least_s: float = 0.0) -> float:
        """Seconds until a token is available."""
        if self._limit <= 0:
            return 0.0
        self._renew(now_s)
        if self._began_s is None or self._taken < self._limit:
            return 0.0
        return max(0.0, self._began_s + self._taken // self._limit * self._period_s - now_s)


class Limits(NamedTuple):
    """Messages and bytes per period; 0 and less is unlimited."""

    messages: int = 0
    size_bytes: int = 0
    period_s: float = 1.0

    @property
    def is_set(self) -> bool:
        return self.messages > 0 or self.size_bytes > 0


class Throttle:
    """Messages and bytes together, in buckets of that kind."""

    def __init__(
        self,
        limits: Limits,
        monotonic: Callable[[], float],
        bucket: type[TokenBucket | PeriodBucket] = TokenBucket,
    ) -> None:
        self.limits = limits
        self._monotonic = monotonic
        now_s = monotonic()
        self._messages = bucket(limits.messages, limits.period_s, now_s)
        self._bytes = bucket(limits.size_bytes, limits.period_s, now_s)

    def allow_more(self, messages: float, size: float) -> None:
        """Until the next call allow `messages` and `size` (bytes) a second beyond the limits that are set."""
        limits, now_s = self.limits, self._monotonic()
        for bucket, limit, more in (
            (self._messages, limits.messages, messages),
            (self._bytes, limits.size_bytes, size),
        ):
            if limit > 0:
                bucket.set_limit(limit + int(more * limits.period_s), limits.period_s, now_s)

    def take(self, messages: int, size: int) -> None:
        now_s = self._monotonic()
        self._messages.take(messages, now_s)
        self._bytes.take(size, now_s)

    def room(self) -> int:
        """Messages that may go now; 0 when either bucket is used up."""
        now_s = self._monotonic()
        return self._messages.room(now_s) if self._bytes.room(now_s) > 0 else 0

    def room_bytes(self) -> int:
        """Bytes that may go now; 0 when the bucket of bytes is used up."""
        return self._bytes.room(self._monotonic())

    def used_up(self) -> list[str]:
        """The kinds of tokens that have run out: Msg, Bytes."""
        now_s = self._monotonic()
        buckets = (("Msg", self._messages), ("Bytes", self._bytes))
        return [kind for kind, bucket in buckets if bucket.room(now_s) <= 0]

    def wait_s(self, least_s: float = 0.0) -> float:
        """Seconds until `room` is no longer 0, and until the tokens of `least_s` seconds are available."""
        now_s = self._monotonic()
        return max(self._messages.wait_s(now_s, least_s), self._bytes.wait_s(now_s, least_s))


class Throttles:
    """Several throttles that apply together: the dispatch rates of the broker, the topic and the subscription.

    counts_entries: an entry counts as one message, whatever the size of its batch. is_spared: returns whether the rates
    are suspended at the moment: dispatch has no limit and takes no tokens. levels: the names of the throttles; limited:
    how often dispatch had to wait for tokens of a kind at a level.
    """

    def __init__(
        self,
        *throttles: Throttle,
        counts_entries: bool = False,
        is_spared: Callable[[], bool] | None = None,
        levels: Sequence[str] = (),
        limited: Counter[tuple[str, str]] | None = None,
    ) -> None:
        self._throttles = throttles
        self.counts_entries = counts_entries
        self._is_spared = is_spared
        self._levels = levels
        self._limited = limited

    def take(self, messages: int, size: int) -> None:
        if self._is_spared is None or not self._is_spared():
            for throttle in self._throttles:
                throttle.take(messages, size)

    def room(self) -> int:
        if self._is_spared is not None and self._is_spared():
            return UNLIMITED
        return min(throttle.room() for throttle in self._throttles)

    def room_bytes(self) -> int:
        if self._is_spared is not None and self._is_spared():
            return UNLIMITED
        return min(throttle.room_bytes() for throttle in self._throttles)

    def note_wait(self) -> None:
        """Count that dispatch waits for the first throttle that is used up."""
        if self._limited is None:
            return
        for level, throttle in zip(self._levels, self._throttles, strict=True):
            if kinds := throttle.used_up():
                self._limited.update((kind, level) for kind in kinds)
                return

    def wait_s(self) -> float:
        return max(throttle.wait_s() for throttle in self._throttles)


class Holdable(Protocol):
    """A connection that can stop reading for a while."""

    def hold_reading(self, reason: str) -> None: ...
    def release_reading(self, reason: str) -> None: ...


_numbers = itertools.count()


def _last_of(run: EntryRun, start: int, end: int, messages: int, size: int) -> int:
    """Return the end of the entries from `start` on that pass with tokens for so many messages and bytes."""
    if start == 0 and end == run.count and run.total_messages < messages and run.size_bytes < size:
        return end
    counts, offsets = run.message_counts(), run.offset_view()
    for i in range(start, end):
        messages -= max(counts[i], 0)
        size -= offsets[i + 1] - offsets[i] - run.gap
        if messages <= 0 or size <= 0:
            return i + 1
    return end


class PublishThrottle:
    """A publish rate of a topic or of the broker: a connection whose SEND uses up the rate stops, with all commands
    behind this SEND, until the debt is paid and the tokens of LEAST_WAIT_S are there.
    """

    def __init__(
        self, limits: Limits, monotonic: Callable[[], float], call_later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self.limits = limits
        self.times_limited = 0
        self._monotonic = monotonic
        self._throttle = Throttle(limits, monotonic)
        self._call_later = call_later
        self._held: WeakKeyDictionary[Holdable, None] = WeakKeyDictionary()
        """The connections that wait, in order, but for those that ended meanwhile: a debt may take hours."""
        self._has_timer = False
        # A reason per throttle: a connection with producers of several topics waits for the throttle of each topic.
        self._reason = f"{PUBLISH_RATE}-{next(_numbers)}"

    def room(self) -> tuple[int, int]:
        """The messages and the bytes that may pass now."""
        return self._throttle.room(), self._throttle.room_bytes()

    def last_of(self, run: EntryRun, start: int, end: int) -> int:
        """Of the entries from `start` to `end` of a run return the end of those that pass: one at least, and no more
        behind the entry that uses up the tokens.
        """
        return _last_of(run, start, end, *self.room())

    def published(self, connection: Holdable, messages: int, size: int) -> None:
        """Take the tokens of a run that passes; when they are used up the connection waits."""
        self._throttle.take(messages, size)
        if self._throttle.room() > 0 or connection in self._held:
            return
        self.times_limited += 1
        connection.hold_reading(self._reason)
        self._held[connection] = None
        if not self._has_timer:
            self._has_timer = True
            self._call_later(self._throttle.wait_s(LEAST_WAIT_S), self._release)

    def end(self) -> None:
        """Read the held connections again, whatever their debt: the rate no longer holds."""
        self._throttle = Throttle(Limits(), self._monotonic)
        self._release()

    def _release(self) -> None:
        wait_s = self._throttle.wait_s(LEAST_WAIT_S)
        if wait_s > _EXACT_S:  # others published meanwhile
            self._call_later(wait_s, self._release)
            return
        self._has_timer = False
        held, self._held = self._held, WeakKeyDictionary()
        for connection in list(held):
            connection.release_reading(self._reason)


class PublishThrottles:
    """The publish rates of the topic and of the broker; both apply."""

    def __init__(self, topic: PublishThrottle, broker: PublishThrottle) -> None:
        self._topic = topic
        self._broker = broker

    def last_of(self, run: EntryRun, start: int, end: int) -> int:
        """Return the end of the entries that pass both rates; look at no entry behind it. Many entries may wait for one
        of the rates that would all pass the other.
        """
        (messages, size), (broker_messages, broker_size) = self._topic.room(), self._broker.room()
        return _last_of(run, start, end, min(messages, broker_messages), min(size, broker_size))

    def published(self, connection: Holdable, messages: int, size: int) -> None:
        self._topic.published(connection, messages, size)
        self._broker.published(connection, messages, size)


class SubscribeThrottle:
    """Limits how often a consumer may subscribe; address, name and id identify the consumer."""

    def __init__(self, limit: int, period_s: float, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._period_s = period_s
        self._monotonic = monotonic
        self._buckets: dict[tuple[str, str, int], TokenBucket] = {}
        self._swept_s = monotonic()

    def try_subscribe(self, identity: tuple[str, str, int]) -> bool:
        """Count a SUBSCRIBE; False when it exceeds the rate."""
        if self._limit <= 0:
            return True
        now_s = self._monotonic()
        if now_s - self._swept_s > self._period_s:  # a bucket that has refilled need not be remembered
            self._buckets = {k: b for k, b in self._buckets.items() if b.room(now_s) < self._limit}
            self._swept_s = now_s
        bucket = self._buckets.setdefault(identity, TokenBucket(self._limit, self._period_s, now_s))
        if bucket.room(now_s) <= 0:
            return False
        bucket.take(1, now_s)
        return True
