"""The part of the broker that ownership needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.ownership.cluster_nodes import LoadReport
    from magnetar.broker.ownership.ownership import BrokerAddresses
    from magnetar.broker.ownership.placement_strategies import PlacementRules
    from magnetar.broker.policies.values import BundlesData

__all__ = ["BundleTopics", "OtherBrokers"]


class BundleTopics(Protocol):
    """The access of ownership to the topics of this broker."""

    def default_bundles(self, namespace: str) -> BundlesData | None:
        """Return the bundles of the namespace's policies; None if the namespace does not exist."""
        ...

    def eligible(self, namespace: str, reports: Mapping[str, LoadReport]) -> dict[str, LoadReport]:
        """The brokers, of those with these reports, that may serve the namespace by its isolation policies."""
        ...

    def placement(self) -> PlacementRules:
        """The rules in force now by which a broker is chosen."""
        ...

    async def unload(self, namespace: str, low: int, high: int) -> None:
        """Close the loaded topics whose hash is in ``low..high``; their clients look the topics up again.

        Never raises: changes that can no longer be stored are left to the next owner.
        """
        ...


class OtherBrokers(Protocol):
    """Whether other brokers can be reached."""

    async def answers(self, broker: BrokerAddresses) -> bool:
        """False while the broker is silent and its session may be about to end."""
        ...

    async def until_gone(self, broker: BrokerAddresses, path: str, value: bytes) -> None:
        """Return when the broker answers again, or when its node at the path no longer has this value.

        Raises ServiceNotReadyError when neither happens in time.
        """
        ...
