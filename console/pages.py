"""The pages: which calls each makes, and the values that its template shows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from magnetar.console.actions import BadFormError, topic_path
from magnetar.console.log_picture import log_picture
from magnetar.console.payload_text import payload_text, split_batch
from magnetar.console.views import TopicRow, sorted_rows, topic_rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from magnetar.console.inner_calls import Answer, InnerCalls

__all__ = ["PAGES", "Page", "Refused", "Visit"]

_MOST_PEEKED: Final = 20
_MOST_DIGITS: Final = 20
_LARGE_BYTES: Final = 128 << 10


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The REST API refused a call that the page needs."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class Visit:
    """One request for a page."""

    rest: InnerCalls
    query: Mapping[str, str]

    def wanted(self, name: str) -> str:
        """A query parameter that the page needs; raises BadFormError without it."""
        value = self.query.get(name, "")
        if not value:
            raise BadFormError(f"the address has no parameter {name}")
        return value

    async def need(self, path: str) -> Any:
        """The JSON of a call; raises Refused."""
        answer = await self.rest.get(path)
        if not answer.ok:
            raise Refused(answer.status, answer.reason)
        return await value_of(answer)

    async def may(self, path: str, default: Any) -> Any:
        """The JSON of a call; `default` where the visitor may not see it."""
        return await value_of(await self.rest.get(path), default)


async def value_of(answer: Answer, default: Any = None) -> Any:
    """The JSON of an answer; a large answer is parsed in a thread."""
    if len(answer.body) <= _LARGE_BYTES:
        return answer.json(default)
    return await asyncio.to_thread(answer.json, default)


class Page(NamedTuple):
    """A template and its values."""

    template: str
    load: Callable[[Visit], Awaitable[dict[str, Any]]]


async def _topics(visit: Visit) -> dict[str, Any]:
    wanted = visit.query.get("find", "")
    answer = await visit.rest.get("/admin/v2/broker-stats/topics")
    if answer.status == 401 and not (await visit.rest.get("/admin/v2/clusters")).ok:
        raise Refused(401, answer.reason)
    found = await value_of(answer, {})
    rows, more = await asyncio.to_thread(lambda: sorted_rows(topic_rows(found), wanted))
    version = (await visit.rest.get("/admin/v2/brokers/version")).body.decode("utf-8", "replace").strip('"')
    health = await visit.rest.get("/admin/v2/brokers/health")
    return {
        "rows": rows,
        "more": more,
        "find": wanted,
        "may_list": answer.ok,
        "version": version,
        "health": "" if health.status in (401, 403) else "ok" if health.ok else health.reason,
        "totals": _totals(rows),
    }


def _totals(rows: list[TopicRow]) -> dict[str, float]:
    names = (
        "rate_in",
        "rate_out",
        "throughput_in",
        "throughput_out",
        "backlog",
        "stored_bytes",
        "producers",
        "consumers",
    )
    return {name: sum(getattr(row, name) for row in rows) for name in names}


async def _namespaces(visit: Visit) -> dict[str, Any]:
    tenants = await visit.need("/admin/v2/tenants")
    found = await asyncio.gather(
        *(visit.may(f"/admin/v2/namespaces/{quote(tenant, safe='')}", []) for tenant in tenants[:200])
    )
    return {"tenants": list(zip(tenants, found, strict=False)), "more": max(0, len(tenants) - 200)}


async def _namespace(visit: Visit) -> dict[str, Any]:
    name = visit.wanted("name")
    tenant, _, namespace = name.partition("/")
    base = f"/admin/v2/namespaces/{quote(tenant, safe='')}/{quote(namespace, safe='')}"
    topics = await visit.need(f"{base}/topics")
    policies = await visit.may(base, None)
    return {
        "name": name,
        "topics": sorted(topics)[:1000],
        "more": max(0, len(topics) - 1000),
        "policies": {key: value for key, value in sorted((policies or {}).items()) if value not in (None, {}, [])},
        "permissions": await visit.may(f"{base}/permissions", None),
    }


async def _topic(visit: Visit) -> dict[str, Any]:
    name = visit.wanted("name")
    path = topic_path(name)
    partitions = (await visit.may(f"{path}/partitions", {})).get("partitions", 0)
    if partitions:
        stats = await visit.need(f"{path}/partitioned-stats?perPartition=true")
        parts = [TopicRow.of(part, found) for part, found in sorted(stats.get("partitions", {}).items())]
        row, schema = TopicRow.of(name, stats), await _schema(visit, name)
        return {"name": name, "stats": stats, "row": row, "parts": parts, "schema": schema, **_NO_LOG}
    stats = await visit.need(f"{path}/stats")
    persistent = name.startswith("persistent://")
    internal = await visit.may(f"{path}/internalStats", {}) if persistent else {}
    return {
        "name": name,
        "stats": stats,
        "row": TopicRow.of(name, stats),
        "parts": [],
        "picture": log_picture(internal),
        "internal": internal,
        "delayed": await visit.may(f"{path}/delayedMessages", {}) if persistent else {},
        "schema": await _schema(visit, name),
    }


_NO_LOG: Final[Mapping[str, Any]] = {"picture": None, "internal": {}, "delayed": {}}


async def _schema(visit: Visit, name: str) -> dict[str, Any]:
    """The topic's last schema: type, data and version; empty for a topic without a schema."""
    domain, _, rest = name.partition("://")
    del domain
    base = rest.rpartition("-partition-")[0] or rest
    path = "/".join(quote(part, safe="") for part in base.split("/", 2))
    found = await visit.may(f"/admin/v2/schemas/{path}/schema", {})
    return found if isinstance(found, dict) else {}


async def _subscription(visit: Visit) -> dict[str, Any]:
    topic, name = visit.wanted("topic"), visit.wanted("name")
    path = topic_path(topic)
    stats = (await visit.need(f"{path}/stats")).get("subscriptions", {}).get(name)
    if stats is None:
        raise Refused(404, f"The topic has no subscription {name!r}.")
    internal = await visit.may(f"{path}/internalStats", {})
    peek = visit.query.get("peek", "")
    count = min(int(peek), _MOST_PEEKED) if peek.isascii() and peek.isdigit() and len(peek) < _MOST_DIGITS else 0
    return {
        "topic": topic,
        "name": name,
        "stats": stats,
        "cursor": internal.get("cursors", {}).get(name, {}),
        "peeked": await _peeked(visit, topic, name, count),
        "asked": count,
    }


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message of a backlog, shown without being consumed."""

    position: str
    headers: list[tuple[str, str]]
    kind: str
    text: str
    size: int


async def _peeked(visit: Visit, topic: str, subscription: str, count: int) -> list[PeekedMessage]:
    if not count:
        return []
    schema = await _schema(visit, topic)
    path = f"{topic_path(topic)}/subscription/{quote(subscription, safe='')}/position"
    out: list[PeekedMessage] = []
    for number in range(1, count + 1):
        answer = await visit.rest.get(f"{path}/{number}")
        if answer.status == 404:
            break
        if not answer.ok:
            raise Refused(answer.status, answer.reason)
        out += await asyncio.to_thread(_messages, answer, schema)
    return out


def _messages(answer: Answer, schema: dict[str, Any]) -> list[PeekedMessage]:
    """The messages of an entry: a batch holds several."""
    prefix = "x-pulsar-"
    headers = sorted(
        (name.removeprefix(prefix), value)
        for name, value in answer.headers.items()
        if name.startswith(prefix) and name != f"{prefix}message-id"
    )
    position = answer.headers.get(f"{prefix}message-id", "")
    of_schema = schema.get("type", "NONE"), schema.get("data", "")
    messages = split_batch(answer.body, int(answer.headers.get(f"{prefix}num-batch-message", 0)))
    if messages is None:
        return [PeekedMessage(position, headers, *payload_text(answer.body, *of_schema), len(answer.body))]
    return [
        PeekedMessage(f"{position}:{index}", own + headers, *payload_text(payload, *of_schema), len(payload))
        for index, (own, payload) in enumerate(messages)
    ]


async def _settings(visit: Visit) -> dict[str, Any]:
    values = await visit.need("/admin/v2/brokers/configuration/runtime")
    dynamic = set(await visit.need("/admin/v2/brokers/configuration"))
    changed = await visit.need("/admin/v2/brokers/configuration/values")
    find = visit.query.get("find", "").lower()
    rows = [
        (key, value, key in dynamic, key in changed) for key, value in sorted(values.items()) if find in key.lower()
    ]
    return {"rows": rows, "find": find}


async def _login(_visit: Visit) -> dict[str, Any]:
    return {}


PAGES: Final[Mapping[str, Page]] = {
    "": Page("topics.html", _topics),
    "topics": Page("topics.html", _topics),
    "namespaces": Page("namespaces.html", _namespaces),
    "namespace": Page("namespace.html", _namespace),
    "topic": Page("topic.html", _topic),
    "subscription": Page("subscription.html", _subscription),
    "settings": Page("settings.html", _settings),
    "login": Page("login.html", _login),
}
"""Path below /ui -> page."""
