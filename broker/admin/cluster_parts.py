"""The records of a cluster for tools: failure domains, isolation policies, its migration.

Isolation policies decide which brokers of a cluster get the bundles of a namespace; failure domains decide where the
namespaces of an anti-affinity group go. The other records do not change the behaviour of the broker.
"""

import contextlib
from typing import Any, Final

import msgspec
import re2
from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.isolation_policies import checked, unloaded
from magnetar.broker.admin.namespace_routes import unload_everywhere
from magnetar.broker.admin.responses import done, json_response
from magnetar.broker.admin.routes import ADMIN, RouteTable
from magnetar.broker.auth.table import SUPER
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.errors import RestError
from magnetar.broker.policies.values import ClusterData
from magnetar.broker.slices import WeighedTurn, all_ended, sliced
from magnetar.broker.topics.patterns import compiled

routes = RouteTable()
CLUSTER = ADMIN + "/clusters/{cluster}"
DOMAIN = CLUSTER + "/failureDomains/{domain_name}"
POLICIES = CLUSTER + "/namespaceIsolationPolicies"
POLICY = POLICIES + "/{policy}"
_NO_PARTS: Final[dict[str, Any]] = {}
_UNLOADED_AT_A_TIME: Final = 8
_MATCHES_IN_ONE_TURN: Final = 2000


def _cluster(call: Call) -> ClusterData:
    found = call.namespaces.clusters.get(call.param("cluster"))
    if found is None:
        raise rest_refusals.CLUSTER_OF_REQUEST_UNKNOWN.error(cluster=call.param("cluster"))
    return found


async def _change(call: Call, **parts: Any) -> None:
    await call.namespaces.clusters.update(call.param("cluster"), lambda old: msgspec.structs.replace(old, **parts))


class _FailureDomain(msgspec.Struct):
    """A failure domain: the ids of its brokers."""

    brokers: list[str] | None = None


# --- failure domains --------------------------------------------------------------------------------------------


def _domains(call: Call) -> dict[str, dict[str, Any]]:
    """The domains of the cluster, including those that an earlier version stored in the record of the cluster."""
    cluster = call.namespaces.clusters.get(call.param("cluster"))
    kept = (cluster.failure_domains if cluster else None) or _NO_PARTS
    return kept | call.namespaces.failure_domains.get(call.param("cluster"))


async def _adopt_domains(call: Call) -> None:
    """Move the domains that an earlier version stored in the record of the cluster to nodes of their own."""
    cluster, domains = call.param("cluster"), call.namespaces.failure_domains
    kept = _cluster(call).failure_domains
    if kept:
        for name in kept.keys() - domains.get(cluster).keys():
            await domains.put(cluster, name, dict(kept[name]))
        await _change(call, failure_domains=None)


@routes.get(CLUSTER + "/failureDomains", SUPER)
async def failure_domains(call: Call) -> Response:
    """Show the domains by name; an empty object for a missing cluster."""
    return json_response(_domains(call))


@routes.get(DOMAIN, SUPER)
async def failure_domain(call: Call) -> Response:
    _cluster(call)
    name, domains = call.param("domain_name"), _domains(call)
    if name not in domains:
        raise rest_refusals.DOMAIN_UNKNOWN.error(domain=name, cluster=call.param("cluster"))
    return json_response(domains[name])


@routes.post(DOMAIN, SUPER)
async def set_failure_domain(call: Call) -> Response:
    """Set the brokers of a domain; refuses a broker of another domain. A null body deletes the domain."""
    cluster, name = call.param("cluster"), call.param("domain_name")
    body = await call.body(_FailureDomain)
    _cluster(call)
    await _adopt_domains(call)
    if body is None:  # null: as if the domain did not exist
        await call.namespaces.failure_domains.delete(cluster, name)
        return done()
    brokers = java_order(body.brokers or [])
    for other, domain in _domains(call).items():
        taken = domain.get("brokers")
        common = [each for each in brokers if each in taken] if isinstance(taken, list) else []
        if other != name and common:
            raise rest_refusals.DOMAIN_HAS_BROKERS.error(brokers=", ".join(common), domain=other)
    await call.namespaces.failure_domains.put(cluster, name, {"brokers": brokers} if brokers else {})
    return done()


@routes.delete(DOMAIN, SUPER)
async def delete_failure_domain(call: Call) -> Response:
    cluster, name = call.param("cluster"), call.param("domain_name")
    _cluster(call)
    if name not in _domains(call):
        raise rest_refusals.DOMAIN_TO_DELETE_UNKNOWN.error(domain=name, cluster=cluster)
    await _adopt_domains(call)
    await call.namespaces.failure_domains.delete(cluster, name)
    return done(200)


# --- namespace isolation ----------------------------------------------------------------------------------------


@routes.get(POLICIES, SUPER)
async def isolation_policies(call: Call) -> Response:
    if call.param("cluster") not in call.namespaces.clusters:
        raise rest_refusals.CLUSTER_UNKNOWN.error(cluster=call.param("cluster"))
    found = _isolation(call)
    if found is None:
        raise rest_refusals.ISOLATION_POLICIES_UNKNOWN.error(cluster=call.param("cluster"))
    return json_response(found)


def _isolation(call: Call) -> dict[str, dict[str, Any]] | None:
    """The policies of the cluster; without any, those that an earlier version stored in the cluster's record."""
    cluster = _cluster(call)
    found = call.namespaces.isolation.get(call.param("cluster"))
    return cluster.isolation_policies if found is None else found


@routes.get(POLICIES + "/brokers", SUPER)
async def isolated_brokers(call: Call) -> Response:
    policies = _set_policies(call)
    brokers = await call.api.ownership.brokers() or [call.api.urls.broker_id]
    return json_response([_isolation_of(each, policies) for each in brokers])


@routes.get(POLICIES + "/brokers/{broker}", SUPER)
async def isolated_broker(call: Call) -> Response:
    return json_response(_isolation_of(call.param("broker"), _set_policies(call)))


@routes.get(POLICY, SUPER)
async def isolation_policy(call: Call) -> Response:
    name, found = call.param("policy"), _set_policies(call)
    if name not in found:
        raise rest_refusals.ISOLATION_POLICY_UNKNOWN.error(name=name, cluster=call.param("cluster"))
    return json_response(found[name])


def _set_policies(call: Call) -> dict[str, Any]:
    """The isolation policies of the cluster; raises 404 when the cluster never had a policy."""
    found = _isolation(call)
    if found is None:
        raise rest_refusals.ISOLATION_POLICIES_UNKNOWN.error(cluster=call.param("cluster"))
    return found


def _isolation_of(broker: str, policies: dict[str, Any]) -> dict[str, Any]:
    """The namespaces whose policies name the broker, by regular expressions of its address; the name and the kind are
    those of the last policy.
    """
    answer: dict[str, Any] = {"brokerName": broker, "namespaceRegex": [], "primary": False}
    for name, policy in policies.items():
        is_primary = _names(policy.get("primary"), broker)
        if is_primary or _names(policy.get("secondary"), broker):
            patterns = [*answer["namespaceRegex"], *policy.get("namespaces", ())]
            answer |= {"policyName": name, "namespaceRegex": patterns, "primary": is_primary}
    return answer


def _names(patterns: Any, broker: str) -> bool:
    for pattern in patterns if isinstance(patterns, list) else ():
        with contextlib.suppress(re2.error):
            if isinstance(pattern, str) and compiled(pattern).fullmatch(broker.encode()):
                return True
    return False


@routes.post(POLICY, SUPER)
async def set_isolation_policy(call: Call) -> Response:
    body = await call.body(dict[str, Any])
    known = _isolation(call) or _NO_PARTS
    if body is None:
        raise RestError(500, "an isolation policy is required")
    policy = checked(call.param("policy"), body)
    if not policy["namespaces"] or not policy["primary"]:
        raise RestError(400, "namespaces and primary are required")
    await call.namespaces.isolation.update(
        call.param("cluster"), lambda old: old | {call.param("policy"): policy}, known
    )
    await _unload(call, unloaded(policy, known.get(call.param("policy"))))
    return done()


async def _unload(call: Call, patterns: list[Any]) -> None:
    """Unload the matching namespaces that this cluster serves, so that other brokers may get them; as in Apache Pulsar
    also for a policy of another cluster.
    """
    chosen, turn = [], WeighedTurn(_MATCHES_IN_ONE_TURN)
    for name in call.namespaces.namespaces.readable() if patterns else ():
        if any(each.fullmatch(name.encode()) for each in patterns) and not call.namespaces.is_foreign(name):
            chosen.append(name)
        await turn.spend(len(patterns))
    async for names in sliced(chosen, _UNLOADED_AT_A_TIME):
        await all_ended(unload_everywhere(call, each) for each in names if call.namespaces.exists(each))


@routes.delete(POLICY, SUPER)
async def delete_isolation_policy(call: Call) -> Response:
    known, name = _isolation(call), call.param("policy")
    if known is not None:
        await call.namespaces.isolation.update(
            call.param("cluster"), lambda old: {k: v for k, v in old.items() if k != name}, known
        )
    return done()


# --- moving a cluster -------------------------------------------------------------------------------------------


@routes.get(CLUSTER + "/migrate", SUPER)
async def migration(call: Call) -> Response:
    found = call.namespaces.clusters.get(call.param("cluster"))
    if found is None or found.migrated is None:
        raise rest_refusals.CLUSTER_MISSING.error()
    answer: dict[str, Any] = {"migrated": bool(found.migrated)}
    if found.migrated_cluster_url is not None:
        answer["migratedClusterUrl"] = found.migrated_cluster_url | {"empty": False}
    return json_response(answer)


@routes.post(CLUSTER + "/migrate", SUPER)
async def set_migration(call: Call) -> Response:
    """Store and show the migration; clients are not redirected."""
    urls = await call.body(dict[str, str])
    migrated = call.flag("migrated")
    if migrated and urls is None:
        raise RestError(500, "the addresses of the other cluster are required")
    _cluster(call)
    await _change(call, migrated=migrated, migrated_cluster_url=urls)
    return done(200)


@routes.get(ADMIN + "/metadata/migration/status", SUPER)
async def metadata_migration(_call: Call) -> Response:
    return json_response({"phase": "NOT_STARTED"})


@routes.post(ADMIN + "/metadata/migration/start", SUPER)
async def start_metadata_migration(call: Call) -> Response:
    if not call.query("target"):
        raise rest_refusals.MIGRATION_TARGET_MISSING.error()
    raise rest_refusals.MIGRATION_NOT_CONFIGURED.error()
