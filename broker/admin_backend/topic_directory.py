"""Topics for the admin API: this broker's (`admin.api.TopicsApi`), and other brokers' by calls to them."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from magnetar.broker.admin.routes import ADMIN
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.java_texts import encoded_twice
from magnetar.broker.errors import RestError
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.admin.api import Domain
    from magnetar.broker.admin.peer_calls import PeerCalls
    from magnetar.broker.topics.topic_registry import Topics


class AdminTopics:
    """The broker's side of `TopicsApi`; its docstrings state the guarantees of each call."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._catalog = topics.catalog
        self.offloads_asked: set[TopicName] = set()
        topics.catalog.listen(self._forget_deleted)

    def _forget_deleted(self, _namespace: str, _new: list[str], deleted: list[str]) -> None:
        if self.offloads_asked:
            self.offloads_asked.difference_update(map(TopicName.parse, deleted))

    def names(self, namespace: str, domain: Domain) -> list[str]:
        if domain == "persistent":
            return self._catalog.names(namespace)
        return [str(topic.name) for topic in self._topics.loaded.of_namespace(namespace) if not topic.persistent]

    def partitioned_names(self, namespace: str, domain: Domain) -> list[str]:
        return self._catalog.partitioned_names(namespace, domain)

    async def settled(self, namespace: str) -> None:
        await self._topics.settled(namespace)

    async def read_again(self, namespace: str) -> bool:
        return await self._catalog.read_again(namespace)

    def partition_count(self, name: TopicName) -> int | None:
        found = self._catalog.partitioned(name)
        return None if found is None else found.partitions

    def is_ending(self, name: TopicName) -> bool:
        return self._catalog.is_ending(name)

    def exists(self, name: TopicName) -> bool:
        return self._topics.known(name)

    def has_room(self, name: TopicName, more: int) -> bool:
        return self._topics.has_room(name, more)

    def may_be_created(self, name: TopicName) -> bool:
        return self._topics.may_be_created(name)

    async def partitions_for_clients(self, name: TopicName, *, auto_create: bool) -> int:
        return await self._topics.partitions(name, auto_create=auto_create)

    def loaded_names(self, namespace: str | None = None) -> list[TopicName]:
        loaded = self._topics.loaded
        return [topic.name for topic in (loaded.values() if namespace is None else loaded.of_namespace(namespace))]


__all__ = ["CalledTopics"]

_NEWS_S: Final = 10.0
"""The longest time until a broker sees a partition that another broker has created."""
_RETRY_S: Final = 0.1
_OF_UNKNOWN_TOPICS: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED)
"""Statuses with which a broker that does not have the topic yet refuses a subscription."""


class CalledTopics:
    """See ``TopicsElsewhere``. RestError of a call passes to the caller, the handler of a request."""

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

    async def find_owner(self, name: TopicName) -> None:
        local_name = quote(name.local_name, safe="")
        await self._calls.call("GET", f"/lookup/v2/topic/{name.domain}/{name.namespace}/{local_name}")

    async def brokers(self) -> list[str]:
        found: list[str] = await self._calls.call("GET", f"{ADMIN}/brokers")
        return found

    async def durable(self, name: TopicName) -> list[SubscribeRequest]:
        found: dict[str, Any] = (await self._calls.call("GET", f"{_path(name)}/stats"))["subscriptions"]
        return [
            SubscribeRequest(
                each,
                from_earliest=True,
                properties=dict(stats.get("subscriptionProperties") or {}),
                replicated=bool(stats.get("isReplicated")),
            )
            for each, stats in found.items()
            if stats.get("isDurable", True)
        ]

    async def subscribe(self, name: TopicName, request: SubscribeRequest) -> None:
        """Create the subscription, unless it exists. Repeats the call until the other broker sees the new partition.

        Raises RestError for any other refusal, and when the broker does not see the partition within `_NEWS_S`.
        """
        subscription, replicated = encoded_twice(request.subscription), str(bool(request.replicated)).lower()
        path = f"{_path(name)}/subscription/{subscription}?replicated={replicated}"
        first = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "properties": request.properties}
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _NEWS_S
        while True:
            try:
                await self._calls.call("PUT", path, first)
            except RestError as error:
                if error.reason == rest_refusals.SUBSCRIPTION_EXISTS.text:
                    return
                if error.status not in _OF_UNKNOWN_TOPICS or loop.time() > end_s:
                    raise
                await asyncio.sleep(_RETRY_S)
            else:
                return


def _path(name: TopicName) -> str:
    return f"{ADMIN}/{name.domain}/{name.namespace}/{quote(name.local_name, safe='')}"
