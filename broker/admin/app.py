"""The HTTP application: finds the route, authenticates and authorizes the client, runs the handler, turns errors into
answers.
"""

import asyncio
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import structlog
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Mount, Route

from magnetar.broker.admin import (
    affinity,
    bookie_routes,
    broker_stats,
    brokers,
    bundles,
    cluster_parts,
    clusters,
    lookup_routes,
    message_routes,
    namespace_policies,
    namespace_routes,
    not_here,
    offload_policies,
    own_routes,
    partitioned_topics,
    permissions,
    produce,
    resource_groups,
    schemas,
    subscription_routes,
    tenants,
    topic_operation_routes,
    topic_policy_routes,
    topic_policy_specials,
    topic_routes,
    upgrades,
)
from magnetar.broker.admin.browser_rules import BrowserRules
from magnetar.broker.admin.call import TAKEN_AS_JSON, Call, decoded, target_of, topic_of
from magnetar.broker.admin.elsewhere import redirect_to_peer, sent_elsewhere
from magnetar.broker.admin.news_of_request import read_news
from magnetar.broker.admin.request_limits import RequestRate, counted
from magnetar.broker.admin.responses import error_response, failure
from magnetar.broker.admin.routes import TOPIC
from magnetar.broker.admin.wide_answers import WideAnswers, paced
from magnetar.broker.auth.authenticator import AuthenticationFailedError
from magnetar.broker.auth.authorizer import Identity, Target
from magnetar.broker.auth.table import PROBE, Action, Resource
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.denied_requests import Claim, denied_text
from magnetar.broker.compat.jetty_http import (
    accepts_json,
    allowed,
    media_type,
    methods_of,
    page,
    plain_path,
    redirect_of_root,
)
from magnetar.broker.errors import ForeignNamespaceError, NoSuchPathError, RestError
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from magnetar.broker.admin.api import BrokerApi
    from magnetar.broker.admin.routes import AdminRoute
    from magnetar.broker.auth.table import Need
    from magnetar.broker.settings import Settings

log = structlog.get_logger(__name__)

# Fixed words before parameters: the first matching route serves a request.
TABLES: Final = (
    lookup_routes,
    brokers,
    broker_stats,
    clusters,
    cluster_parts,
    tenants,
    affinity,
    bookie_routes,
    namespace_routes,
    permissions,
    resource_groups,
    offload_policies,
    own_routes,
    namespace_policies,
    schemas,
    partitioned_topics,
    subscription_routes,
    message_routes,
    topic_operation_routes,
    topic_policy_routes,
    topic_policy_specials,
    topic_routes,
    bundles,
    produce,
    upgrades,
    not_here,
)
_JSON_ALONE: Final = ("/admin/", "/lookup/", "/topics/")
# Families that refuse another content type for every method, with and without a body.
_JSON_ALONE_TAKEN: Final = (
    *(f"/admin/v2/{family}" for family in ("namespaces", "tenants", "resourcegroups", "resource-quotas")),
    *("/topics/", "/admin/v3/transactions"),
)
_ABOUT_BUNDLES: Final = (
    *(lookup_routes, schemas, subscription_routes, message_routes),
    *(topic_operation_routes, topic_routes, bundles, produce),
)
_TOPIC_POLICIES: Final = (topic_policy_routes, topic_policy_specials, offload_policies)
_GONE_WITH_THE_TOPIC: Final = (*_TOPIC_POLICIES, schemas, permissions)
_ABOUT_ALL_BUNDLES: Final = ("/unload", "/clearBacklog", "/unsubscribe/")
_USUAL_HEADERS: Final = 64
_HEADER_BYTES: Final = 512
"""Memory of a header of a request in progress, beside its text."""
ORIGINAL_PRINCIPAL: Final = "x-original-principal"
METHOD_NAME: Final = "x-pulsar-auth-method-name"


class _DomainConvertor(Convertor[str]):
    """`persistent` or `non-persistent` in a path."""

    regex = "persistent|non-persistent"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def all_routes() -> "list[AdminRoute]":
    """Every route of the application, in the order in which they are tried."""
    return [row for module in TABLES for row in module.routes.rows]


def build_app(api: "BrokerApi") -> "ASGIApp":
    """Build the ASGI application of a broker."""
    register_url_convertor("domain", _DomainConvertor())
    wide = WideAnswers()
    routes = [
        Route(row.path, _made(module, row, api, wide), methods=[row.method])
        for module in TABLES
        for row in module.routes.rows
    ]
    app = Starlette(routes=routes, exception_handlers={404: _nothing_there, 405: _other_methods})
    app.router.redirect_slashes = False
    app.state.console = api.settings.console_enabled
    if api.settings.console_enabled:
        console = _Console(_RawPaths(app, api, None), authentication_enabled=api.authenticator.enabled)
        app.router.routes += [Route("/ui", console), Mount("/ui", app=console)]
    return _RawPaths(_Guarded(app, api.settings), api, RequestRate.of(api.settings, time.monotonic))


class _Console:
    """The console; its code is loaded for the first request. The calls of the console are separate requests, authorized
    like any request, so the console has no rows in the authorization table.
    """

    def __init__(self, rest: "ASGIApp", *, authentication_enabled: bool) -> None:
        self._rest = rest
        self._authentication_enabled = authentication_enabled
        self._console: ASGIApp | None = None

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if self._console is None:
            self._console = await asyncio.to_thread(self._load)
        try:
            await self._console(scope, receive, send)
        except ClientDisconnect:
            return  # the client is gone: nothing sends an answer
        except RestError as e:  # a form without room, which comes before any answer
            await page(e.status, scope["method"])(scope, receive, send)

    def _load(self) -> "ASGIApp":
        from magnetar.console.application import Console  # noqa: PLC0415 - most brokers never show a page

        return Console(self._rest, authentication_enabled=self._authentication_enabled)


async def _nothing_there(request: Request, _error: Exception) -> Response:
    sent = request.scope.get("raw_path") or b""  # the path of the scope has lost a slash at the end
    if sent == b"/" and request.app.state.console and _is_of_a_browser(request):
        return RedirectResponse("/ui/", 303)
    return redirect_of_root(sent, request.scope["query_string"]) or page(404, request.method)


def _is_of_a_browser(request: Request) -> bool:
    """Whether a person asks for a page: the web port stands in the ready line, and browsers open its root."""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


async def _other_methods(request: Request, _error: Exception) -> Response:
    """Answer a request for a method that the path does not have; OPTIONS and 405 list the allowed methods."""
    try:
        media_type(request.headers.get("content-type"))
    except RestError as e:
        return page(e.status, request.method)
    path = _path_of_route(request)
    methods = [row.method for row in all_routes() if row.path == path]
    if request.method == "OPTIONS":
        return methods_of(methods, request.headers.get("accept", ""))
    return page(405, request.method, {"Allow": allowed(methods, asked=False)})


def _path_of_route(request: Request) -> str:
    """The first declared path that matches the request, whatever its method."""
    fitting = (
        route.path
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    )
    return next(fitting, "")


class _RawPaths:
    """Makes routes match the path as the client sent it, so that an encoded slash stays part of a name. Applies the
    limits of request rate, body size and memory.
    """

    def __init__(self, app: "ASGIApp", api: "BrokerApi", rate: RequestRate | None) -> None:
        self._app = app
        self._api = api
        self._rate = rate

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._rate is not None and not self._rate.admits():
            await page(429, scope["method"])(scope, receive, send)
            return
        raw = scope.get("raw_path")
        path = raw.partition(b"?")[0].decode("latin-1") if raw else scope["path"]
        try:
            scope = {**scope, "path": plain_path(path)}
        except RestError as e:
            await page(e.status, scope["method"])(scope, receive, send)
            return
        memory = self._api.memory
        share = memory.share((scope.get("client") or ("",))[0])
        sent = paced(scope, receive, send, share, memory.limits.per_connection // 2)
        try:
            if len(scope["headers"]) > _USUAL_HEADERS:
                share.set("head", _HEADER_BYTES * len(scope["headers"]))
                if share.is_over:
                    share.refused()
                    await failure(429, "no memory for another request; see maxClientMemoryInMB")(scope, receive, send)
                    return
            await self._app(scope, counted(receive, self._api.settings.http_max_request_size, share), sent)
        finally:
            share.close()


class _Guarded:
    """Refuses requests of foreign web pages."""

    def __init__(self, app: "ASGIApp", settings: "Settings") -> None:
        self._app = app
        self._rules = BrowserRules.of(settings)
        self._probes = frozenset(row.path for row in all_routes() if row.need is PROBE)
        self._most_head_bytes = settings.http_max_request_header_size

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "http":
            if _head_bytes(scope) > self._most_head_bytes:  # the parser lets a head pass that comes in a single read
                await page(431, scope["method"])(scope, receive, send)
                return
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            reason = self._rules.refusal(scope["method"], headers, probe=scope["path"] in self._probes)
            if reason is not None:
                address = scope["client"][0] if scope.get("client") else ""
                log.info("request.refused", address=address, path=scope["path"], reason=reason)
                await failure(403, reason)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _head_bytes(scope: "Scope") -> int:
    """Path and headers of a request, with the separators."""
    path = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    return path + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


def _uses_bundles(module: ModuleType, row: "AdminRoute") -> bool:
    """Whether Apache Pulsar reads the bundles of the namespace for this route, so that the namespace counts as used."""
    if "{namespace}" not in row.path:
        return False
    return module in _ABOUT_BUNDLES or "{bundle}" in row.path or any(part in row.path for part in _ABOUT_ALL_BUNDLES)


def _tells_of_tenants(row: "AdminRoute") -> bool:
    """Whether a role without rights gets 404 for resources of a missing tenant."""
    return row.need.resource is not Resource.CLUSTER and not row.path.startswith(tenants.TENANT)


def _made(module: ModuleType, row: "AdminRoute", api: "BrokerApi", wide: WideAnswers) -> Any:
    of_policies = _is_about_topic_policies(module, row)
    gone = _changes_parts_of_topics(module, row)
    return _endpoint(row, api, wide, uses=_uses_bundles(module, row), of_policies=of_policies, gone_with_topic=gone)


def _is_about_topic_policies(module: ModuleType, row: "AdminRoute") -> bool:
    return module in _TOPIC_POLICIES and row.path.startswith(TOPIC)


def _changes_parts_of_topics(module: ModuleType, row: "AdminRoute") -> bool:
    """Whether the route changes records that the deletion of the topic in its path removes."""
    return module in _GONE_WITH_THE_TOPIC and row.method != "GET" and "{topic}" in row.path


def _endpoint(
    row: "AdminRoute",
    api: "BrokerApi",
    wide: WideAnswers,
    *,
    uses: bool = False,
    of_policies: bool = False,
    gone_with_topic: bool = False,
) -> Any:
    async def endpoint(request: Request) -> Response:
        try:
            kind = media_type(request.headers.get("content-type"))
            if row.path.startswith(_JSON_ALONE) and not accepts_json(request.headers.get("accept", "")):
                return page(406, request.method)
            if kind not in ("", *TAKEN_AS_JSON) and row.path.startswith(_JSON_ALONE_TAKEN):
                return page(415, request.method)
            claimed = await _identify(request, api, row.need)
            identity = claimed if api.authorizer.valid_identity(claimed, itself=True) else Identity(None)
            target = target_of(request.path_params)
            await read_news(request, row, target, api)
            if not api.authorizer.allows(identity, row.need, target):
                if _tells_of_tenants(row) and target.tenant not in api.namespaces.tenants:
                    return failure(
                        rest_refusals.TENANT_MISSING.status, rest_refusals.TENANT_MISSING.text
                    )  # as in Apache Pulsar 4.2; tests of clients rely on it
                if api.authorizer.without_prefix(identity, row.need, target) is not None:
                    return failure(500, "the name of the subscription does not begin with the role")
                return _denied(request, row, claimed, target, api)
            call = Call(request, api, identity, wide, row.most_body)
            if uses and api.namespaces.exists(call.namespace):
                api.namespaces.in_use.add(call.namespace)
            elsewhere = await sent_elsewhere(call, row.path)
            if elsewhere is not None:
                return elsewhere
            if gone_with_topic and (name := topic_of(request.path_params)) is not None:
                await api.lifecycle.complete_deletion(name)
            known = of_policies and api.namespaces.exists(call.namespace)
            if known and (reading := api.namespaces.topics.ready(call.namespace)) is not None:
                await reading
            try:
                return await (wide.made(request, lambda: row.handler(call)) if row.is_wide else row.handler(call))
            except ForeignNamespaceError as refusal:
                return redirect_to_peer(call, refusal)
        except NoSuchPathError:
            return page(404, request.method)
        except ClientDisconnect:
            return page(400, request.method)  # the client is gone: nothing sends this answer
        except Exception as e:  # the only broad except of HTTP: every error of a handler becomes an answer
            answer = error_response(e)
            if isinstance(e, StorageError):  # a damaged entry, a full disk: the answer names the reason
                log.warning("request.not_stored", method=request.method, path=request.url.path, reason=str(e))
            if answer is None:
                log.exception("request.failed", method=request.method, path=request.url.path)
                answer = failure(500, "internal error")
            return answer

    return endpoint


def _denied(request: Request, row: "AdminRoute", claimed: Identity, target: Target, api: "BrokerApi") -> Response:
    """The refusal of a request without the right, in Apache Pulsar's words where it has the route."""
    names = {name: decoded(str(value)) for name, value in request.path_params.items()} | {"topic": target.topic}
    claim = Claim(
        claimed.role,
        request.headers.get(ORIGINAL_PRINCIPAL),
        is_valid=api.authorizer.valid_identity(claimed, itself=True),
        is_proxy=api.authorizer.is_proxy(claimed.role),
    )
    text = denied_text(row.method, row.path, names, claim, api.urls.broker_id)
    return failure(row.need.denied_status, text or f"Unauthorized to {row.need.action.value}")


def _report_failure(request: Request, api: "BrokerApi", reason: str) -> None:
    """Log a failed authentication: a warning for invalid credentials, an info for a request without credentials."""
    address = request.client.host if request.client else ""
    authorization = request.headers.get("authorization")
    if authorization is None and "token" not in request.query_params:
        log.info("request.refused", address=address, path=request.url.path, reason=reason)
        return
    method = "token" if authorization is None else authorization.partition(" ")[0]
    api.authenticator.failure_log.failed("http", address, method, reason)


async def _identify(request: Request, api: "BrokerApi", need: "Need") -> Identity:
    """The identity that the caller claims: its proven role, and the principal that its header names.

    Raises 401 for missing or invalid credentials. Probes alone need no credentials: any other request of an
    unauthenticated client could take effect once authorization is enabled.
    """
    if not api.authenticator.enabled:
        return Identity(None)
    certificate = request.scope.get("extensions", {}).get("magnetar.certificate")
    try:
        found = await api.authenticator.authenticate_http(
            request.headers.get("authorization"),
            certificate,
            token=request.query_params.get("token"),
            named=request.headers.get(METHOD_NAME) or None,
        )
    except AuthenticationFailedError as e:
        if need.action is Action.PROBE:
            return Identity(None)
        _report_failure(request, api, str(e))
        raise rest_refusals.AUTHENTICATION_REQUIRED.error() from e
    return Identity(found.role, request.headers.get(ORIGINAL_PRINCIPAL) or None)
