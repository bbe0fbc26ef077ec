"""Decides which entries a topic accepts: the same rules for producers, REST and the broker's own entries.

For most runs a comparison of the run's flags and size is enough. Of any other run each entry is checked. Reasons for a
refusal: the entry is damaged, of a transaction, for a shadow topic, not encrypted where the topic requires encryption,
larger than the topic allows, or delayed for longer than the topic allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import ConnectionFatalError
from magnetar.broker.topics.rates_in_force import TopicPublishRate
from magnetar.protocol.metadata import facts_of
from magnetar.protocol.runs import EntryFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.rates_in_force import AnyPublishThrottle, BrokerRates
    from magnetar.protocol.runs import EntryRun

FRAME_PADDING_BYTES = 10 * 1024
"""The bytes of a frame beyond maxMessageSize, for commands and headers."""
_NEEDS_A_LOOK = int(EntryFlag.BAD_CHECKSUM | EntryFlag.NO_ENTRY | EntryFlag.TXN | EntryFlag.SHADOW)
_UNCOUNTED_FLAGS = int(EntryFlag.BAD_CHECKSUM | EntryFlag.SHADOW)
_DELAYED = int(EntryFlag.HAS_DELIVER_AT)

Refusal = tuple[int, str]
"""Pulsar's error code and text."""
UNCOUNTED = (
    wire_refusals.CHECKSUM_FAILED.answer(),
    wire_refusals.ENCRYPTION_REQUIRED.answer(),
    wire_refusals.MESSAGE_ID_OF_SHADOW_TOPICS.answer(),
)
"""The refusals whose SENDs do not count among the publishes of a topic; as in Apache Pulsar all others do."""


class PublishPolicy:
    """The rules of one topic, as its configuration has them now.

    looked_at: flags of entries that need a separate check; throttle: None while neither the topic nor the broker has a
    publish rate.
    """

    def __init__(self, rates: BrokerRates, settings: Settings, *, persistent: bool) -> None:
        self.rate = TopicPublishRate(rates)
        self.throttle: AnyPublishThrottle | None = None
        self.looked_at = _NEEDS_A_LOOK
        self.max_message_bytes = 0
        self._max_chunk_bytes = 0
        self.max_delay_ms = 0
        self.encryption_required = False
        self._settings = settings
        self._persistent = persistent

    def apply(self, config: TopicConfig) -> None:
        """Follow the topic's configuration.

        A topic without its own maxMessageSize accepts every entry that fits a frame, because clients add headers to a
        payload of full size. A topic's own maxMessageSize does not limit chunks.
        """
        self.throttle = self.rate.throttle(config)
        self.encryption_required = config.encryption_required
        own, limit = config.max_message_size, self._settings.max_message_size
        self._max_chunk_bytes = limit + FRAME_PADDING_BYTES
        self.max_message_bytes = own if 0 < own < limit else self._max_chunk_bytes
        if self._persistent:
            self.max_delay_ms = config.delayed_delivery.max_delivery_delay_in_millis
        self.looked_at = _NEEDS_A_LOOK | _DELAYED if self.max_delay_ms else _NEEDS_A_LOOK

    def is_oversize(self, size: int) -> bool:
        """Whether an entry of this size is refused."""
        return size > self.max_message_bytes

    def counted(self, run: EntryRun) -> tuple[int, int]:
        """Messages and bytes of a run that count against a publish rate: all but those of refusals in UNCOUNTED."""
        encrypted = not self.encryption_required or run.all_flags & EntryFlag.ENCRYPTED
        if encrypted and not run.any_flags & _UNCOUNTED_FLAGS:
            return run.total_messages, run.size_bytes
        messages = size = 0
        flags, counts, offsets = run.flag_view(), run.message_counts(), run.offset_view()
        for i in range(run.count):
            if not flags[i] & _UNCOUNTED_FLAGS and (flags[i] & EntryFlag.ENCRYPTED or not self.encryption_required):
                messages += max(counts[i], 0)
                size += offsets[i + 1] - offsets[i] - run.gap
        return messages, size

    def examined(self, run: EntryRun) -> Iterator[tuple[EntryRun, Refusal | None]]:
        """Split a run into parts that may be stored (None) and parts that are refused, in order.

        Raises ConnectionFatalError for a violation that closes the connection.
        """
        flags, offsets, gap = run.flag_view(), run.offset_view(), run.gap
        start, verdict = 0, self._refusal(run, 0, flags[0], offsets[1] - offsets[0] - gap)
        for i in range(1, run.count):
            following = self._refusal(run, i, flags[i], offsets[i + 1] - offsets[i] - gap)
            if following != verdict:
                yield run.slice(start, i), verdict
                start, verdict = i, following
        yield run.slice(start, run.count), verdict

    def _refusal(self, run: EntryRun, i: int, flags: int, size: int) -> Refusal | None:
        if flags & EntryFlag.NO_ENTRY:
            raise ConnectionFatalError("SEND without an entry")
        if flags & EntryFlag.BAD_CHECKSUM:
            return wire_refusals.CHECKSUM_FAILED.answer()
        if self.encryption_required and not flags & EntryFlag.ENCRYPTED:
            return wire_refusals.ENCRYPTION_REQUIRED.answer()
        if size > (self._max_chunk_bytes if flags & EntryFlag.CHUNK else self.max_message_bytes):
            return wire_refusals.MESSAGE_TOO_LARGE.answer()
        if flags & EntryFlag.TXN:
            if not self._persistent:
                raise ConnectionFatalError("SEND of a transaction to a non-persistent topic")
            return wire_refusals.TRANSACTION_BUFFER_DISABLED.answer()
        if flags & EntryFlag.SHADOW:
            return wire_refusals.MESSAGE_ID_OF_SHADOW_TOPICS.answer()
        if self.max_delay_ms and flags & _DELAYED:
            return self._delay_refusal(run, i)
        return None

    def _delay_refusal(self, run: EntryRun, i: int) -> Refusal | None:
        facts = facts_of(run.entry(i))
        due = memoryview(facts.deliver_at).cast("q")[0] if facts.deliver_at is not None else 0
        if due - memoryview(facts.publish_time).cast("q")[0] <= self.max_delay_ms:
            return None
        return wire_refusals.DELAY_TOO_LONG.answer(most_ms=self.max_delay_ms)
