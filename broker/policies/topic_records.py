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
        """The very same object until the policies change."""
        ...

    def ready(self, namespace: str) -> Awaitable[None] | None:
        """Return None when everything stored for the namespace's topics is known, else an awaitable of that.

        Raises ServiceNotReadyError when the records cannot be read now.
        """
        ...

    async def update(
        self, name: str, change: Callable[[TopicPolicies], TopicPolicies], default: TopicPolicies | None = None
    ) -> TopicPolicies:
        """Store ``change(policies)``, durable on return; without policies it starts from ``default``."""
        ...

    async def delete(self, name: str) -> None:
        """Forget the policies of the topic."""
        ...

    async def forget(self, namespace: str) -> None:
        """The namespace is being deleted: nothing of its topics is kept."""
        ...
