"""Lists of clusters, of tenants, namespaces and topics: their order, and which clusters they may have."""

from collections.abc import Iterable

import msgspec

from magnetar.broker.admin import policy_rules
from magnetar.broker.admin.call import Call
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.policies.records import Policies


def known_clusters(call: Call, given: Iterable[str | None]) -> list[str]:
    """The names in the order of `java_order`; raises 403 for null, or else for the first name of no cluster."""
    given = list(given)
    clusters = java_order(name for name in given if name is not None)
    unknown = ["null"] if None in given else [name for name in clusters if name not in call.namespaces.clusters]
    if unknown:
        raise rest_refusals.CLUSTER_ID_INVALID.error(cluster=unknown[0])
    return clusters


def refuse_misfit(call: Call, clusters: list[str]) -> None:
    """Raise an error for clusters that replace each other, 403 for a cluster that the tenant may not use."""
    if (refused := policy_rules.peers_together(call.namespaces.clusters.get, clusters)) is not None:
        raise refused
    refuse_beyond_tenant(call, clusters)


def refuse_beyond_tenant(call: Call, clusters: Iterable[str | None]) -> None:
    """Raise 403 for the first cluster that the tenant may not use; nothing is refused to a missing tenant."""
    tenant = call.namespaces.tenants.get(call.param("tenant"))
    if tenant is None:
        return
    for cluster in clusters:
        if cluster is None or cluster not in tenant.allowed_clusters:
            shown = "null" if cluster is None else cluster
            raise rest_refusals.CLUSTER_BEYOND_TENANT.error(cluster=shown, tenant=call.param("tenant"))


def refuse_beyond_allowed(call: Call, policies: Policies, clusters: list[str]) -> None:
    """Raise 400 for clusters outside the allowed clusters of the namespace. The text names the first of all clusters,
    as in Apache Pulsar.
    """
    if policies.allowed_clusters and not set(clusters) <= set(policies.allowed_clusters):
        raise rest_refusals.CLUSTER_BEYOND_NAMESPACE.error(cluster=clusters[0], namespace=call.namespace)


def ordered(call: Call, policies: Policies, *, names_replication: bool) -> Policies:
    """Policies of a new namespace with the lists of clusters in the order of `java_order`. The broker's own cluster
    joins the allowed clusters. Raises 400 where the request names a cluster for replication that is not allowed.
    """
    replicated, allowed = java_order(policies.replication_clusters), java_order(policies.allowed_clusters)
    if allowed and names_replication and not set(replicated) <= set(allowed):
        raise rest_refusals.REPLICATION_BEYOND_ALLOWED.error(
            namespace=call.namespace, replicated=", ".join(replicated), allowed=", ".join(allowed)
        )
    allowed = allowed and java_order([*allowed, call.api.settings.cluster_name])
    return msgspec.structs.replace(policies, replication_clusters=replicated, allowed_clusters=allowed)


def is_replicated(policies: Policies | None) -> bool:
    """Whether several clusters have, or may have, the namespace: it cannot be deleted."""
    return policies is not None and len(policies.allowed_clusters or policies.replication_clusters) > 1


def only_cluster(policies: Policies | None) -> str | None:
    """The cluster that alone has the namespace."""
    clusters = [] if policies is None else list(policies.allowed_clusters or policies.replication_clusters)
    return clusters[0] if len(clusters) == 1 else None
