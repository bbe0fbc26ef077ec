"""The persistent topics of a namespace that match a pattern, for a session.

A watcher of the namespace reports changes at once. Where the broker refuses watchers (a pattern above
subscriptionPatternMaxLength, or brokerSideSubscriptionPatternEvaluation is off), the session asks for the topics once a
minute, as Apache Pulsar's client does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import structlog

from magnetar.broker.topics.patterns import BeyondRe2Error, InvalidPatternError, TopicPattern
from magnetar.broker.websocket.errors import ParameterError, RequestFailedError, SessionRefusedError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.websocket.link import Link
    from magnetar.protocol.answers import Answer

log = structlog.get_logger(__name__)
_WATCHER: Final = 1
LIST_EVERY_S: Final = 60.0
"""The interval of Apache Pulsar's clients (patternAutoDiscoveryPeriod)."""


class MatchingTopics:
    """See the module. `report(created, deleted)`: called with the full names of later changes."""

    def __init__(
        self,
        link: Link,
        tasks: TaskSet,
        namespace: str,
        pattern: str,
        report: Callable[[Sequence[str], Sequence[str]], None],
    ) -> None:
        """pattern: for names without their domain. Raises ParameterError for an invalid pattern."""
        try:
            self._pattern = TopicPattern(pattern)
        except (InvalidPatternError, BeyondRe2Error) as e:
            raise ParameterError(str(e)) from e
        self.cost = self._pattern.cost
        """How many commands take as long as the compilation of the pattern."""
        self._link, self._tasks, self._namespace, self._report = link, tasks, namespace, report
        self._known: set[str] = set()

    async def first(self) -> list[str]:
        """Return the topics that match now, and begin to report changes. Raises SessionRefusedError."""
        self._link.subscribers[pb.BaseCommand.WATCH_TOPIC_UPDATE] = self._on_update
        try:
            found = await self._link.ask(
                lambda request_id: requests.watch_topic_list(request_id, _WATCHER, self._namespace, self._pattern.text)
            )
        except RequestFailedError as e:
            if e.code != pb.NotAllowedError:
                raise SessionRefusedError.of_server_error(e.code, e.message) from e
        else:
            return [name for name in found.topic if _is_persistent(name)]
        try:
            names = await self._listed()
        except RequestFailedError as e:
            raise SessionRefusedError.of_server_error(e.code, e.message) from e
        self._known = set(names)
        self._tasks.spawn(self._list_again(), "websocket.list_topics")
        return names

    def _on_update(self, answer: Answer) -> None:
        update = answer.command.watchTopicUpdate
        self._report(list(filter(_is_persistent, update.new_topics)), update.deleted_topics)

    async def _listed(self) -> list[str]:
        answer: Any = await self._link.ask(
            lambda request_id: requests.topics_of_namespace(
                request_id, self._namespace, pb.CommandGetTopicsOfNamespace.PERSISTENT
            )
        )
        return await self._pattern.filter_in_slices(answer.topics)

    async def _list_again(self) -> None:
        while not self._link.closed:
            await asyncio.sleep(LIST_EVERY_S)
            try:
                found = set(await self._listed())
            except RequestFailedError as e:
                log.info("websocket.topics_not_listed", namespace=self._namespace, reason=e.message)
                continue
            known, self._known = self._known, found
            self._report(sorted(found - known), sorted(known - found))


def _is_persistent(name: str) -> bool:
    return name.startswith("persistent://")
