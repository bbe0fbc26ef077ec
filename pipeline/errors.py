"""The errors of the pipeline.

PipelineError
├── CorruptEntryError     an entry or message that cannot be read, and `onCorrupt` is `fail`
└── SchemaError           a schema that has no form as columns, or that the writer's values cannot be resolved to
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.pipeline.damage import Quarantined


class PipelineError(Exception):
    """Root of this room's errors."""


class CorruptEntryError(PipelineError):
    """An entry or message that cannot be read. Attribute `quarantined`: where and why."""

    def __init__(self, quarantined: Quarantined) -> None:
        super().__init__(
            f"{quarantined}; with onCorrupt=quarantine such entries are counted and left out, and the job goes on"
        )
        self.quarantined = quarantined

    def __reduce__(self) -> tuple[type[CorruptEntryError], tuple[Quarantined]]:
        return type(self), (self.quarantined,)  # crosses processes


class SchemaError(PipelineError):
    """A schema that has no form as columns, or that the writer's values cannot be resolved to."""
