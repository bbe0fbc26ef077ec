"""The books of one topic: what was converted, what failed and when it is worth another attempt, which converters are
given a rest. All subscriptions share them, and every conversion.

    begin(slab, index, chosen) -> Converted       now: from the cache, or converted here (small and built in)
                                  Declined        no converter takes it after all
                                  Failed          it failed, now or a little while ago
                                  Unavailable     the converter is given a rest
                                  Flight          a worker process is at it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import structlog

from magnetar.broker.converting.candidates import entry_bytes, stored_entry
from magnetar.broker.converting.counters import ConverterCounters
from magnetar.broker.converting.failures import Failed, FailureBook
from magnetar.broker.converting.frames import Answer, Declined
from magnetar.broker.converting.loading import is_foreign
from magnetar.broker.converting.outcomes import Outcome, Unavailable
from magnetar.broker.converting.policies import effective_policy
from magnetar.broker.converting.transformer import SubscriptionTransformer
from magnetar.broker.dispatchers.sift import messages_in
from magnetar.converters.breaker import Breaker, BreakerState
from magnetar.converters.outcome import ConversionFailure, FailureReason
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from magnetar.broker.converting.flights import Key
    from magnetar.broker.converting.policies import ConversionPolicy
    from magnetar.broker.converting.service import Converting
    from magnetar.converters.chain import LoadedConverter
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.slab import Slab

log = structlog.get_logger(__name__)
Properties = Callable[[], tuple[Mapping[str, str], ...]]

INLINE_MAX_MESSAGES: Final = 256
"""A record costs some microseconds however small it is, so entries of more are nothing for the event loop."""


_PROBE_MS: Final = 1_000
"""While another entry tries out whether the converter works again."""


class TopicConverting:
    """Converts entries of one topic. `properties`: of the namespace and of the topic, as they are now."""

    def __init__(self, service: Converting, name: TopicName, properties: Properties) -> None:
        self.service = service
        self.name = name
        self.topic = str(name)
        self.transformers: WeakValueDictionary[str, SubscriptionTransformer] = WeakValueDictionary()
        self.failures = FailureBook(service.now_ms)
        self.counters: dict[str, ConverterCounters] = {}
        self._properties = properties
        self._breakers: dict[str, Breaker] = {}

    def transformer(self, subscription: str) -> SubscriptionTransformer:
        """What the dispatcher of a new subscription calls."""
        transformer = self.transformers[subscription] = SubscriptionTransformer(self, subscription)
        return transformer

    def policy(self) -> ConversionPolicy:
        """What to do with an entry that cannot be converted."""
        return effective_policy(self.service.config, *self._properties())

    def counters_of(self, converter: str) -> ConverterCounters:
        found = self.counters.get(converter)
        if found is None:
            found = self.counters[converter] = ConverterCounters()
        return found

    def open_breakers(self) -> set[str]:
        """Converters that are given a rest now."""
        now_ms = self.service.now_ms()
        return {name for name, each in self._breakers.items() if each.state(now_ms) is not BreakerState.CLOSED}

    # --- conversions ---------------------------------------------------------------------------------------------

    def begin(self, slab: Slab, index: int, chosen: LoadedConverter) -> Outcome:
        """Convert an entry, here or in a worker process, unless the result is known already."""
        service, counters = self.service, self.counters_of(chosen.name)
        position = slab.position(index)
        key = (position.ledger_id, position.entry_id, chosen.tag)
        if (cached := service.cache.get(*key)) is not None:
            counters.cache_hits += 1
            return cached
        flight = service.flights.get(key)
        if flight is not None:
            return flight if flight.answer is None else self.landed_outcome(slab, index, flight.answer)
        failed = self.failures.standing(position)
        if failed is not None:
            return failed
        now_ms = service.now_ms()
        breaker = self._breaker(chosen.name)
        if not breaker.allows(now_ms):
            return Unavailable(max(breaker.wait_ms(now_ms), _PROBE_MS))
        counters.accepted += 1
        entry = stored_entry(slab, index)
        if not is_foreign(chosen) and self._is_small(slab, index):
            started_s = service.clock()
            result = service.chain.convert(entry, chosen)
            if not (isinstance(result, ConversionFailure) and result.reason is FailureReason.OVERSIZE):
                self._landed(key, chosen.name, len(entry), result, service.clock() - started_s)
                return self.landed_outcome(slab, index, result)
        return service.flights.launch(
            key,
            service.pool.submit(self.topic, chosen.name, entry),
            lambda answer, seconds: self._landed(key, chosen.name, len(entry), answer, seconds),
        )

    def landed_outcome(self, slab: Slab, index: int, answer: Answer) -> Outcome:
        """What the answer to an entry means for whoever wants it now."""
        if isinstance(answer, ConversionFailure):
            # It was booked when it came; the book is bounded, so it may have been forgotten.
            return self.failures.last(slab.position(index)) or Failed(answer, 1, self.service.now_ms() + 1000)
        if isinstance(answer, Declined) or answer.identity:
            self.service.candidates.declined(slab, index)
        return answer

    def _is_small(self, slab: Slab, index: int) -> bool:
        return (
            entry_bytes(slab, index) <= self.service.config.inline_max_bytes
            and messages_in(slab, index, index + 1) <= INLINE_MAX_MESSAGES
        )

    def _breaker(self, converter: str) -> Breaker:
        found = self._breakers.get(converter)
        if found is None:
            found = self._breakers[converter] = Breaker(self.service.config.breaker)
        return found

    def _landed(self, key: Key, converter: str, size: int, answer: Answer, seconds: float) -> bool:
        """Book the result of a call; whether it is kept."""
        counters, position = self.counters_of(converter), Position(key[0], key[1])
        counters.latency.add(seconds)
        ok = not (isinstance(answer, ConversionFailure) and (answer.defect or answer.reason is FailureReason.TIMEOUT))
        self._record(converter, ok=ok)
        if isinstance(answer, ConversionFailure):
            counters.failures[answer.reason] += 1
            failure = self.failures.add(position, answer)
            log.warning(
                "entry.not_converted",
                topic=self.topic,
                position=f"{position.ledger_id}:{position.entry_id}",
                converter=answer.converter,
                reason=str(answer.reason),
                attempt=failure.attempts,
                detail=answer.message[:300],
            )
            return True
        self.failures.remove(position)
        if isinstance(answer, Declined):
            return False
        counters.messages += answer.messages
        counters.bytes_in += size
        counters.bytes_out += len(answer.entry)
        return self.service.cache.put(*key, answer)

    def _record(self, converter: str, *, ok: bool) -> None:
        breaker, now_ms = self._breaker(converter), self.service.now_ms()
        before = breaker.state(now_ms)
        breaker.record(ok=ok, now_ms=now_ms)
        after = breaker.state(now_ms)
        if after is BreakerState.OPEN and before is not BreakerState.OPEN:
            log.error("converter.resting", topic=self.topic, converter=converter)
