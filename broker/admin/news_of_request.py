"""Requests with a name that another broker of the cluster may have created, or deleted, a moment ago."""

from typing import TYPE_CHECKING, Final

from magnetar.broker.admin.call import decoded, topic_of
from magnetar.broker.admin.routes import NAMESPACE, TOPIC
from magnetar.broker.admin.tenants import TENANT

if TYPE_CHECKING:
    from starlette.requests import Request

    from magnetar.broker.admin.api import BrokerApi
    from magnetar.broker.admin.routes import AdminRoute
    from magnetar.broker.auth.authorizer import Target

__all__ = ["read_news"]

_OF_WHOLE: Final = (TENANT, NAMESPACE, TOPIC + "/partitions")
_METHODS: Final = ("PUT", "DELETE")
"""With these methods the routes create, and refuse an existing name, or delete, and refuse a name in use."""


async def read_news(request: "Request", row: "AdminRoute", target: "Target", api: "BrokerApi") -> None:
    """Return when memory can judge the request; see ``News``. Raises ServiceNotReadyError."""
    news = api.news
    if row.path in _OF_WHOLE and row.method in _METHODS and (wait := news.of_anything()) is not None:
        await wait
    params = request.path_params
    if _lacks_more(params, api) and (wait := news.of_anything()) is not None:
        await wait
    if not target.namespace:
        wait = news.of_tenant(target.tenant) if target.tenant else None
    elif target.topic and (name := topic_of(params)) is not None:
        wait = news.of_topic(name, may_create=False)
    else:
        wait = news.of_namespace(target.namespace)
    if wait is not None:
        await wait


def _lacks_more(params: dict[str, str], api: "BrokerApi") -> bool:
    """Whether the path names a cluster or a group that memory lacks."""
    records = (("cluster", api.namespaces.clusters), ("group", api.namespaces.resource_groups))
    return any(key in params and decoded(str(params[key])) not in known for key, known in records)
