"""The common part of all sessions, and the paths of sessions below /ws/v2."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import structlog

from magnetar.broker.auth.table import TOPIC_CONSUME, TOPIC_PRODUCE
from magnetar.broker.compat import wire_refusals
from magnetar.broker.tasks import TaskSet
from magnetar.broker.websocket.errors import INTERNAL_ERROR, ParameterError, RequestFailedError, SessionRefusedError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from magnetar.broker.auth.table import Need
    from magnetar.broker.memory_account import MemoryShare
    from magnetar.broker.network.connection_resources import ConnectionResources
    from magnetar.broker.websocket.link import Link


log = structlog.get_logger(__name__)
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_TRIES: Final = 20
"""After so many attempts, about a minute and a half, a session gives up to open its topic again."""
_LASTING: Final = frozenset(
    {pb.AuthorizationError, pb.TopicTerminatedError, pb.NotAllowedError, pb.ProducerFenced, pb.IncompatibleSchema}
)
PARTITIONS_EVERY_S: Final = 60.0
"""The interval of Apache Pulsar's clients (autoUpdatePartitionsInterval)."""
PREFIX: Final = "/ws/v2/"
NEEDS: Final[dict[str, Need]] = {
    "producer": TOPIC_PRODUCE,
    "consumer": TOPIC_CONSUME,
    "reader": TOPIC_CONSUME,
    "topics": TOPIC_CONSUME,
}
"""The kinds of sessions, with the right that each kind requires."""
KINDS: Final = ("producer", "consumer", "reader")
"""The kinds of sessions below /ws/v2."""
_DOMAINS: Final = ("persistent", "non-persistent")
_PARTS_BEFORE_TOPIC: Final = 4
_PARTS_OF_CONSUMER: Final = 6


class SessionPath(NamedTuple):
    """The kind of a session, its topic and, for a consumer, its subscription; for a consumer of several topics also the
    topics, or the pattern of their names.
    """

    kind: str
    topic: TopicName
    subscription: str = ""
    topics: tuple[TopicName, ...] = ()
    pattern: str = ""


def parse_path(path: str) -> SessionPath:
    """Parse a raw path (still percent-encoded, without the query). Raises SessionRefusedError.

    /ws/v2/producer/{domain}/{tenant}/{namespace}/{topic}
    /ws/v2/reader/{domain}/{tenant}/{namespace}/{topic}
    /ws/v2/consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}

    Any other path has the same status as in Apache Pulsar 4.2.
    """
    kind, *parts = path.removeprefix(PREFIX).split("/")
    if not path.startswith(PREFIX) or kind not in KINDS:
        raise SessionRefusedError(404, "no such path")
    if len(parts) < _PARTS_BEFORE_TOPIC or parts[0] not in _DOMAINS:
        raise SessionRefusedError(500, "Invalid topic name format")
    subscription = ""
    if kind == "consumer":
        if len(parts) + 1 != _PARTS_OF_CONSUMER:
            raise ParameterError("Invalid topic name format")
        subscription = unquote(parts.pop())
        if not subscription:
            raise ParameterError(wire_refusals.SUBSCRIPTION_NAME_EMPTY.text)
    topic = "/".join(part for part in parts[3:] if part)
    try:
        name = TopicName.parse(f"{parts[0]}://{unquote(parts[1])}/{unquote(parts[2])}/{unquote(topic)}")
    except InvalidTopicNameError as e:
        raise SessionRefusedError(500, str(e)) from e
    return SessionPath(kind, name, subscription)


class Peer(Protocol):
    """The client's end of a session."""

    def write_text(self, data: bytes) -> None: ...

    def end(self, code: int, reason: str) -> None: ...

    def hold_reading(self, reason: str) -> None: ...

    def release_reading(self, reason: str) -> None: ...

    def wait_for_memory(self) -> None: ...

    @property
    def is_writable(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Place:
    """The surroundings of a session: broker, topic and client. `share`: the account of the session's memory."""

    resources: ConnectionResources
    now_ms: Callable[[], int]
    link: Link
    peer: Peer
    path: SessionPath
    share: MemoryShare


class Session:
    """One session between its client and its link."""

    def __init__(self, place: Place) -> None:
        self.settings = place.resources.settings
        self.now_ms = place.now_ms
        self._lasting_tasks = place.resources.tasks
        self.link = place.link
        self.peer = place.peer
        self.path = place.path
        self.topic = place.path.topic
        self.share = place.share
        self.loop = asyncio.get_running_loop()
        self.tasks = TaskSet()
        self.closed = False

    async def open(self) -> None:
        """Create the producer, consumer or reader of the session. Raises SessionRefusedError."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin the session; its caller has completed the handshake, so that the session may write texts."""

    def on_text(self, text: str) -> None:
        """Handle a text from the client. Raises BadMessageError when the session has to end."""
        raise NotImplementedError

    def on_writable(self) -> None:
        """Continue to write: the peer has read the waiting output."""

    def close(self) -> None:
        """End the session after the loss of the connection. Safe to call twice."""
        self.closed = True
        if len(self.tasks):
            self._lasting_tasks.spawn(self.tasks.close(), "websocket.close")

    # --- requests ------------------------------------------------------------------------------------------------

    async def ask(self, build: Callable[[int], bytes]) -> Any:
        """Send a request as `Link.ask` does, while the session opens. Raises SessionRefusedError."""
        try:
            return await self.link.ask(build)
        except RequestFailedError as e:
            raise SessionRefusedError.of_server_error(e.code, e.message) from e

    async def topic_names(self, topic: TopicName) -> list[str]:
        """Return the topic's name, or the names of its partitions; create a missing topic. Raises
        SessionRefusedError.
        """
        if topic.partition >= 0:
            return [str(topic)]
        found = await self.ask(lambda request_id: requests.partitioned_metadata(request_id, str(topic), create=True))
        if not found.partitions:
            return [str(topic)]
        return [str(topic.partition_name(i)) for i in range(found.partitions)]

    def follow_partitions(
        self, topics: Sequence[TopicName], known: Callable[[], Collection[str]], join: Callable[[str], object]
    ) -> None:
        """Look once in PARTITIONS_EVERY_S for partitions that were added to these topics; call `join` with the name of
        each partition that is not in `known()`, a set or dictionary of names, made for each topic anew.
        """
        self.tasks.spawn(self._follow_partitions(topics, known, join), "websocket.partitions")

    async def _follow_partitions(
        self, topics: Sequence[TopicName], known: Callable[[], Collection[str]], join: Callable[[str], object]
    ) -> None:
        while not self.link.closed:
            await asyncio.sleep(PARTITIONS_EVERY_S)
            for topic in topics:
                try:
                    found = await self.link.ask(
                        lambda request_id, name=str(topic): requests.partitioned_metadata(
                            request_id, name, create=False
                        )  # type: ignore[misc]
                    )
                except RequestFailedError as e:
                    log.info("websocket.partitions_not_found", topic=str(topic), reason=e.message)
                    continue
                names = known()
                for number in range(found.partitions):
                    if (name := str(topic.partition_name(number))) not in names:
                        join(name)

    def reopen(
        self, work: Callable[[], Coroutine[Any, Any, object]], given_up: Callable[[str], None], *, at_once: bool = False
    ) -> None:
        """Open again a part of the session that the broker closed (its topic was unloaded): repeat `work` with pauses,
        also before the first time unless `at_once`. After a lasting error or the last attempt, call `given_up` with the
        reason.
        """
        self.tasks.spawn(self._reopen(work, given_up, at_once=at_once), "websocket.reopen")

    async def _reopen(
        self, work: Callable[[], Coroutine[Any, Any, object]], given_up: Callable[[str], None], *, at_once: bool
    ) -> None:
        pause = _FIRST_PAUSE_S
        for number in range(_TRIES):
            if number or not at_once:
                await asyncio.sleep(pause)
            if self.closed or self.link.closed:
                return
            try:
                await work()
            except RequestFailedError as e:
                if e.code in _LASTING:
                    given_up(e.message)
                    return
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                return
        given_up("the topic is not served")

    def given_up(self, reason: str) -> None:
        """End the session, because a part of it cannot be opened again. A producer overrides this."""
        log.info("websocket.given_up", topic=str(self.topic), reason=reason)
        self.peer.end(INTERNAL_ERROR, reason)
