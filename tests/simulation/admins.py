"""Administrators: through the broker's own door for commands, and over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import h11

from magnetar.broker.admin.api import MessagePosition
from magnetar.broker.admin_backend.admin_subscriptions import AdminSubscriptions
from magnetar.broker.admin_backend.topic_logs import AdminTopicLogs
from magnetar.broker.errors import BrokerError
from magnetar.broker.topics.lifecycle import ConflictError
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageError
from tests.simulation.history import ViolationError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from random import Random

    from magnetar.broker.broker import Broker
    from tests.simulation.history import Position, TopicHistory
    from tests.simulation.network import Link
    from tests.simulation.world import World

MOST_S = 25.0
"""Virtual seconds in which a request on an open connection is answered, with any faults of the disk."""
UNAVAILABLE = frozenset({500, 503})
"""Answers that a failing disk or a stopping broker explains."""


class Admin(Protocol):
    """An administrator that performs one act."""

    def spawn(self, act: Coroutine[Any, Any, Any]) -> None:
        """Start the act as a task."""
        ...

    async def look(self, known: TopicHistory, kind: str, subscription: str = "") -> None:
        """A call that changes no subscription."""
        ...

    async def change(self, known: TopicHistory, kind: str, subscription: str, place: Position | None = None) -> bool:
        """Change a subscription; return whether the change was certainly made."""
        ...


class DirectAdmin:
    """Calls the methods that every entrance of the broker calls."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._subscriptions = AdminSubscriptions(broker.topics, broker.lifecycle)
        self._logs = AdminTopicLogs(broker.topics, broker.lifecycle, broker.converting)

    def spawn(self, act: Coroutine[Any, Any, Any]) -> None:
        self._broker.tasks.spawn(act, "world.admin")

    async def look(self, known: TopicHistory, kind: str, subscription: str = "") -> None:
        name = TopicName.parse(known.name)
        if kind == "analyze":
            await _try(self._subscriptions.analyze_backlog(name, subscription, None))
        elif kind == "peek":
            await _try(self._subscriptions.peek(name, subscription, 2))
        elif kind == "unload":
            await _try(self._broker.lifecycle.unload(name))
        else:
            await _try(getattr(self._logs, "internal_stats" if kind == "stats" else kind)(name))

    async def expire(self, known: TopicHistory, subscription: str, seconds: int) -> None:
        await _try(self._subscriptions.expire(TopicName.parse(known.name), subscription, seconds))

    async def truncate(self, known: TopicHistory) -> bool:
        return await _try(self._logs.truncate(TopicName.parse(known.name)))

    async def change(self, known: TopicHistory, kind: str, subscription: str, place: Position | None = None) -> bool:
        name, topics = TopicName.parse(known.name), self._subscriptions
        if kind == "delete":
            return await _try(topics.delete_subscription(name, subscription, force=False))
        if place is not None:
            return await _try(topics.reset_to_message(name, subscription, MessagePosition(*place), excluded=False))
        return await _try(topics.skip(name, subscription, None if kind == "skip_all" else 3))


async def _try(act: Any) -> bool:
    try:
        await act
    except (BrokerError, ConflictError, StorageError):
        return False
    return True


class HttpAdmin:
    """Requests over HTTP, each on its own connection. A request without an answer, an answer that no fault explains,
    and stats that lack an existing subscription raise ViolationError.
    """

    def __init__(self, world: World, chance: Random) -> None:
        self._world, self._chance = world, chance

    def spawn(self, act: Coroutine[Any, Any, Any]) -> None:
        self._world.web.spawn(act)

    async def look(self, known: TopicHistory, kind: str, subscription: str = "") -> None:
        path = {
            "unload": ("PUT", "/unload"),
            "trim": ("POST", "/trim"),
            "internal_stats": ("GET", "/internalStats"),
            "stats": ("GET", "/stats?getPreciseBacklog=true"),
            "compact": ("PUT", "/compaction"),
            "analyze": ("POST", f"/subscription/{subscription}/analyzeBacklog"),
            "peek": ("GET", f"/subscription/{subscription}/position/2"),
        }[kind]
        owed = _existing(known)
        status, body = await self.request(path[0], _path(known) + path[1], b"{}" if kind == "analyze" else b"")
        if kind == "stats" and status == 200:
            self._check_stats(known, owed, json.loads(body))

    async def truncate(self, known: TopicHistory) -> bool:
        status, _ = await self.request("DELETE", f"{_path(known)}/truncate", b"")
        return status in (200, 204)

    async def change(self, known: TopicHistory, kind: str, subscription: str, place: Position | None = None) -> bool:
        path, body = f"{_path(known)}/subscription/{subscription}", b""
        if kind == "delete":
            method = "DELETE"
        elif place is not None:
            method, path = "POST", path + "/resetcursor"
            body = json.dumps({"ledgerId": place[0], "entryId": place[1], "isExcluded": False}).encode()
        else:
            method, path = "POST", path + ("/skip_all" if kind == "skip_all" else "/skip/3")
        status, _ = await self.request(method, path, body)
        return status in (200, 204)

    def _check_stats(self, known: TopicHistory, owed: set[tuple[str, int]], stats: dict[str, Any]) -> None:
        for name, _ in owed & _existing(known):
            found = stats["subscriptions"].get(name)
            if found is None or not found["durable"]:
                raise ViolationError(f"{known.name}: stats tell nothing of the durable subscription {name}")

    async def request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """(status, body); (0, b"") when the connection ended before the answer was complete."""
        what = f"{method} {path}"
        answer = _Answer()
        link = self._world.open_web_link(answer.on_bytes, answer.on_end)
        if link is None:
            return 0, b""
        self._world.note(f"asks {what}")
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\n" if body else ""
        link.send(head.encode() + b"\r\n" + body)
        await self._wait(answer, link, what)
        self._world.note(f"answered {answer.status} {what}")
        if answer.status in UNAVAILABLE and not self._world.explains_failures:
            raise ViolationError(f"{what}: {answer.status} {bytes(answer.body)!r} without a fault")
        return answer.status, bytes(answer.body)

    async def _wait(self, answer: _Answer, link: Link, what: str) -> None:
        """Wait for the answer. A half-open or unread link is given up; an open link must get an answer."""
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        while not answer.done.done():
            if loop.time() - begin_s > MOST_S:
                if not (link.half_open or link.stuck or link.is_over):
                    raise ViolationError(f"{what}: no answer in {MOST_S} seconds")
                link.cut()
                answer.on_end()  # at most a part of the answer has arrived
                return
            await asyncio.wait({answer.done}, timeout=10)


class _Answer:
    """One response as it arrives."""

    def __init__(self) -> None:
        self.status, self.body = 0, bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parser = h11.Connection(h11.CLIENT)
        self._parser.send(h11.Request(method="GET", target="/", headers=[("host", "localhost")]))
        self._parser.send(h11.EndOfMessage())

    def on_bytes(self, data: bytes) -> None:
        self._parser.receive_data(data)
        while not self.done.done():
            event = self._parser.next_event()
            if isinstance(event, h11.Response):
                self.status = event.status_code
            elif isinstance(event, h11.Data):
                self.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self.done.set_result(None)
            else:
                return

    def on_end(self) -> None:
        if not self.done.done():
            self.status = 0
            self.done.set_result(None)


def _existing(known: TopicHistory) -> set[tuple[str, int]]:
    """(name, epoch) of the subscriptions that certainly exist; the epoch changes when a subscription is deleted."""
    return {(s.name, s.epoch) for s in known.subscriptions.values() if s.exists}


def _path(known: TopicHistory) -> str:
    domain, _, rest = known.name.partition("://")
    return f"/admin/v2/{domain}/{quote(rest)}"
