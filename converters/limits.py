"""How much larger than its input an output may be (guarantee G10)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpansionLimits:
    """Limits of one conversion, in bytes.

    max_entry_bytes: hard limit of the converted entry: maxMessageSize plus 10 KiB for metadata and frame.
    max_ratio: output divided by input, once the output is larger than `free_bytes`. Small well-compressed entries
        expand a hundredfold without any harm, which is why the ratio alone would be the wrong measure.
    """

    max_entry_bytes: int = 5 * 1024 * 1024 + 10 * 1024
    max_ratio: int = 16
    free_bytes: int = 1024 * 1024

    def allowed(self, entry_bytes: int) -> int:
        """The largest output for an input of `entry_bytes`."""
        return min(self.max_entry_bytes, max(self.free_bytes, self.max_ratio * entry_bytes))


DEFAULT_LIMITS = ExpansionLimits()
