"""The errors of the pipeline.

PipelineError
├── CorruptEntryError   an entry or message that cannot be read, and `onCorrupt` is `fail`
├── SchemaError         a schema that has no form as columns, or that the writer's values cannot be resolved to
├── CatalogError        the admin API refuses a request, or its answer lacks a needed value
│   ├── CatalogUnavailableError  the admin API cannot answer now: worth another attempt
│   ├── CatalogRefusedError      the admin API refuses these credentials
│   └── NoSuchTopicError         a topic that was named does not exist
├── DataLossError       messages of the range to be read are not stored any more
└── ReadTimeoutError    the broker gave nothing for pollTimeoutMs

The texts of the last three groups name the topic and the remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magnetar.pipeline.damage import Quarantined


class PipelineError(Exception):
    """Root of this room's errors. All of them pickle, even where `args` differs from the arguments of `__init__`."""

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


class CatalogError(PipelineError):
    """The admin API lacks a needed value."""


class CatalogUnavailableError(CatalogError):
    """The admin API is not there, or cannot answer now."""


class CatalogRefusedError(CatalogError):
    """The admin API refuses these credentials: the token has expired, or the role lacks a right."""


class NoSuchTopicError(CatalogError):
    """A topic that was named does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"topic {self.topic} does not exist (waitingForNonExistedTopic=true makes a stream wait for it)"


class DataLossError(PipelineError):
    """Messages that were to be read are gone."""

    def __init__(self, topic: str, first: object, end: object, why: str) -> None:
        super().__init__(topic, first, end, why)
        self.topic, self.first, self.end, self.why = topic, first, end, why

    def __str__(self) -> str:
        lost = (
            f"{self.end - self.first} messages"
            if isinstance(self.first, int) and isinstance(self.end, int)
            else "messages"
        )
        return (
            f"{lost} of {self.topic} are lost, from {self.first} up to {self.end}: {self.why}. "
            "With failOnDataLoss=false they are passed over and reported."
        )


class ReadTimeoutError(PipelineError):
    """The broker gave nothing for too long."""
