"""The books of one topic: converted entries, failures with the time of the next attempt, suspended converters. All
subscriptions share them, and every conversion.

    begin(slab, index, chosen) -> Converted       now: from the cache, or converted here (small and built in)
                                  Declined        no converter takes it after all
                                  Failed          it failed, now or a little while ago
                                  Unavailable     the converter is given a rest
                                  Flight          a worker process is at it
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
"""A record costs some microseconds however small it is, so entries of more are nothing for the event loop."""


_PROBE_MS: Final = 1_000
"""The delay of an entry while another entry probes whether the converter works again."""
_REPORT_EVERY_MS: Final = 1_000


class TopicBooks:
    """Converts entries of one topic. `properties`: of the namespace and of the topic, as they are now."""

    def __init__(self, tools: ConvertingTools, name: TopicName, properties: Properties) -> None:
        self.tools = tools
        self.name = name
        self.topic = str(name)
        self.failures = FailureBook(tools.now_ms)
        self.counters: dict[str, ConverterCounters] = {}
        self.raw_bypass = 0
        """Entries sent as stored at a consumer's request."""
        self._properties = properties
        self._breakers: dict[str, Breaker] = {}
        self._reported_ms = 0

    def policy(self) -> ConversionPolicy:
        """Decide about an entry that cannot be converted."""
        return effective_policy(self.tools.config, *self._properties())

    def note_bypass(self, entries: int) -> None:
        self.raw_bypass += entries

    def counters_of(self, converter: str) -> ConverterCounters:
        found = self.counters.get(converter)
        if found is None:
            found = self.counters[converter] = ConverterCounters()
        return found

    def open_breakers(self) -> set[str]:
        """Converters that are given a rest now."""
        now_ms = self.tools.now_ms()
        return {name for name, each in self._breakers.items() if each.state(now_ms) is not BreakerState.CLOSED}

    # --- conversions ---------------------------------------------------------------------------------------------

    def begin(self, slab: Slab, index: int, chosen: LoadedConverter) -> Outcome:
        """Convert an entry, here or in a worker process, unless the result is known already."""
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
        """Convert an entry of a non-persistent topic: no other subscription needs it, one attempt."""
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
        """Convert on the event loop; None if the result grows so much that a worker should convert."""
        answer = self.tools.chain.convert(entry, chosen)
        oversize = isinstance(answer, ConversionFailure) and answer.reason is FailureReason.OVERSIZE
        return None if oversize else answer

    def _resting_ms(self, converter: str) -> int:
        """How long the converter is not to be called; 0: call it now, and tell `_book`."""
        breaker, now_ms = self._breaker(converter), self.tools.now_ms()
        return 0 if breaker.allows(now_ms) else max(breaker.wait_ms(now_ms), _PROBE_MS)

    def landed_outcome(self, slab: Slab, index: int, answer: Answer) -> Outcome:
        """The outcome that the answer to an entry has for the subscription that wants the entry now."""
        if isinstance(answer, ConversionFailure):
            # The entry was booked when it came; a bounded book may have dropped it since.
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
        """Book the result of a call; whether it is kept."""
        self._book(converter, size, answer, seconds)
        position = Position(key[0], key[1])
        if isinstance(answer, ConversionFailure):
            attempt = self.failures.add(position, answer).attempts
            self._report(answer, position=f"{position.ledger_id}:{position.entry_id}", attempt=attempt)
            return True
        self.failures.remove(position)
        return not isinstance(answer, Declined) and self.tools.cache.put(*key, answer)

    def _book(self, converter: str, size: int, answer: Answer, seconds: float) -> None:
        """Figures and breaker."""
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
        """Log a failure; a topic full of bad entries does not fill the log."""
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
