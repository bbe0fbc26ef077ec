"""The output of the chain: a converted entry, or a failure to which the caller applies its policy."""

from __future__ import annotations

import enum
from dataclasses import dataclass

_FIRST_DELAY_MS = 1_000
_LAST_DELAY_MS = 300_000


class FailureReason(enum.StrEnum):
    """Label `reason` of the failures metric."""

    CHECKSUM = "checksum"
    """The stored checksum was wrong: the converter was not called."""
    EXCEPTION = "exception"
    """The converter raised."""
    INVALID = "invalid"
    """The output is no valid Pulsar entry, has another message count, or changed fields that must be kept."""
    OVERSIZE = "oversize"
    """The output would pass an expansion limit."""
    TIMEOUT = "timeout"
    """The caller stopped waiting. Only callers produce this reason, because this room has no clock."""


class FailurePolicy(enum.StrEnum):
    """Values of `messageConverterFailurePolicy` (guarantee G8); applied by the broker."""

    RAW = "raw"
    PARK = "park"
    DLQ = "dlq"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted entry.

    entry: headers-and-payload bytes, ready to be sent; the very object that was given in when `identity` is true.
    messages: num_messages_in_batch, 1 when the entry is no batch; always the stored count (guarantee G4).
    holes: batch indexes that carry no message (control records, offsets removed by compaction). The entry holds a
        compacted_out placeholder there. Java clients skip placeholders; C++, Python and Go clients look only at the
        ack_set of the MESSAGE command, so the broker should clear these bits there and count the holes as acknowledged.
    """

    entry: bytes
    messages: int
    holes: tuple[int, ...] = ()
    identity: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the entry holds no message: every index is a hole (a control batch), so the broker acknowledges the
        entry.
        """
        return len(self.holes) == self.messages


@dataclass(frozen=True, slots=True)
class ConversionFailure:
    """The entry could not be converted; the stored bytes are untouched.

    defect: the converter itself misbehaved (an unexpected exception, an invalid output). False means the data is at
        fault; pass only defects and timeouts to a breaker, so that bad data does not open it.
    """

    reason: FailureReason
    converter: str
    message: str
    defect: bool = False


def park_delay_ms(attempt: int) -> int:
    """Return how long a parked entry waits before attempt number `attempt` + 1: 1 s, 2 s, 4 s ... 5 min."""
    return min(_FIRST_DELAY_MS << min(max(attempt - 1, 0), 16), _LAST_DELAY_MS)
