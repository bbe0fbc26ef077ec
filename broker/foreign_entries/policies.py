"""The policy for entries that cannot be converted: the broker's settings, unless a property says otherwise.

Namespaces and topics may have properties with the names of the settings; a topic's wins over its namespace's. A value
that is none of the setting's is as good as absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.converters.outcome import FailurePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.foreign_entries.config import ConvertingConfig

FAILURE_POLICY: Final = "messageConverterFailurePolicy"
PARK_ORDERED: Final = "messageConverterParkOrdered"
DEAD_LETTER_ATTEMPTS: Final = "messageConverterDeadLetterAttempts"
_FAILURE_POLICIES: Final = frozenset(map(str, FailurePolicy))


@dataclass(frozen=True, slots=True)
class ConversionPolicy:
    """In force for one topic."""

    failure: FailurePolicy
    holds_order: bool
    """A parked entry of an ordered subscription holds back what follows it."""
    dead_letter_attempts: int


def effective_policy(config: ConvertingConfig, *properties: Mapping[str, str]) -> ConversionPolicy:
    """`properties` from the least to the most particular: the namespace's, then the topic's."""
    failure, ordered, attempts = config.failure_policy, config.park_ordered, config.dead_letter_attempts
    for each in properties:
        value = each.get(FAILURE_POLICY, "").strip().lower()
        failure = value if value in _FAILURE_POLICIES else failure
        value = each.get(PARK_ORDERED, "").strip().lower()
        ordered = value if value in ("block", "pass") else ordered
        value = each.get(DEAD_LETTER_ATTEMPTS, "").strip()
        attempts = int(value) if value.isdecimal() and 0 < int(value) < 1 << 31 else attempts
    return ConversionPolicy(FailurePolicy(failure), ordered == "block", attempts)
