"""The part of the broker that ownership needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from magnetar.broker.policies.values import BundlesData

__all__ = ["BundleTopics"]


class BundleTopics(Protocol):
    """The topics of this broker, by bundle."""

    def default_bundles(self, namespace: str) -> BundlesData | None:
        """How the namespace's policies cut it; None: there is no such namespace."""
        ...

    async def unload(self, namespace: str, low: int, high: int) -> None:
        """Close the loaded topics whose hash lies in ``low..high``; their clients look them up again.

        Never raises: what cannot be stored any more is another owner's business.
        """
        ...
