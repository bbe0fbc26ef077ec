"""Resource groups and resource quotas.

The broker stores and shows both for tools, without effect.
"""

from typing import Final

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.bundle_path import bundle_of_path
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import done, json_response
from magnetar.broker.admin.routes import ADMIN, NAMESPACE, RouteTable
from magnetar.broker.auth.table import NAMESPACE_ADMIN, SUPER
from magnetar.broker.compat import rest_refusals
from magnetar.broker.errors import RestError
from magnetar.broker.policies.namespace_store import DEFAULT_QUOTA
from magnetar.broker.policies.records import shown
from magnetar.broker.policies.values import ResourceGroup, ResourceQuota

routes = RouteTable()
GROUP = ADMIN + "/resourcegroups/{group}"
QUOTAS = ADMIN + "/resource-quotas"
BUNDLE_QUOTA = QUOTAS + "/{tenant}/{namespace}/{bundle}"
_FIRST_QUOTA: Final = ResourceQuota(
    msg_rate_in=40.0, msg_rate_out=120.0, bandwidth_in=100000.0, bandwidth_out=300000.0, memory=80.0, dynamic=True
)
_ALWAYS_SHOWN: Final = dict.fromkeys(
    ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes"), -1
)


@routes.get(ADMIN + "/resourcegroups", SUPER)
async def list_groups(call: Call) -> Response:
    return json_response(call.namespaces.resource_groups.names())


@routes.get(GROUP, SUPER)
async def get_group(call: Call) -> Response:
    found = shown(_group(call))
    assert isinstance(found, dict), "ResourceGroup is an object"
    return json_response(_ALWAYS_SHOWN | found)


@routes.put(GROUP, SUPER)
async def put_group(call: Call) -> Response:
    """Create the group, or change its fields that the body names."""
    body = await call.body(ResourceGroup)
    if body is None:
        raise RestError(500, "the rates of a group are required")
    groups, name = call.namespaces.resource_groups, call.param("group")
    given = {field: value for field, value in msgspec.structs.asdict(body).items() if value is not None}
    if name in groups:
        await groups.update(name, lambda old: msgspec.structs.replace(old, **given))
    else:
        await groups.create(name, body)
    return done()


@routes.delete(GROUP, SUPER)
async def delete_group(call: Call) -> Response:
    """Delete the group; refused while a namespace uses the group."""
    name = call.param("group")
    if name not in call.namespaces.resource_groups:
        raise RestError(500, f"path /admin/resourcegroups/{name} not found.")
    for namespace in call.namespaces.namespaces.names():
        policies = call.namespaces.policies(namespace)
        if policies is not None and policies.resource_group_name == name:
            raise rest_refusals.RESOURCE_GROUP_IN_USE.error()
    await call.namespaces.resource_groups.delete(name)
    return done()


def _group(call: Call) -> ResourceGroup:
    found = call.namespaces.resource_groups.get(call.param("group"))
    if found is None:
        raise rest_refusals.RESOURCE_GROUP_UNKNOWN.error()
    return found


@routes.get(NAMESPACE + "/resourcegroup", NAMESPACE_ADMIN)
async def group_of_namespace(call: Call) -> Response:
    name = call.policies().resource_group_name
    return done(200) if name is None else Response(name, media_type="application/json")


@routes.post(NAMESPACE + "/resourcegroup/{group}", NAMESPACE_ADMIN)
async def set_group_of_namespace(call: Call) -> Response:
    call.check_namespace_name()
    if call.param("group") not in call.namespaces.resource_groups:
        raise rest_refusals.RESOURCE_GROUP_OF_REQUEST_UNKNOWN.error()
    call.policies()
    return await _store_group(call, call.param("group"))


@routes.delete(NAMESPACE + "/resourcegroup", NAMESPACE_ADMIN)
async def remove_group_of_namespace(call: Call) -> Response:
    call.policies(rest_refusals.NAMESPACE_POLICIES_MISSING.error())
    return await _store_group(call, None)


async def _store_group(call: Call, name: str | None) -> Response:
    await call.namespaces.update_namespace(
        call.namespace, lambda old: msgspec.structs.replace(old, resource_group_name=name)
    )
    return done()


# --- quotas -----------------------------------------------------------------------------------------------------


@routes.get(QUOTAS, SUPER)
async def default_quota(call: Call) -> Response:
    return json_response(call.namespaces.quotas.get(DEFAULT_QUOTA) or _FIRST_QUOTA)


@routes.post(QUOTAS, SUPER)
async def set_default_quota(call: Call) -> Response:
    return await _store_quota(call, DEFAULT_QUOTA)


@routes.get(BUNDLE_QUOTA, SUPER)
async def bundle_quota(call: Call) -> Response:
    quotas = call.namespaces.quotas
    return json_response(quotas.get(_bundle(call)) or quotas.get(DEFAULT_QUOTA) or _FIRST_QUOTA)


@routes.post(BUNDLE_QUOTA, SUPER)
async def set_bundle_quota(call: Call) -> Response:
    await call.body(ResourceQuota)  # Apache Pulsar judges the body first
    return await _store_quota(call, _bundle(call))


@routes.delete(BUNDLE_QUOTA, SUPER)
async def remove_bundle_quota(call: Call) -> Response:
    name = _bundle(call)
    if name not in call.namespaces.quotas:
        if call.api.peers is not None:
            raise rest_refusals.RESOURCE_QUOTA_MISSING_IN_ZOOKEEPER.error(bundle=name)
        raise rest_refusals.RESOURCE_QUOTA_MISSING.error(bundle=name)
    await call.namespaces.quotas.delete(name)
    return done()


async def _store_quota(call: Call, name: str) -> Response:
    quota = await call.body(ResourceQuota)
    if quota is None:
        return done()
    await call.namespaces.quotas.update(name, lambda _: quota, quota)
    return done()


def _bundle(call: Call) -> str:
    """The full name of the bundle in the path; raises 412 when the namespace has no such bundle."""
    return f"{call.namespace}/{'_'.join(bundle_of_path(call))}"
