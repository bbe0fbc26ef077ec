"""The settings of conversion as plain values, and the policy for entries that cannot be converted.

Properties of namespaces and topics may override the settings of the policy, by the names of the settings. A property
of a topic overrides the property of its namespace. A value that the setting does not allow counts as absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.converters.breaker import BreakerSettings
from magnetar.converters.interface import ExpansionLimits
from magnetar.converters.outcome import FailurePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.settings import Settings


_MIB = 1 << 20
_FRAME_BYTES = 10 * 1024
_INLINE_GROWTH = 8
"""Largest output of a conversion on the event loop, in multiples of messageConverterInlineMaxBytes."""
_INLINE_HEADERS: Final = 4096
"""Most headers of a conversion on the event loop: a compressed entry of some hundred bytes may have 65,536."""
FAILURE_POLICY: Final = "messageConverterFailurePolicy"
PARK_ORDERED: Final = "messageConverterParkOrdered"
DEAD_LETTER_ATTEMPTS: Final = "messageConverterDeadLetterAttempts"
_FAILURE_POLICIES: Final = frozenset(map(str, FailurePolicy))


class ConvertingSettingsError(ValueError):
    """The converters cannot be loaded as configured; the message names the setting and the valid values."""


@dataclass(frozen=True, slots=True)
class ConvertingConfig:
    """The settings of the area "Message converters"."""

    specs: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False
    failure_policy: str = "park"
    park_ordered: str = "block"
    dead_letter_attempts: int = 3
    timeout_s: float = 2.0
    inline_max_bytes: int = 32 * 1024
    workers: int = 2
    worker_memory_bytes: int = 1 << 30
    cache_bytes: int = 64 * _MIB
    limits: ExpansionLimits = field(default_factory=ExpansionLimits)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)

    @classmethod
    def of(cls, settings: Settings) -> ConvertingConfig:
        """The configuration of the settings. Raises: ConvertingSettingsError."""
        return cls(
            specs=settings.message_converters,
            values=_values(settings.message_converter_settings),
            optional=settings.message_converters_optional,
            failure_policy=settings.message_converter_failure_policy,
            park_ordered=settings.message_converter_park_ordered,
            dead_letter_attempts=settings.message_converter_dead_letter_attempts,
            timeout_s=settings.message_converter_timeout_millis / 1000,
            inline_max_bytes=settings.message_converter_inline_max_bytes,
            workers=settings.message_converter_workers,
            worker_memory_bytes=settings.message_converter_worker_memory_mb * _MIB,
            cache_bytes=settings.message_converter_cache_size_mb * _MIB,
            limits=ExpansionLimits(
                max_entry_bytes=settings.max_message_size + _FRAME_BYTES,
                max_ratio=settings.message_converter_max_expansion_ratio,
            ),
            breaker=BreakerSettings(
                failure_percent=settings.message_converter_breaker_failure_percent,
                open_ms=settings.message_converter_breaker_open_millis,
            ),
        )

    @property
    def inline_limits(self) -> ExpansionLimits:
        """Limits of conversions on the event loop; a worker process repeats a conversion that exceeds these limits."""
        most = min(self.inline_max_bytes * _INLINE_GROWTH, self.limits.max_entry_bytes)
        return ExpansionLimits(
            max_entry_bytes=most, max_ratio=self.limits.max_ratio, free_bytes=most, max_headers=_INLINE_HEADERS
        )


def _values(pairs: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or "." not in key:
            raise ConvertingSettingsError(f"messageConverterSettings: {pair!r} is not name.key=value")
        values[key] = value
    return values


@dataclass(frozen=True, slots=True)
class ConversionPolicy:
    """The policy in force for one topic."""

    failure: FailurePolicy
    holds_order: bool
    """A parked entry of an ordered subscription holds back the entries behind it."""
    dead_letter_attempts: int


def effective_policy(config: ConvertingConfig, *properties: Mapping[str, str]) -> ConversionPolicy:
    """Return the settings' policy with the overrides of `properties`; later mappings override earlier mappings (the
    namespace's come first, the topic's last).
    """
    failure, ordered, attempts = config.failure_policy, config.park_ordered, config.dead_letter_attempts
    for each in properties:
        value = each.get(FAILURE_POLICY, "").strip().lower()
        failure = value if value in _FAILURE_POLICIES else failure
        value = each.get(PARK_ORDERED, "").strip().lower()
        ordered = value if value in ("block", "pass") else ordered
        value = each.get(DEAD_LETTER_ATTEMPTS, "").strip()
        attempts = int(value) if value.isdecimal() and 0 < int(value) < 1 << 31 else attempts
    return ConversionPolicy(FailurePolicy(failure), ordered == "block", attempts)
