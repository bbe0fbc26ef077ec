"""Tenants: /admin/v2/tenants."""

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call, valid_name
from magnetar.broker.admin.cluster_lists import is_replicated
from magnetar.broker.admin.namespace_routes import delete_namespace_by_force
from magnetar.broker.admin.responses import done, json_response
from magnetar.broker.admin.routes import ADMIN, RouteTable
from magnetar.broker.auth.table import SUPER, TENANT_ADMIN
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.compat.java_texts import trimmed
from magnetar.broker.policies.records import shown
from magnetar.broker.policies.values import TenantInfo

routes = RouteTable()
TENANT = ADMIN + "/tenants/{tenant}"


class TenantBody(msgspec.Struct, rename="camel"):
    """TenantInfo of a body: either list may be missing or null."""

    admin_roles: list[str] | None = None
    allowed_clusters: list[str | None] | None = None


@routes.get(ADMIN + "/tenants", SUPER)
async def list_tenants(call: Call) -> Response:
    return json_response(call.namespaces.tenants.names())


@routes.get(TENANT, TENANT_ADMIN)
async def get_tenant(call: Call) -> Response:
    found = call.namespaces.tenants.get(call.param("tenant"))
    if found is None:
        raise rest_refusals.TENANT_MISSING.error()
    return json_response(shown(found))


@routes.put(TENANT, SUPER)
async def create_tenant(call: Call) -> Response:
    name = call.param("tenant")
    info = await _info(call)
    if not valid_name(name):
        raise rest_refusals.TENANT_NAME_INVALID.error()
    if name in call.namespaces.tenants:
        raise rest_refusals.TENANT_EXISTS.error()
    limit = call.api.settings.max_tenants
    if limit and len(call.namespaces.tenants.names()) >= limit:
        raise rest_refusals.TOO_MANY_TENANTS.error()
    await call.namespaces.create_tenant(name, info)
    return done()


@routes.post(TENANT, TENANT_ADMIN)
async def update_tenant(call: Call) -> Response:
    name = call.param("tenant")
    info = await _info(call)
    if name not in call.namespaces.tenants:
        raise rest_refusals.TENANT_UNKNOWN.error(tenant=name)
    _refuse_lost_clusters(call, name, info)
    await call.namespaces.update_tenant(name, info)
    return done()


def _refuse_lost_clusters(call: Call, tenant: str, info: TenantInfo) -> None:
    """Raise 412 when the tenant would lose a cluster to which one of its namespaces is replicated."""
    namespaces = call.namespaces.namespaces_of(tenant)
    policies = {name: call.namespaces.policies(name) for name in namespaces}
    replicated = {name: set(each.replication_clusters) for name, each in policies.items() if each is not None}
    known = call.namespaces.tenants.get(tenant)
    for lost in java_order(known.allowed_clusters) if known is not None else ():
        used = next((name for name in namespaces if lost in replicated.get(name, ())), None)
        if lost not in info.allowed_clusters and used is not None:
            raise rest_refusals.CLUSTER_OF_NAMESPACE_REMOVED.error(cluster=lost, tenant=tenant, namespace=used)


@routes.delete(TENANT, TENANT_ADMIN)
async def delete_tenant(call: Call) -> Response:
    name = call.param("tenant")
    force = call.flag("force")
    if name not in call.namespaces.tenants:
        raise rest_refusals.TENANT_TO_DELETE_MISSING.error()
    if force and not call.api.settings.force_delete_tenant_allowed:
        raise rest_refusals.NO_FORCED_DELETION_OF_TENANTS.error()
    namespaces = call.namespaces.namespaces_of(name)
    if namespaces and not force:
        raise rest_refusals.TENANT_IN_USE.error()
    replicated = [each for each in namespaces if is_replicated(call.namespaces.policies(each))]
    for namespace in namespaces:
        if namespace not in replicated:
            await delete_namespace_by_force(call, namespace)
    if replicated:
        raise rest_refusals.NAMESPACE_REPLICATED.error(namespace=replicated[0])
    await call.namespaces.delete_tenant(name)
    await call.api.ownership.forget(name)
    return done()


async def _info(call: Call) -> TenantInfo:
    """The tenant of the body; raises RestError for an invalid tenant."""
    body = await call.body(TenantBody)
    if body is None:
        raise rest_refusals.TENANT_INFO_MISSING.error()
    if body.allowed_clusters is None:
        raise rest_refusals.CLUSTERS_MISSING.error()
    clusters = [name for name in dict.fromkeys(body.allowed_clusters) if name is not None]
    if not clusters or None in body.allowed_clusters or not all(map(str.strip, clusters)):
        raise rest_refusals.CLUSTERS_BLANK.error()
    if not all(name in call.namespaces.clusters for name in clusters):
        raise rest_refusals.CLUSTERS_UNKNOWN.error()
    if any(role != trimmed(role) for role in body.admin_roles or []):
        raise rest_refusals.ADMIN_ROLES_WITH_SPACES.error()
    roles = None if body.admin_roles is None else java_order(body.admin_roles)
    return TenantInfo(admin_roles=roles, allowed_clusters=java_order(clusters))
