"""The part of the broker that ownership needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.ownership.cluster_nodes import LoadReport
    from magnetar.broker.ownership.ownership import BrokerAddresses
    from magnetar.broker.ownership.placement import PlacementRules
    from magnetar.broker.policies.values import BundlesData

__all__ = ["BundleTopics", "OtherBrokers"]


class BundleTopics(Protocol):
    """The topics of this broker, by bundle."""

    def default_bundles(self, namespace: str) -> BundlesData | None:
        """How the namespace's policies cut it; None: there is no such namespace."""
        ...

    def eligible(self, namespace: str, reports: Mapping[str, LoadReport]) -> dict[str, LoadReport]:
        """The brokers, of those with these reports, that may serve the namespace by its isolation policies."""
        ...

    def placement(self) -> PlacementRules:
        """The rules in force now by which a broker is chosen."""
        ...

    async def unload(self, namespace: str, low: int, high: int) -> None:
        """Close the loaded topics whose hash lies in ``low..high``; their clients look them up again.

        Never raises: another owner handles changes that can no longer be stored.
        """
        ...


class OtherBrokers(Protocol):
    """Whether other brokers can be reached."""

    async def answers(self, broker: BrokerAddresses) -> bool:
        """False while the broker is silent and its session may be about to end."""
        ...

    async def until_gone(self, broker: BrokerAddresses, path: str, value: bytes) -> None:
        """Return when the broker answers again, or its node at the path has not this value any more.

        Raises ServiceNotReadyError: neither for long.
        """
        ...
