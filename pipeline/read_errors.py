"""Why reading topics ends. The texts name the topic and the remedy.

PipelineError
├── CatalogError        the admin API refuses, or answers what is no answer
│   ├── CatalogUnavailableError  it is not there, or cannot answer now: worth another attempt
│   ├── CatalogRefusedError      it refuses these credentials
│   └── NoSuchTopicError         a topic that was named does not exist
├── DataLossError       messages that were to be read are not stored any more
└── ReadTimeoutError    the broker gave nothing for pollTimeoutMs
"""

from __future__ import annotations

from magnetar.pipeline.errors import PipelineError


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
