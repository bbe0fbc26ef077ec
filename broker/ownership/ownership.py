"""Who serves a topic, as handlers ask it. A broker of its own serves everything (``EverythingHere``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from magnetar.protocol.topic_name import TopicName

__all__ = ["AskBroker", "BrokerAddresses", "EverythingHere", "Here", "LookupAnswer", "Ownership", "ServedAt"]


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    """Where another broker is reached; None: not at all by this protocol."""

    service_url: str | None = None
    service_url_tls: str | None = None
    web_url: str | None = None
    web_url_tls: str | None = None


@dataclass(frozen=True, slots=True)
class Here:
    """This broker serves the topic."""


@dataclass(frozen=True, slots=True)
class ServedAt:
    """Another broker serves it: clients connect there."""

    owner: BrokerAddresses


@dataclass(frozen=True, slots=True)
class AskBroker:
    """Another broker decides; ``authoritative``: it is to serve the topic itself."""

    broker: BrokerAddresses
    authoritative: bool


LookupAnswer = Here | ServedAt | AskBroker


class Ownership(Protocol):
    """Asked by lookups, and before a topic is loaded."""

    def serves(self, name: TopicName) -> bool:
        """Whether this broker may load and serve the topic now."""
        ...

    async def lookup(self, name: TopicName, *, authoritative: bool) -> LookupAnswer:
        """Who serves the topic. An ``authoritative`` question makes this broker serve what no other one does.

        Raises ServiceNotReadyError (ask again), MetadataError.
        """
        ...

    async def close(self) -> None:
        """Give everything to others, in order: no new topics, topics closed, then said so. Idempotent."""
        ...


class EverythingHere:
    """A broker that shares its stores with no other one."""

    def serves(self, name: TopicName) -> bool:  # noqa: ARG002 - all of them
        return True

    async def lookup(self, name: TopicName, *, authoritative: bool) -> LookupAnswer:  # noqa: ARG002
        return Here()

    async def close(self) -> None:
        return
