"""The errors of the pipeline.

PipelineError
├── CorruptEntryError     an entry or message that cannot be read, and `onCorrupt` is `fail`
└── SchemaError           a schema that has no form as columns, or that the writer's values cannot be resolved to
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magnetar.pipeline.damage import Quarantined


class PipelineError(Exception):
    """Root of this room's errors. All of them cross processes: their arguments need not be those of `__init__`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[PipelineError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> PipelineError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class CorruptEntryError(PipelineError):
    """An entry or message that cannot be read. Attribute `quarantined`: where and why."""

    def __init__(self, quarantined: Quarantined) -> None:
        super().__init__(
            f"{quarantined}; with onCorrupt=quarantine such entries are counted and left out, and the job goes on"
        )
        self.quarantined = quarantined


class SchemaError(PipelineError):
    """A schema that has no form as columns, or that the writer's values cannot be resolved to."""
