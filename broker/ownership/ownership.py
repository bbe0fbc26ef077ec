"""Ownership of topics, as handlers query it. A standalone broker serves everything (``EverythingHere``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from magnetar.broker.policies.values import BundlesData, LocalPolicies
    from magnetar.protocol.topic_name import TopicName

__all__ = [
    "AskBroker",
    "BrokerAddresses",
    "EverythingHere",
    "Here",
    "LookupAnswer",
    "Ownership",
    "OwnershipDoor",
    "ServedAt",
]


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    """The addresses of another broker; None: the broker does not offer the protocol."""

    service_url: str | None = None
    service_url_tls: str | None = None
    web_url: str | None = None
    web_url_tls: str | None = None
    listeners: tuple[tuple[str, BrokerAddresses], ...] = ()
    """The addresses for clients that name a listener (advertisedListeners), by name."""

    def of(self, listener: str) -> BrokerAddresses | None:
        """Return the addresses of a named listener, or those of the broker without a name; None for an unknown name. A
        listener without web addresses has the web addresses of the broker, as in Apache Pulsar.
        """
        named = dict(self.listeners).get(listener) if listener else self
        if named is None:
            return None
        web, web_tls = named.web_url or self.web_url, named.web_url_tls or self.web_url_tls
        return replace(named, web_url=web, web_url_tls=web_tls)


@dataclass(frozen=True, slots=True)
class Here:
    """This broker serves the topic."""


@dataclass(frozen=True, slots=True)
class ServedAt:
    """Another broker serves the topic: clients connect to that broker."""

    owner: BrokerAddresses


@dataclass(frozen=True, slots=True)
class AskBroker:
    """Another broker decides: clients repeat the lookup there. ``authoritative``: that broker has to serve the
    topic.
    """

    broker: BrokerAddresses
    authoritative: bool


LookupAnswer = Here | ServedAt | AskBroker


class Ownership(Protocol):
    """Decides which broker serves a topic, for lookups and before a topic is loaded."""

    def serves(self, name: TopicName) -> bool:
        """Whether this broker may load and serve the topic now."""
        ...

    async def lookup(self, name: TopicName, *, authoritative: bool) -> LookupAnswer:
        """Find the broker that serves the topic. With ``authoritative`` this broker takes a topic without an owner.

        Raises ServiceNotReadyError (the client repeats the lookup), MetadataError.
        """
        ...

    async def bundle_owner(self, bundle: str) -> LookupAnswer | None:
        """Find the owner of the bundle ``tenant/namespace/0x..._0x...``; None if no broker owns the bundle."""
        ...

    async def release(self, bundle: str) -> bool:
        """Close the bundle's topics and release the bundle; return False if this broker does not own the bundle."""
        ...

    def owned(self) -> list[str] | None:
        """Full names of the bundles that this broker serves; None where it serves all."""
        ...

    def bundles(self, namespace: str) -> BundlesData | None:
        """Return the bundles of the namespace; None if this broker has not read them, or if its policies define
        them.
        """
        ...

    async def lookup_bundle(self, bundle: str, *, authoritative: bool) -> LookupAnswer:
        """Like ``lookup``, for all topics of the bundle ``tenant/namespace/0x..._0x...``. Raises as ``lookup``."""
        ...

    async def assign(self, bundle: str, broker: str) -> bool:
        """Direct lookups of the bundle to the broker with that id while it is registered; return False when another
        broker decides.
        """
        ...

    async def split(self, bundle: str, hashes: Sequence[int]) -> bool:
        """Cut a bundle of this broker at these hashes, all inside it. Its topics stay loaded on this broker.

        Returns False for a bundle of another broker. Raises MetadataError, StorageError; whether the bundle was split
        is then unknown, and this broker serves its topics in both cases.
        """
        ...

    async def local_policies(self, namespace: str) -> LocalPolicies | None:
        """Return the cluster's record of the namespace; None if the namespace's policies contain its members. Raises
        StorageError, MetadataError.
        """
        ...

    async def change_local_policies(self, namespace: str, members: Mapping[str, object]) -> bool:
        """Set members of the local policies, remove members that are None; return False if the namespace's policies
        contain them. Raises as ``local_policies``.
        """
        ...

    async def forget(self, name: str) -> None:
        """Delete the record of the bundles of a deleted namespace, and the nodes that a deleted namespace or tenant
        leaves empty. Raises StorageError.
        """
        ...

    async def brokers(self) -> list[str] | None:
        """Ids of the brokers of the cluster; None outside a cluster."""
        ...

    async def leader(self) -> tuple[str, str] | None:
        """Id and web address of the broker that decides where new bundles go; None outside a cluster."""
        ...

    def leads(self) -> bool:
        """Whether this broker is the leader."""
        ...

    async def close(self) -> None:
        """Release all bundles, in order: take no new topics, close the topics, delete the nodes. Idempotent."""
        ...


class EverythingHere:
    """The ownership of a broker that shares its stores with no other broker."""

    def serves(self, name: TopicName) -> bool:  # noqa: ARG002 - all of them
        return True

    async def lookup(self, name: TopicName, *, authoritative: bool) -> LookupAnswer:  # noqa: ARG002
        return Here()

    async def bundle_owner(self, bundle: str) -> LookupAnswer | None:  # noqa: ARG002
        return Here()

    async def release(self, bundle: str) -> bool:  # noqa: ARG002 - there is no other broker
        return False

    def owned(self) -> list[str] | None:
        return None

    def bundles(self, namespace: str) -> BundlesData | None:  # noqa: ARG002 - as the policies say
        return None

    async def lookup_bundle(self, bundle: str, *, authoritative: bool) -> LookupAnswer:  # noqa: ARG002
        return Here()

    async def assign(self, bundle: str, broker: str) -> bool:  # noqa: ARG002 - there is no other broker
        return True

    async def split(self, bundle: str, hashes: Sequence[int]) -> bool:  # noqa: ARG002 - bundles are a policy only
        return False

    async def local_policies(self, namespace: str) -> LocalPolicies | None:  # noqa: ARG002 - as the policies say
        return None

    async def change_local_policies(self, namespace: str, members: Mapping[str, object]) -> bool:  # noqa: ARG002
        return False

    async def forget(self, name: str) -> None:  # noqa: ARG002 - nothing was kept
        return

    async def brokers(self) -> list[str] | None:
        return None

    async def leader(self) -> tuple[str, str] | None:
        return None

    def leads(self) -> bool:
        return False

    async def close(self) -> None:
        return


class OwnershipDoor:
    """The ownership that all parts of the broker refer to; its implementation changes when the broker joins a
    cluster.
    """

    def __init__(self) -> None:
        self.current: Ownership = EverythingHere()

    def serves(self, name: TopicName) -> bool:
        return self.current.serves(name)

    async def lookup(self, name: TopicName, *, authoritative: bool) -> LookupAnswer:
        return await self.current.lookup(name, authoritative=authoritative)

    async def bundle_owner(self, bundle: str) -> LookupAnswer | None:
        return await self.current.bundle_owner(bundle)

    async def release(self, bundle: str) -> bool:
        return await self.current.release(bundle)

    def owned(self) -> list[str] | None:
        return self.current.owned()

    def bundles(self, namespace: str) -> BundlesData | None:
        return self.current.bundles(namespace)

    async def lookup_bundle(self, bundle: str, *, authoritative: bool) -> LookupAnswer:
        return await self.current.lookup_bundle(bundle, authoritative=authoritative)

    async def assign(self, bundle: str, broker: str) -> bool:
        return await self.current.assign(bundle, broker)

    async def split(self, bundle: str, hashes: Sequence[int]) -> bool:
        return await self.current.split(bundle, hashes)

    async def local_policies(self, namespace: str) -> LocalPolicies | None:
        return await self.current.local_policies(namespace)

    async def change_local_policies(self, namespace: str, members: Mapping[str, object]) -> bool:
        return await self.current.change_local_policies(namespace, members)

    async def forget(self, name: str) -> None:
        await self.current.forget(name)

    async def brokers(self) -> list[str] | None:
        return await self.current.brokers()

    async def leader(self) -> tuple[str, str] | None:
        return await self.current.leader()

    def leads(self) -> bool:
        return self.current.leads()

    async def close(self) -> None:
        await self.current.close()
