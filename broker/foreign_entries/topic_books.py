"""The books of one topic: its conversions, its failures with the time of the next attempt, its breakers. All
subscriptions of the topic share the books, and each conversion.

    begin(slab, index, chosen) -> Converted       from the cache, or converted here (small entry, built-in converter)
                                  Declined        no converter takes the entry after all
                                  Failed          the conversion failed, now or before its next attempt was due
                                  Unavailable     the breaker of the converter is open
                                  Flight          a worker process converts the entry
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.dispatchers.sift import messages_in
from magnetar.broker.foreign_entries.candidates import entry_bytes, stored_entry
from magnetar.broker.foreign_entries.config import effective_policy
from magnetar.broker.foreign_entries.counters import ConverterCounters
from magnetar.broker.foreign_entries.failures import Failed, FailureBook
from magnetar.broker.foreign_entries.frames import Answer, Declined
from magnetar.broker.foreign_entries.loading import is_foreign
from magnetar.broker.foreign_entries.outcomes import Outcome, Unavailable
from magnetar.converters.breaker import Breaker, BreakerState
from magnetar.converters.outcome import ConversionFailure, FailureReason
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from magnetar.broker.foreign_entries.config import ConversionPolicy
    from magnetar.broker.foreign_entries.flights import Key
    from magnetar.broker.foreign_entries.tools import ConvertingTools
    from magnetar.converters.chain import LoadedConverter
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.slab import Slab

log = structlog.get_logger(__name__)
Properties = Callable[[], tuple[Mapping[str, str], ...]]

INLINE_MAX_MESSAGES: Final = 256
"""Most messages of an entry that is converted on the event loop: each takes some microseconds, however small it is."""


_PROBE_MS: Final = 1_000
"""Shortest delay of an entry while the breaker is open and another entry tests the converter."""
_REPORT_EVERY_MS: Final = 1_000


class TopicBooks:
    """Converts entries of one topic. `properties` returns the present properties of the namespace and of the topic."""

    def __init__(self, tools: ConvertingTools, name: TopicName, properties: Properties) -> None:
        self.tools = tools
        self.name = name
        self.topic = str(name)
        self.failures = FailureBook(tools.now_ms)
        self.counters: dict[str, ConverterCounters] = {}
        self.raw_bypass = 0
        """The number of entries sent as stored because the consumer asked for stored entries."""
        self._properties = properties
        self._breakers: dict[str, Breaker] = {}
        self._reported_ms = 0

    def policy(self) -> ConversionPolicy:
        """The policy in force for entries that cannot be converted."""
        return effective_policy(self.tools.config, *self._properties())

    def note_bypass(self, entries: int) -> None:
        self.raw_bypass += entries

    def counters_of(self, converter: str) -> ConverterCounters:
        found = self.counters.get(converter)
        if found is None:
            found = self.counters[converter] = ConverterCounters()
        return found

    def open_breakers(self) -> set[str]:
        """Names of the converters whose breakers are not closed now."""
        now_ms = self.tools.now_ms()
        return {name for name, each in self._breakers.items() if each.state(now_ms) is not BreakerState.CLOSED}

    # --- conversions ---------------------------------------------------------------------------------------------

    def begin(self, slab: Slab, index: int, chosen: LoadedConverter) -> Outcome:
        """Return the known result of an entry, or start its conversion, here or in a worker process."""
        tools, counters = self.tools, self.counters_of(chosen.name)
        position = slab.position(index)
        key = (position.ledger_id, position.entry_id, chosen.tag)
        if (cached := tools.cache.get(*key)) is not None:
            counters.cache_hits += 1
            return cached
        flight = tools.flights.get(key)
        if flight is not None:
            return flight if flight.answer is None else self.landed_outcome(slab, index, flight.answer)
        failed = self.failures.standing(position)
        if failed is not None:
            return failed
        wait_ms = self._resting_ms(chosen.name)
        if wait_ms:
            return Unavailable(wait_ms)
        counters.accepted += 1
        entry = stored_entry(slab, index)
        if self._is_small(slab, index, chosen):
            started_s = tools.clock()
            answer = self._try_here(entry, chosen)
            if answer is not None:
                self._landed(key, chosen.name, len(entry), answer, tools.clock() - started_s)
                return self.landed_outcome(slab, index, answer)
        return tools.flights.launch(
            key,
            tools.pool.submit(self.topic, chosen.name, entry),
            lambda answer, seconds: self._landed(key, chosen.name, len(entry), answer, seconds),
        )

    async def convert_unstored(self, slab: Slab, index: int, chosen: LoadedConverter) -> Answer | Unavailable:
        """Convert an entry of a non-persistent topic, in a single attempt and without the cache."""
        tools, counters = self.tools, self.counters_of(chosen.name)
        wait_ms = self._resting_ms(chosen.name)
        if wait_ms:
            return Unavailable(wait_ms)
        counters.accepted += 1
        entry = stored_entry(slab, index)
        started_s = tools.clock()
        answer = self._try_here(entry, chosen) if self._is_small(slab, index, chosen) else None
        if answer is None:
            answer = await tools.pool.submit(self.topic, chosen.name, entry)
        self._book(chosen.name, len(entry), answer, tools.clock() - started_s)
        return answer

    def _try_here(self, entry: bytes, chosen: LoadedConverter) -> Answer | None:
        """Convert on the event loop; None when the result exceeds the inline limits: a worker should convert."""
        answer = self.tools.chain.convert(entry, chosen)
        oversize = isinstance(answer, ConversionFailure) and answer.reason is FailureReason.OVERSIZE
        return None if oversize else answer

    def _resting_ms(self, converter: str) -> int:
        """Time in ms until the converter may be called; 0: the caller must call it now, and `_book` afterwards."""
        breaker, now_ms = self._breaker(converter), self.tools.now_ms()
        return 0 if breaker.allows(now_ms) else max(breaker.wait_ms(now_ms), _PROBE_MS)

    def landed_outcome(self, slab: Slab, index: int, answer: Answer) -> Outcome:
        """The outcome of an answer for a subscription. A declined or unchanged entry is no candidate any more."""
        if isinstance(answer, ConversionFailure):
            # The book recorded this failure when the answer came; being bounded, it may have dropped the failure since.
            return self.failures.last(slab.position(index)) or Failed(answer, 1, self.tools.now_ms() + 1000)
        if isinstance(answer, Declined) or answer.identity:
            self.tools.candidates.declined(slab, index)
        return answer

    def _is_small(self, slab: Slab, index: int, chosen: LoadedConverter) -> bool:
        return (
            entry_bytes(slab, index) <= self.tools.config.inline_max_bytes
            and messages_in(slab, index, index + 1) <= INLINE_MAX_MESSAGES
            and not is_foreign(chosen)
        )

    def _breaker(self, converter: str) -> Breaker:
        found = self._breakers.get(converter)
        if found is None:
            found = self._breakers[converter] = Breaker(self.tools.config.breaker)
        return found

    def _landed(self, key: Key, converter: str, size: int, answer: Answer, seconds: float) -> bool:
        """Record the result of a conversion; return whether the cache or the book of failures keeps it."""
        self._book(converter, size, answer, seconds)
        position = Position(key[0], key[1])
        if isinstance(answer, ConversionFailure):
            attempt = self.failures.add(position, answer).attempts
            self._report(answer, position=f"{position.ledger_id}:{position.entry_id}", attempt=attempt)
            return True
        self.failures.remove(position)
        return not isinstance(answer, Declined) and self.tools.cache.put(*key, answer)

    def _book(self, converter: str, size: int, answer: Answer, seconds: float) -> None:
        """Count the result of a conversion, and pass it to the breaker of the converter."""
        counters = self.counters_of(converter)
        counters.latency.add(seconds)
        breaker, now_ms = self._breaker(converter), self.tools.now_ms()
        before = breaker.state(now_ms)
        if isinstance(answer, ConversionFailure):
            counters.failures[answer.reason] += 1
            breaker.record(ok=not (answer.defect or answer.reason is FailureReason.TIMEOUT), now_ms=now_ms)
        else:
            breaker.record(ok=True, now_ms=now_ms)
            if not isinstance(answer, Declined):
                counters.messages += answer.messages
                counters.bytes_in += size
                counters.bytes_out += len(answer.entry)
        if breaker.state(now_ms) is BreakerState.OPEN and before is not BreakerState.OPEN:
            log.error("converter.resting", topic=self.topic, converter=converter)

    def _report(self, failure: ConversionFailure, **where: object) -> None:
        """Log a failure, at most one a second for the topic."""
        now_ms = self.tools.now_ms()
        if now_ms - self._reported_ms < _REPORT_EVERY_MS:
            return
        self._reported_ms = now_ms
        log.warning(
            "entry.not_converted",
            topic=self.topic,
            converter=failure.converter,
            reason=str(failure.reason),
            detail=failure.message[:300],
            **where,
        )
