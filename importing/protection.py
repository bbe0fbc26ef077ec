"""The protection of imported entries in the topic: a durable subscription, or retention without limits.

A topic without either loses its entries: the broker trims ledgers that no subscription needs, and deletes the whole
topic once it is inactive (brokerDeleteInactiveTopicsEnabled).
"""

from __future__ import annotations

import asyncio
import enum
import json
from typing import TYPE_CHECKING, Any

from magnetar.client.deduplication import topic_path
from magnetar.client.errors import RefusedError
from magnetar.protocol import requests

if TYPE_CHECKING:
    from magnetar.client.admin import AdminApi
    from magnetar.importing.progress import Progress
    from magnetar.importing.topic_session import TopicSession
    from magnetar.protocol.topic_name import TopicName

SUBSCRIPTION = "kafka-import"
_CONSUMER_ID = 2
_FOREVER = -1
_RETENTION = json.dumps({"retentionTimeInMinutes": _FOREVER, "retentionSizeInMB": _FOREVER}).encode()


class Protect(enum.StrEnum):
    """The protection that an import gives to a topic that has none."""

    SUBSCRIPTION = "subscription"
    RETENTION = "retention"
    NONE = "none"


class Protection:
    """Protects a topic, once. Prints the protection of the entries, or warns that there is none.

    kept_by: the protection in words, for the report; None before `ensure` returns, or without protection.
    """

    def __init__(self, topic: TopicName, admin: AdminApi, wish: Protect, subscription: str, progress: Progress) -> None:
        self.kept_by: str | None = None
        self._topic = topic
        self._admin = admin
        self._wish = wish
        self._subscription = subscription
        self._progress = progress
        self._done = False

    async def ensure(self, session: TopicSession) -> None:
        """Protect the topic before the first entry is sent. A refusal becomes a warning; the caller handles a lost
        connection.

        Raises: RetryError.
        """
        if self._done:
            return
        self.kept_by = await asyncio.to_thread(self._found)
        if self.kept_by is None:
            try:
                self.kept_by = await self._make(session)
            except (RefusedError, OSError, ValueError) as error:
                self._progress.complain(
                    "warning", f"nothing could be set to keep the entries of {self._topic}: {error}"
                )
        if self.kept_by is None:
            self._progress.complain("warning", _UNPROTECTED.format(topic=self._topic))
        else:
            self._progress.say(f"{self._topic} keeps the imported entries through {self.kept_by}")
        self._done = True

    def _found(self) -> str | None:
        """Describe the protection that the topic already has; None without protection, or when the admin address does
        not answer.
        """
        try:
            stats = self._admin.call("GET", f"{topic_path(self._topic)}/stats")
            durable = [name for name, each in stats.get("subscriptions", {}).items() if each.get("isDurable", True)]
            if durable:
                return f"the subscription {min(durable)}"
            policy = self._admin.call("GET", f"{topic_path(self._topic.base)}/retention?applied=true")
        except (OSError, ValueError):
            return None
        return "the retention policy (no limits)" if _without_limits(policy) else None

    async def _make(self, session: TopicSession) -> str | None:
        """Raises: RefusedError, RetryError, OSError, ValueError."""
        if self._wish is Protect.SUBSCRIPTION:
            name = self._subscription
            await session.connection.ask(lambda n: requests.durable_subscription(n, _CONSUMER_ID, session.topic, name))
            await session.connection.ask(lambda n: requests.close_consumer(n, _CONSUMER_ID))
            return f"the subscription {name}, created now at the first entry"
        if self._wish is Protect.RETENTION:
            path = f"{topic_path(self._topic.base)}/retention"
            await asyncio.to_thread(self._admin.call, "POST", path, _RETENTION)
            return f"the retention policy of {self._topic.base}, set now to no limits"
        return None


def _without_limits(policy: Any) -> bool:
    fields = ("retentionTimeInMinutes", "retentionSizeInMB")
    return isinstance(policy, dict) and all(policy.get(field) == _FOREVER for field in fields)


_UNPROTECTED = (
    "{topic} has no durable subscription and no unlimited retention: the broker may trim its entries as soon as they "
    "are stored, and delete the topic when it is inactive. --protect subscription creates a subscription, --protect "
    "retention sets the retention of the topic"
)
