"""Which clusters serve a namespace: its replication clusters and its allowed clusters, as in Apache Pulsar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.compat import wire_refusals

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.errors import ForeignNamespaceError
    from magnetar.broker.policies.records import Policies
    from magnetar.broker.policies.values import ClusterData

    Clusters = Callable[[str], ClusterData | None]
    """The known clusters by name."""


def is_served_elsewhere(policies: Policies, own: str, clusters: Clusters) -> bool:
    """Whether only other clusters than `own` serve the namespace. A cluster without addresses serves nothing: so a
    broker that gets another cluster name continues to serve the namespaces of its former name.
    """
    if own in policies.replication_clusters or own in policies.allowed_clusters:
        return False
    return any(_has_address(clusters(name)) for name in policies.replication_clusters)


def foreign_namespace(namespace: str, policies: Policies, own: str, clusters: Clusters) -> ForeignNamespaceError:
    """The refusal of a namespace that other clusters serve."""
    replicated = policies.replication_clusters
    error = wire_refusals.NAMESPACE_OF_OTHER_CLUSTERS.error(
        own=own, namespace=namespace, clusters=", ".join(replicated)
    )
    known = clusters(own)
    peers = (known.peer_cluster_names if known else None) or ()
    error.peer = next((each for each in peers if each in replicated or each in policies.allowed_clusters), None)
    return error


def _has_address(cluster: ClusterData | None) -> bool:
    return cluster is not None and any(
        (cluster.service_url, cluster.service_url_tls, cluster.broker_service_url, cluster.broker_service_url_tls)
    )
