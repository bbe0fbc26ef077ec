"""The whole table, and the verbs of pulsar-admin that are left out with the reason.

A test compares the table with the verbs of pulsar-admin itself (tests/cli/vectors): each verb is here or in
UNSUPPORTED. Verbs newer than the recorded version are in `newer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.cli.pulsar_admin import cluster, namespaces, newer, topic_policies, topics

if TYPE_CHECKING:
    from magnetar.cli.pulsar_admin.verb import Verb

VERBS: Final[tuple[Verb, ...]] = (*topics.VERBS, *topic_policies.VERBS, *namespaces.VERBS, *cluster.VERBS, *newer.VERBS)
GROUPS: Final = {
    "topics": "topics, subscriptions and messages",
    "topicPolicies": "policies of single topics",
    "namespaces": "namespaces and their policies",
    "tenants": "tenants",
    "clusters": "clusters and failure domains",
    "brokers": "brokers and their settings",
    "broker-stats": "figures of the broker",
    "schemas": "schemas of topics",
    "bookies": "racks, kept and shown",
    "resourcegroups": "resource groups: stored and shown, without effect",
    "ns-isolation-policy": "isolation policies",
}
_OFFLOAD: Final = "the broker offloads no ledgers"
_SHADOW: Final = "there are no shadow topics"
_FILTERS: Final = "there are no entry filters"
UNSUPPORTED: Final[dict[str, str]] = {
    "functions": "there are no functions",
    "functions-worker": "there are no functions",
    "sources": "there are no connectors",
    "source": "there are no connectors",
    "sinks": "there are no connectors",
    "sink": "there are no connectors",
    "packages": "there are no packages of functions",
    "transactions": "transactions are not served",
    "proxy-stats": "there is no proxy",
    "documents": "see `magnetar admin --help` and docs/cli.md",
    "resource-quotas": "quotas of bundles have no meaning on one node",
    "persistent": "deprecated in Pulsar itself: use `topics`",
    "non-persistent": "deprecated in Pulsar itself: use `topics`",
    "topics offload": _OFFLOAD,
    "topics offload-status": _OFFLOAD,
    **{f"topics {word}-offload-policies": _OFFLOAD for word in ("get", "set", "remove")},
    **{f"topicPolicies {word}-offload-policies": _OFFLOAD for word in ("get", "set", "remove")},
    **{f"namespaces {word}-offload-policies": _OFFLOAD for word in ("get", "set", "remove")},
    **{f"namespaces {word}-offload-threshold": _OFFLOAD for word in ("get", "set")},
    **{f"namespaces {word}-offload-deletion-lag": _OFFLOAD for word in ("get", "set", "clear")},
    **{f"topics {word}-shadow-topics": _SHADOW for word in ("get", "set", "remove")},
    "topics create-shadow-topic": _SHADOW,
    "topics get-shadow-source": _SHADOW,
    "topicPolicies set-entry-filters-per-topic": _FILTERS,
    "namespaces set-entry-filters": _FILTERS,
    "namespaces set-resource-group": "resource groups have no effect here",
    **{f"resourcegroups {word}": "resource groups have no effect here" for word in ("create", "update", "delete")},
    "namespaces list-cluster": "deprecated in Pulsar itself: use `list`",
    "namespaces destinations": "deprecated in Pulsar itself: use `topics`",
    **{
        f"namespaces {word}-bookie-affinity-group": "there are no bookies to choose from"
        for word in ("get", "set", "delete")
    },
    "namespaces update-migration-state": "clusters are not migrated",
    "clusters get-cluster-migration": "clusters are not migrated",
    "clusters update-cluster-migration": "clusters are not migrated",
    "brokers shutdown": "stop the process with SIGTERM",
    "broker-stats allocator-stats": "the broker has no JVM",
    "schemas extract": "reads classes of a Java archive",
}
"""Refused groups and verbs (`group verb`) of pulsar-admin -> reason."""


def verbs_of_group(group: str) -> dict[str, Verb]:
    """Return the verbs of one group by name."""
    return {verb.name: verb for verb in VERBS if verb.group == group}
