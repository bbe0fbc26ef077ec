"""Requests about topics that another broker of the cluster serves: sent there, with a redirect (HTTP 307)."""

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from starlette.responses import RedirectResponse

from magnetar.broker.admin.call import topic_of
from magnetar.broker.admin.routes import ADMIN
from magnetar.broker.ownership.ownership import Here, ServedAt

if TYPE_CHECKING:
    from starlette.responses import Response

    from magnetar.broker.admin.call import Call
    from magnetar.broker.ownership.ownership import BrokerAddresses

__all__ = ["redirect_to", "sent_elsewhere"]

_OF_ALL_PARTITIONS: Final = (
    "/partitions",
    "/createMissedPartitions",
    "/partitioned-stats",
    "/partitioned-internalStats",
)


async def sent_elsewhere(call: "Call", path: str) -> "Response | None":
    """The redirect for a request about one topic that another broker serves; None: it is answered here.

    path: of the route. Raises ServiceNotReadyError.
    """
    about_topic = path.startswith((f"{ADMIN}/{{domain", f"{ADMIN}/schemas/"))
    if not about_topic or "{topic}" not in path or path.endswith(_OF_ALL_PARTITIONS):
        return None
    name = topic_of(call.request.path_params)
    if name is None or not call.namespaces.exists(name.namespace) or call.topics.partition_count(name) is not None:
        return None
    answer = await call.api.ownership.lookup(name, authoritative=call.flag("authoritative"))
    if isinstance(answer, Here):
        return None
    if isinstance(answer, ServedAt):
        return redirect_to(call, answer.owner, authoritative=True)
    return redirect_to(call, answer.broker, authoritative=answer.authoritative)


def redirect_to(call: "Call", broker: "BrokerAddresses", *, authoritative: bool, **more: str) -> "Response":
    """The same request, at that broker. more: members of the query that are not empty."""
    url = call.request.url
    secure = url.scheme == "https" and broker.web_url_tls
    web = (broker.web_url_tls if secure else broker.web_url or broker.web_url_tls) or ""
    added = {"authoritative": str(authoritative).lower()} | {key: value for key, value in more.items() if value}
    query = [(key, value) for key, value in call.request.query_params.multi_items() if key not in added]
    query += added.items()
    raw = call.request.scope.get("raw_path") or url.path.encode()
    path = raw.decode("latin-1").partition("?")[0]
    return RedirectResponse(f"{web}{path}?{urlencode(query)}", 307)
