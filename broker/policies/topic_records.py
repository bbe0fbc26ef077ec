"""The stored policies of single topics: a record of the metadata store, or the topic of events of a cluster."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from magnetar.broker.policies.records import TopicPolicies

__all__ = ["TopicRecords"]


class TopicRecords(Protocol):
    """The policies by full base name (``persistent://tenant/namespace/topic``): partitions share the policies of their
    topic.

    The policies of a namespace are complete after ``ready`` has returned for it.
    """

    def __contains__(self, name: str) -> bool: ...

    def get(self, name: str) -> TopicPolicies | None:
        """Return the policies, the same object until they change; None without policies."""
        ...

    def ready(self, namespace: str) -> Awaitable[None] | None:
        """Return None when all stored policies of the namespace's topics are known, else an awaitable that waits for
        them.

        Raises ServiceNotReadyError when the records cannot be read now.
        """
        ...

    async def update(
        self, name: str, change: Callable[[TopicPolicies], TopicPolicies], default: TopicPolicies | None = None
    ) -> TopicPolicies:
        """Store ``change(policies)``, durable on return; a topic without policies starts from ``default``."""
        ...

    async def delete(self, name: str) -> None:
        """Forget the policies of the topic."""
        ...

    async def forget(self, namespace: str) -> None:
        """Forget the policies of all topics of a namespace that is being deleted."""
        ...
