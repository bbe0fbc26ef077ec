"""Namespaces themselves: created, listed, unloaded, emptied, deleted; their bundles and properties."""

import contextlib
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from magnetar.broker.admin import policy_rules
from magnetar.broker.admin.bundle_calls import each_bundle, on_every_bundle, unload_anywhere
from magnetar.broker.admin.call import Call, valid_name
from magnetar.broker.admin.cluster_lists import is_replicated, only_cluster, ordered
from magnetar.broker.admin.elsewhere import redirect_to_cluster
from magnetar.broker.admin.listed_topics import listed_order, names_everywhere
from magnetar.broker.admin.offload_policies import shown_offload
from magnetar.broker.admin.responses import done, json_response, list_response, not_found
from magnetar.broker.admin.routes import ADMIN, NAMESPACE, RouteTable
from magnetar.broker.admin.topic_calls import COMPACTION, bounded, check_all_subscriptions, check_subscriptions
from magnetar.broker.auth.table import NAMESPACE_ADMIN, NAMESPACE_CONSUME, NAMESPACE_USE, SUPER, TENANT_ADMIN
from magnetar.broker.compat import java_numbers, rest_refusals
from magnetar.broker.compat.jackson_body import fitted
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.errors import RestError, SubscriptionNotFoundError, TopicNotFoundError
from magnetar.broker.policies.records import (
    KEPT_APART,
    LAST_BUNDLE_BOUNDARY,
    Policies,
    bundle_finder,
    bundle_ranges,
    even_bundles,
    shown,
)
from magnetar.broker.policies.values import BundlesData
from magnetar.broker.slices import all_ended, give_way, in_turns, sliced
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.broker.admin.api import Domain

routes = RouteTable()
_MOST_BUNDLES: Final = 2**14
_MOST_BUNDLES_OF_TENANT: Final = 2**16
"""Bundles of a tenant's namespaces together, beyond which no namespace with many bundles is created: a short request
would cost a megabyte of memory.
"""
_FEW_BUNDLES: Final = 64
_AT_A_TIME: Final = 64
_DELETED_AT_A_TIME: Final = 32
"""Topics that are deleted at the same time: a deletion makes some ten requests to the metadata service, one after the
other.
"""
_PARTITIONED_AT_A_TIME: Final = 4
"""Partitioned topics that are deleted at the same time, each with several partitions at the same time."""
_PASSES: Final = 2
"""Passes over the topics of a namespace to delete: the second meets partitions whose creation was under way at the
mark.
"""
_MOST_ROUNDS: Final = 7
"""The most searches for topics that other brokers have created behind the mark of a deletion, before they see it."""
_DOMAINS: Final[dict[str, tuple["Domain", ...]]] = {
    "PERSISTENT": ("persistent",),
    "NON_PERSISTENT": ("non-persistent",),
    "ALL": ("persistent", "non-persistent"),
}


@routes.get(ADMIN + "/namespaces/{tenant}", TENANT_ADMIN)
async def list_namespaces(call: Call) -> Response:
    tenant = call.param("tenant")
    if not valid_name(tenant):
        raise rest_refusals.TENANT_NAME_INVALID.error()
    if tenant not in call.namespaces.tenants:
        raise rest_refusals.TENANT_OF_LIST_UNKNOWN.error()
    found: list[str] = []
    async for part in sliced(call.namespaces.namespaces_of(tenant)):
        found += filter(call.namespaces.namespaces.is_readable, part)
    return await list_response(found)


@routes.get(NAMESPACE, NAMESPACE_ADMIN)
async def get_namespace(call: Call) -> Response:
    policies = call.policies()
    data = shown(policies)
    assert isinstance(data, dict), "Policies is an object"
    data["is_allow_auto_update_schema"] = data.get(
        "is_allow_auto_update_schema", call.api.settings.is_allow_auto_update_schema_enabled
    )
    data["bundles"] = shown(call.bundles())
    data["replication_clusters"] = java_order(policies.replication_clusters)
    data["allowed_clusters"] = java_order(policies.allowed_clusters)
    data["subscription_types_enabled"] = java_order(policies.subscription_types_enabled)
    for name in KEPT_APART:
        data.pop(name, None)
    data["clusterDispatchRate"] = data["topicDispatchRate"]  # the older name of topicDispatchRate
    if policies.offload_policies is not None:
        data["offload_policies"] = shown_offload(policies.offload_policies)
    return json_response(data)


@routes.put(NAMESPACE, TENANT_ADMIN)
async def create_namespace(call: Call) -> Response:
    """Create the namespace. The body is empty or Policies, with `bundles` if its `numBundles` is above 0."""
    body = await call.body(dict[str, object])
    if body is not None and body.get("replication_clusters", ()) is None:
        raise RestError(500, "replication_clusters is no list")
    name = call.namespace
    tenant = call.namespaces.tenants.get(call.param("tenant"))
    if tenant is None:
        raise rest_refusals.TENANT_MISSING.error()
    given, has_null = _without_null_clusters(body or {})
    policies = _new_policies(call, given)
    for cluster in ("null",) * has_null + (*policies.replication_clusters, *policies.allowed_clusters):
        if cluster not in tenant.allowed_clusters:
            raise rest_refusals.CLUSTER_BEYOND_TENANT.error(cluster=cluster, tenant=call.param("tenant"))
    policies = ordered(call, policies, names_replication=bool(given.get("replication_clusters")))
    if call.namespaces.exists(name):
        raise rest_refusals.NAMESPACE_EXISTS.error()
    limit = call.api.settings.max_namespaces_per_tenant
    if limit and len(call.namespaces.namespaces_of(call.param("tenant"))) >= limit:
        raise rest_refusals.TOO_MANY_NAMESPACES.error(tenant=call.param("tenant"))
    _check_bundles_of_tenant(call, policies.bundles.num_bundles)
    await call.namespaces.create_namespace(name, policies)
    return done()


def _check_bundles_of_tenant(call: Call, count: int) -> None:
    """Raise 412 when the tenant has too many bundles for another namespace with `count` bundles."""
    if count <= _FEW_BUNDLES:
        return
    tenant = call.param("tenant")
    found = (call.namespaces.policies(name) for name in call.namespaces.namespaces_of(tenant))
    present = sum(policies.bundles.num_bundles for policies in found if policies is not None)
    if present + count > _MOST_BUNDLES_OF_TENANT:
        raise RestError(
            412, f"The namespaces of tenant {tenant} have {present} bundles, at most {_MOST_BUNDLES_OF_TENANT} together"
        )


def _without_null_clusters(body: dict[str, object]) -> tuple[dict[str, object], bool]:
    """The body without null in its lists of clusters, and whether one of them has null."""
    lists = {name: body[name] for name in ("replication_clusters", "allowed_clusters") if name in body}
    cleared = {n: [c for c in found if c is not None] for n, found in lists.items() if isinstance(found, list)}
    return body | cleared, any(found != lists[name] for name, found in cleared.items())


def _new_policies(call: Call, body: dict[str, object]) -> Policies:
    fresh = call.namespaces.new_policies()
    if not body:
        return fresh
    try:
        given = fitted(body, Policies)
    except msgspec.ValidationError as e:
        raise RestError(400, f"body: {e}") from e
    assert given is not None, "only null is None"
    for problem in (
        policy_rules.retention(given.retention_policies) if given.retention_policies else None,
        policy_rules.persistence(given.persistence) if given.persistence else None,
        policy_rules.message_ttl(given.message_ttl_in_seconds or 0),
    ):
        if problem is not None:
            raise problem
    count = given.bundles.num_bundles
    if count > _MOST_BUNDLES:
        raise rest_refusals.TOO_MANY_BUNDLES.error()
    bundles = _given_bundles(given.bundles.boundaries or (), count) if count > 0 else fresh.bundles
    metric_keys = given.allowed_topic_property_keys_for_metrics
    quotas = {kind: msgspec.structs.replace(q, limit=q.limit_size) for kind, q in given.backlog_quota_map.items()}
    return msgspec.structs.replace(
        given,
        bundles=bundles,
        backlog_quota_map=quotas,
        allowed_topic_property_keys_for_metrics=java_order(metric_keys) if metric_keys else metric_keys,
        replication_clusters=given.replication_clusters or fresh.replication_clusters,
        deleted=False,
    )


def _given_bundles(boundaries: list[str] | tuple[()], count: int) -> BundlesData:
    """The bundles between these boundaries; without boundaries, `count` equal bundles. Refuses gaps at either end."""
    if not boundaries:
        return even_bundles(count)
    cuts = sorted({boundary_value(text) for text in boundaries})
    if cuts[0] != 0 or cuts[-1] != LAST_BUNDLE_BOUNDARY:
        raise rest_refusals.BUNDLES_INCOMPLETE.error(first=f"0x{cuts[0]:08x}", last=f"0x{cuts[-1]:08x}")
    if len(cuts) > _MOST_BUNDLES + 1:
        raise rest_refusals.TOO_MANY_BUNDLES.error()
    return BundlesData(boundaries=[f"0x{cut:08x}" for cut in cuts], num_bundles=len(cuts) - 1)


def boundary_value(text: str) -> int:
    """The boundary as an unsigned 64-bit number, of a hexadecimal, octal or decimal text. Raises 500."""
    try:
        return java_numbers.decoded(text) % 2**64
    except ValueError:
        raise RestError(500, f"a boundary of a bundle is a number, not {text[:40]!r}") from None


@routes.delete(NAMESPACE, TENANT_ADMIN)
async def delete_namespace(call: Call) -> Response:
    force = call.flag("force")
    name = call.namespace
    if call.namespaces.policies(name) is None:
        raise rest_refusals.NAMESPACE_TO_DELETE_UNKNOWN.error(namespace=name)
    if is_replicated(call.namespaces.policies(name)):
        raise rest_refusals.NAMESPACE_REPLICATED.error(namespace=name)
    if (redirect := redirect_to_cluster(call, only_cluster(call.namespaces.policies(name)))) is not None:
        return redirect
    if force and not call.api.settings.force_delete_namespace_allowed:
        raise rest_refusals.NO_FORCED_DELETION_OF_NAMESPACES.error()
    if force:
        await delete_namespace_by_force(call, name)
        return done()
    _refuse_in_use(call, name)
    await _delete(call, name, force=False)  # only system topics are left
    return done()


def _refuse_in_use(call: Call, namespace: str) -> None:
    """Raise 409 for a namespace that has topics other than system topics."""
    if _has_topics(call, namespace) or _partitioned(call, namespace):
        raise rest_refusals.NAMESPACE_IN_USE.error()


async def delete_namespace_by_force(call: Call, namespace: str) -> None:
    """Delete the namespace with all its topics; connected clients are disconnected."""
    await _delete(call, namespace, force=True)


async def _delete(call: Call, namespace: str, *, force: bool) -> None:
    """Delete the namespace and its topics. Policies.deleted keeps clients, which connect again, from creating topics
    meanwhile; a failure removes the mark. Without `force`, raises 409 for a topic that was created before the mark.
    """
    await _mark(call, namespace, deleted=True)
    try:
        await call.topics.settled(namespace)
        if not force:
            _refuse_in_use(call, namespace)
        for _ in range(_PASSES):
            await _delete_topics(call, namespace)
        if call.api.peers is not None:
            await _delete_late_topics(call, namespace, force=force)
        await call.namespaces.delete_namespace(namespace)
    except Exception:
        if call.namespaces.exists(namespace):
            await _mark(call, namespace, deleted=False)
        raise
    await call.api.ownership.forget(namespace)


async def _delete_late_topics(call: Call, namespace: str, *, force: bool) -> None:
    """Release all bundles, and delete the topics whose load or creation other brokers ended meanwhile. Without `force`,
    and for topics that come again and again, raises 409.
    """
    for _ in range(_MOST_ROUNDS):
        async for parts in sliced(bundle_ranges(call.bundles_of(namespace)), _AT_A_TIME):
            await all_ended(unload_anywhere(call, namespace, each, settled=True) for each in parts)
        if not await call.topics.read_again(namespace):
            return
        if not force:
            _refuse_in_use(call, namespace)
        await _delete_topics(call, namespace)
    raise rest_refusals.NAMESPACE_IN_USE.error()


async def _mark(call: Call, namespace: str, *, deleted: bool) -> None:
    await call.namespaces.update_namespace(namespace, lambda old: msgspec.structs.replace(old, deleted=deleted))


async def _delete_topics(call: Call, namespace: str) -> None:
    """Delete all topics, the system topics last: a topic of policies takes the deletion of its topics' policies."""
    for system in (False, True):
        async for texts in sliced(_partitioned(call, namespace), _PARTITIONED_AT_A_TIME):
            names = [name for name in map(TopicName.parse, texts) if name.is_system is system]
            await all_ended(map(call.lifecycle.delete_partitioned, names))
        found = [name for domain in _DOMAINS["ALL"] for name in call.topics.names(namespace, domain)]
        async for texts in sliced(found, _DELETED_AT_A_TIME):
            names = [name for name in map(TopicName.parse, texts) if name.is_system is system]
            await all_ended(_delete_topic(call, name) for name in names)


async def _delete_topic(call: Call, name: TopicName) -> None:
    with contextlib.suppress(TopicNotFoundError):  # the topic ended by itself meanwhile
        await call.lifecycle.delete(name)


def _has_topics(call: Call, namespace: str) -> bool:
    """Whether the namespace has topics other than system topics."""
    found = (name for domain in _DOMAINS["ALL"] for name in call.topics.names(namespace, domain))
    return any(not TopicName.parse(name).is_system for name in found)


def _partitioned(call: Call, namespace: str) -> list[str]:
    return [name for domain in _DOMAINS["ALL"] for name in call.topics.partitioned_names(namespace, domain)]


async def without_system_topics(names: "Sequence[str]") -> list[str]:
    """The names without system topics."""
    found: list[str] = []
    async for part in sliced(names):
        found += [name for name in part if not TopicName.parse(name).is_system]
    return found


async def in_bundle(call: Call, names: "Sequence[str]", bundle: str) -> list[str]:
    """The topics of the namespace that are in the bundle."""
    bundle_of = bundle_finder(call.bundles())
    found: list[str] = []
    async for part in sliced(names):
        found += [name for name in part if bundle_of(name) == bundle]
    return found


@routes.get(NAMESPACE + "/topics", NAMESPACE_USE)
async def list_topics(call: Call) -> Response:
    """List the topics: ?mode=PERSISTENT (default), NON_PERSISTENT or ALL; ?includeSystemTopic=true."""
    call.policies()
    mode = call.query("mode") or "PERSISTENT"
    if mode not in _DOMAINS:
        raise not_found(f"there is no mode {mode}")
    names = [name for domain in _DOMAINS[mode] for name in await names_everywhere(call, domain)]
    if not call.flag("includeSystemTopic"):
        names = await without_system_topics(names)
    return await list_response(await listed_order(call, names))


@routes.post(NAMESPACE + "/migration", SUPER)
async def set_migration(call: Call) -> Response:
    """Store and show the mark; clients are not redirected, as there is no other cluster."""
    if not (await call.raw_body()).strip():
        raise RestError(400, "a body is required")
    migrated = bool(await call.body(bool))
    call.policies()
    await call.namespaces.update_namespace(call.namespace, lambda old: msgspec.structs.replace(old, migrated=migrated))
    return done()


@routes.put(NAMESPACE + "/unload", SUPER)
async def unload_namespace(call: Call) -> Response:
    call.local_policies(rest_refusals.NAMESPACE_UNKNOWN.error())
    await unload_everywhere(call, call.namespace)
    return done()


async def unload_everywhere(call: Call, namespace: str) -> None:
    """Unload every bundle of the namespace, on all brokers."""
    if call.api.peers is None:
        await unload_topics(call, namespace)
    else:
        await each_bundle(call.bundles_of(namespace), lambda bundle: unload_anywhere(call, namespace, bundle))


async def unload_topics(call: Call, namespace: str, bundle: str = "") -> None:
    bundle_of = bundle_finder(call.bundles_of(namespace))
    async for names in sliced(call.topics.loaded_names(namespace), _AT_A_TIME):
        chosen = [name for name in names if bundle in ("", bundle_of(str(name)))]
        await all_ended(call.lifecycle.unload(name) for name in chosen)


# --- bundles ----------------------------------------------------------------------------------------------------


@routes.get(NAMESPACE + "/bundles", NAMESPACE_USE)
async def get_bundles(call: Call) -> Response:
    call.policies()
    return json_response(call.bundles())


# --- subscriptions of all topics --------------------------------------------------------------------------------


@routes.post(NAMESPACE + "/clearBacklog", NAMESPACE_CONSUME)
async def clear_backlog(call: Call) -> Response:
    call.local_policies(rest_refusals.NAMESPACE_UNKNOWN.error())
    if call.api.peers is not None:
        check_all_subscriptions(call)
    if not await on_every_bundle(call, "POST", "clearBacklog"):
        await clear_subscriptions(call, None)
    return done()


@routes.post(NAMESPACE + "/clearBacklog/{subscription}", NAMESPACE_CONSUME)
async def clear_backlog_of_subscription(call: Call) -> Response:
    call.local_policies(rest_refusals.NAMESPACE_UNKNOWN.error())
    if not await on_every_bundle(call, "POST", f"clearBacklog/{quote(call.param('subscription'), safe='')}"):
        await clear_subscriptions(call, call.param("subscription"))
    return done()


async def _persistent(call: Call, bundle: str) -> list[TopicName]:
    """Persistent topics of the namespace or, when a bundle is named, of that bundle."""
    bundle_of = bundle_finder(call.bundles())
    found: list[TopicName] = []
    async for names in sliced(call.topics.names(call.namespace, "persistent")):
        found += [TopicName.parse(name) for name in names if bundle in ("", bundle_of(name))]
    return found


async def clear_subscriptions(call: Call, subscription: str | None, bundle: str = "") -> None:
    """Clear the backlog of the subscription (None: of all subscriptions) on all topics. Raises 403 before any change
    when the caller may not consume through one of the subscriptions, and 500, after all changes, when a topic lacks the
    subscription.
    """
    missing = False
    chosen: list[tuple[TopicName, str]] = []
    names = await _persistent(call, bundle)
    async with call.walks.place(call.request, len(names)):
        for name in names:
            known = await call.subscriptions.subscriptions(name)
            missing = missing or subscription not in (None, *known)
            wanted = [each for each in known if subscription in (None, each) and each != COMPACTION]
            async for some in sliced(wanted):
                check_subscriptions(call, name, some, NAMESPACE_CONSUME)
            chosen += [(name, each) for each in wanted]
            await give_way()
        async for name, each in in_turns(chosen):
            await call.subscriptions.skip(name, each, None)
    if missing:
        raise RestError(500, f"Subscription {subscription} not found on every topic")


@routes.post(NAMESPACE + "/unsubscribe/{subscription}", NAMESPACE_CONSUME)
async def unsubscribe(call: Call) -> Response:
    call.local_policies(rest_refusals.NAMESPACE_UNKNOWN.error())
    if await on_every_bundle(call, "POST", f"unsubscribe/{quote(call.param('subscription'), safe='')}"):
        return done()
    return await unsubscribe_everywhere(call)


async def unsubscribe_everywhere(call: Call, bundle: str = "") -> Response:
    names = await _persistent(call, bundle)
    async with call.walks.place(call.request, len(names)):
        async for name in in_turns(names):
            with contextlib.suppress(SubscriptionNotFoundError):  # a topic without the subscription needs no change
                await call.subscriptions.delete_subscription(name, call.param("subscription"), force=False)
    return done()


# --- properties -------------------------------------------------------------------------------------------------


def _policies_of_tenant(call: Call) -> "Policies":
    """The policies of the namespace; raises 404 that names the tenant where the tenant is missing."""
    missing = call.param("tenant") not in call.namespaces.tenants
    return call.policies(rest_refusals.TENANT_MISSING.error() if missing else None)


@routes.get(NAMESPACE + "/properties", TENANT_ADMIN)
async def get_properties(call: Call) -> Response:
    return json_response(_policies_of_tenant(call).properties)


@routes.put(NAMESPACE + "/properties", TENANT_ADMIN)
async def add_properties(call: Call) -> Response:
    given = await call.required_body(dict[str, str | None])
    _policies_of_tenant(call)
    more = {key: value for key, value in given.items() if value is not None}
    await _change_properties(call, lambda old: {k: v for k, v in old.items() if k not in given} | more)
    return done()


@routes.delete(NAMESPACE + "/properties", TENANT_ADMIN)
async def clear_properties(call: Call) -> Response:
    _policies_of_tenant(call)
    await _change_properties(call, lambda _: {})
    return done()


@routes.get(NAMESPACE + "/property/{key}", TENANT_ADMIN)
async def get_property(call: Call) -> Response:
    return Response(_policies_of_tenant(call).properties.get(call.param("key"), ""), media_type="application/json")


@routes.delete(NAMESPACE + "/property/{key}", TENANT_ADMIN)
async def delete_property(call: Call) -> Response:
    """Remove the property; the answer is its former value."""
    key = call.param("key")
    value = _policies_of_tenant(call).properties.get(key, "")
    await _change_properties(call, lambda old: {k: v for k, v in old.items() if k != key})
    return Response(value, media_type="application/json")


@routes.put(NAMESPACE + "/property/{key}/{value}", TENANT_ADMIN)
async def set_property(call: Call) -> Response:
    _policies_of_tenant(call)
    key, value = call.param("key"), call.param("value")
    await _change_properties(call, lambda old: old | {key: value})
    return done()


async def _change_properties(call: Call, change: "Callable[[dict[str, str]], dict[str, str]]") -> None:
    await call.namespaces.update_namespace(
        call.namespace, lambda old: msgspec.structs.replace(old, properties=bounded(change(old.properties)))
    )
