"""Topics of other brokers of the cluster, by calls to those brokers."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from magnetar.broker.admin.routes import ADMIN
from magnetar.broker.compat.rest_errors import RestError

if TYPE_CHECKING:
    from magnetar.broker.admin.peer_calls import PeerCalls
    from magnetar.protocol.topic_name import TopicName

__all__ = ["CalledTopics"]


class CalledTopics:
    """See ``TopicsElsewhere``; RestError passes to the caller, which is a request."""

    def __init__(self, calls: PeerCalls) -> None:
        self._calls = calls

    async def delete(self, name: TopicName, *, force: bool) -> None:
        try:
            await self._calls.call("DELETE", f"{_path(name)}?force={str(force).lower()}")
        except RestError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def unload(self, name: TopicName) -> None:
        await self._calls.call("PUT", f"{_path(name)}/unload")

    async def subscriptions(self, name: TopicName) -> list[str]:
        found: list[str] = await self._calls.call("GET", f"{_path(name)}/subscriptions")
        return found

    async def subscribe(self, name: TopicName, subscription: str) -> None:
        twice = quote(quote(subscription, safe=""), safe="")  # as Java's admin client
        first = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        try:
            await self._calls.call("PUT", f"{_path(name)}/subscription/{twice}", first)
        except RestError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise


def _path(name: TopicName) -> str:
    return f"{ADMIN}/{name.domain}/{name.namespace}/{quote(name.local_name, safe='')}"
