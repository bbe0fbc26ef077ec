"""Requests about topics that another broker of the cluster serves. The answer to a request about one topic is a
redirect (HTTP 307) to its broker. For a request about a partitioned topic this broker calls the partitions' brokers.
"""

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from starlette.responses import RedirectResponse

from magnetar.broker.admin.call import topic_of
from magnetar.broker.admin.routes import ADMIN
from magnetar.broker.errors import ForeignNamespaceError, RestError
from magnetar.broker.ownership.ownership import BrokerAddresses, Here, ServedAt
from magnetar.broker.slices import in_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.responses import Response

    from magnetar.broker.admin.call import Call
    from magnetar.broker.policies.values import ClusterData
    from magnetar.protocol.topic_name import TopicName

__all__ = [
    "called_elsewhere",
    "is_elsewhere",
    "of_each",
    "redirect_to",
    "redirect_to_owner",
    "sent_elsewhere",
    "sent_to_owner",
    "together",
]

_AT_ONCE: Final = 8
"""Partitions of one request that this broker works on at the same time."""
_SEGMENTS_BEFORE_OPERATION: Final = 7
"""Parts of a path ``/admin/v2/domain/tenant/namespace/topic/...`` before the operation."""

T = TypeVar("T")
_PERMISSIONS: Final = "/permissions"
"""Part of the routes about permissions of a topic, which are policies of its namespace: every broker answers for
persistent topics, whose names all brokers know.
"""
_OF_ALL_PARTITIONS: Final = (
    "/partitions",
    "/createMissedPartitions",
    "/partitioned-stats",
    "/partitioned-internalStats",
)


async def sent_elsewhere(call: "Call", path: str) -> "Response | None":
    """The redirect for a request about one topic that another broker serves; None when this broker answers.

    path: the declared path of the route. Raises ServiceNotReadyError.
    """
    name = topic_of(call.request.path_params) if _is_about_one_topic(path) else None
    if name is None or not call.namespaces.exists(name.namespace) or call.topics.partition_count(name) is not None:
        return None
    if name.persistent and _PERMISSIONS in path:
        return None
    return await sent_to_owner(call, name)


async def sent_to_owner(call: "Call", name: "TopicName") -> "Response | None":
    """The redirect to the broker that serves the topic, or that knows of such a broker; None for this broker. Raises
    ServiceNotReadyError.
    """
    answer = await call.api.ownership.lookup(name, authoritative=call.flag("authoritative"))
    if isinstance(answer, Here):
        return None
    if isinstance(answer, ServedAt):
        return redirect_to_owner(call, answer.owner)
    return redirect_to(call, answer.broker, authoritative=answer.authoritative)


def _is_about_one_topic(path: str) -> bool:
    """Whether requests of this route are about one topic, or one partition."""
    about_topic = path.startswith((f"{ADMIN}/{{domain", f"{ADMIN}/schemas/")) and "{topic}" in path
    return about_topic and not path.endswith(_OF_ALL_PARTITIONS)


def redirect_to_owner(call: "Call", owner: "BrokerAddresses") -> "Response":
    """The redirect of the request to the owner of the bundle: authoritative from the leader alone, as in Apache
    Pulsar. Without the mark a broker that has just given the bundle away does not take the bundle again.
    """
    return redirect_to(call, owner, authoritative=call.api.ownership.leads())


def redirect_to(
    call: "Call", broker: "BrokerAddresses", *, authoritative: bool | None = None, **more: str
) -> "Response":
    """The redirect of the request to the broker. more: query parameters to add; empty values are left out."""
    url = call.request.url
    secure = url.scheme == "https" and broker.web_url_tls
    web = (broker.web_url_tls if secure else broker.web_url or broker.web_url_tls) or ""
    added = {key: value for key, value in more.items() if value}
    if authoritative is not None:
        added = {"authoritative": str(authoritative).lower()} | added
    query = [(key, value) for key, value in call.request.query_params.multi_items() if key not in added]
    query += added.items()
    raw = call.request.scope.get("raw_path") or url.path.encode()
    path = raw.decode("latin-1").partition("?")[0]
    return RedirectResponse(f"{web}{path}?{urlencode(query)}" if query else f"{web}{path}", 307)


def redirect_to_peer(call: "Call", refusal: ForeignNamespaceError) -> "Response":
    """The redirect of the request to the cluster that replaces this cluster in its namespace. Raises the refusal where
    no such cluster has an address.
    """
    known = call.namespaces.clusters.get(refusal.peer) if refusal.peer else None
    url = known and _address_for(call, known)
    if not url:
        raise refusal
    return redirect_to(call, BrokerAddresses(web_url="{0.scheme}://{0.netloc}".format(urlsplit(url))))


def _address_for(call: "Call", cluster: "ClusterData") -> str | None:
    secure = call.request.url.scheme == "https"
    return (
        (cluster.service_url_tls if secure else cluster.service_url) or cluster.service_url or cluster.service_url_tls
    )


def redirect_to_cluster(call: "Call", cluster: str | None) -> "Response | None":
    """The redirect of the request to another known cluster; None for this cluster."""
    if cluster is None or cluster == call.api.settings.cluster_name:
        return None
    if (known := call.namespaces.clusters.get(cluster)) is None:
        return None
    web, web_tls = (
        url and "{0.scheme}://{0.netloc}".format(urlsplit(url)) for url in (known.service_url, known.service_url_tls)
    )
    return redirect_to(call, BrokerAddresses(web_url=web, web_url_tls=web_tls), authoritative=False)


def is_elsewhere(call: "Call", part: "TopicName") -> bool:
    """Whether this broker calls another broker for a partition of the topic of the request."""
    return call.api.peers is not None and part != call.topic() and not call.api.ownership.serves(part)


async def called_elsewhere(call: "Call", part: "TopicName", operation: str | None = None) -> Any:
    """The answer of the partition's broker to the same request, or to another operation. Raises RestError.

    The call has the rights of this broker: check the rights of the caller before.
    """
    raw = (call.request.scope.get("raw_path") or call.request.url.path.encode()).decode("latin-1")
    if operation is None:
        operation = "/".join(raw.partition("?")[0].split("/")[_SEGMENTS_BEFORE_OPERATION:])
    path = f"{ADMIN}/{part.domain}/{part.namespace}/{quote(part.local_name, safe='')}/{operation}".rstrip("/")
    query = [(key, value) for key, value in call.request.query_params.multi_items() if key != "authoritative"]
    # A request that has waited for a place has taken the message of its body: a read of it would wait for ever.
    body = b"" if call.request.method == "GET" else await call.raw_body()
    return await call.peers.call(
        call.request.method,
        f"{path}?{urlencode(query)}" if query else path,
        _value(body),
    )


def _value(body: bytes) -> Any:
    try:
        return json.loads(body) if body.strip() else None
    except (ValueError, RecursionError) as e:
        raise RestError(400, f"body: {e}") from e


async def together(call: "Call", parts: "Sequence[TopicName]", do: "Callable[[TopicName], Awaitable[T]]") -> list[T]:
    """The results of `do` for the parts, in order. Serves all parts, and then raises the first failure; RestError (429)
    when too many such requests wait.
    """
    async with call.walks.place(call.request, len(parts)):
        results = await _results(call, parts, do)
    done = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


async def _results(
    call: "Call", parts: "Sequence[TopicName]", do: "Callable[[TopicName], Awaitable[T]]"
) -> list[T | BaseException]:
    results: list[T | BaseException] = []
    if call.api.peers is None:
        async for part in in_turns(parts):
            try:
                results.append(await do(part))
            except Exception as e:  # noqa: BLE001 - raised by the caller, behind the other parts
                results.append(e)
    else:
        for start in range(0, len(parts), _AT_ONCE):
            several = (do(part) for part in parts[start : start + _AT_ONCE])
            results += await asyncio.gather(*several, return_exceptions=True)
    return results


async def of_each(
    call: "Call",
    parts: "Sequence[TopicName]",
    here: "Callable[[TopicName], Awaitable[Any]]",
    operation: str | None = None,
) -> list[Any]:
    """The result of `here` for each part that this broker serves, and the answer of the broker of each other part."""

    async def one(part: "TopicName") -> Any:
        return await (called_elsewhere(call, part, operation) if is_elsewhere(call, part) else here(part))

    return await together(call, parts, one)
