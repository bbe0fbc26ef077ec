"""Anti-affinity groups: groups of namespaces whose bundles the cluster keeps apart.

In a cluster the group is part of the namespace's local policies, as in Apache Pulsar; the leader places bundles by the
groups. A broker without a cluster stores the group with the namespace's policies, for tools only.
"""

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import done, json_response
from magnetar.broker.admin.routes import ADMIN, NAMESPACE, RouteTable
from magnetar.broker.auth.table import NAMESPACE_ADMIN, SUPER
from magnetar.broker.compat import rest_refusals
from magnetar.broker.policies.records import Policies
from magnetar.broker.policies.values import LocalPolicies

routes = RouteTable()


async def _local(call: Call, namespace: str) -> LocalPolicies | Policies | None:
    """Return the anti-affinity group and the bookies of the namespace; None for a missing namespace."""
    policies = call.namespaces.policies(namespace)
    return policies and (await call.api.ownership.local_policies(namespace) or policies)


@routes.get(NAMESPACE + "/antiAffinity", NAMESPACE_ADMIN)
async def anti_affinity(call: Call) -> Response:
    """The group as it was set; an empty body without a group, also for a namespace that does not exist."""
    policies = await _local(call, call.namespace)
    group = policies.anti_affinity_group if policies else None
    return done(200) if group is None else Response(group, media_type="application/json")


@routes.post(NAMESPACE + "/antiAffinity", NAMESPACE_ADMIN)
async def set_anti_affinity(call: Call) -> Response:
    """The body is the group's name as plain text."""
    group = (await call.raw_body()).decode(errors="replace")
    if not group.strip():
        raise rest_refusals.ANTI_AFFINITY_GROUP_EMPTY.error()
    call.policies()
    return await _store_group(call, group)


@routes.delete(NAMESPACE + "/antiAffinity", NAMESPACE_ADMIN)
async def remove_anti_affinity(call: Call) -> Response:
    call.policies()
    return await _store_group(call, None)


async def _store_group(call: Call, group: str | None) -> Response:
    if await call.api.ownership.change_local_policies(call.namespace, {"namespaceAntiAffinityGroup": group}):
        return done()
    await call.namespaces.update_namespace(
        call.namespace, lambda old: msgspec.structs.replace(old, anti_affinity_group=group)
    )
    return done()


@routes.get(ADMIN + "/namespaces/{cluster}/antiAffinity/{group}", SUPER)
async def namespaces_of_group(call: Call) -> Response:
    """Namespaces of ?tenant= in the group."""
    tenant = call.query("tenant")
    if not tenant:
        raise rest_refusals.TENANT_OF_GROUP_MISSING.error()
    if call.param("cluster") not in call.namespaces.clusters:
        raise rest_refusals.CLUSTER_OF_REQUEST_UNKNOWN.error(cluster=call.param("cluster"))
    found = []
    for name in call.namespaces.namespaces_of(tenant):
        policies = await _local(call, name)
        if policies is not None and (policies.anti_affinity_group or "").lower() == call.param("group").lower():
            found.append(name)
    return json_response(found)
