"""`pulsar-admin namespaces`: one row a verb."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from magnetar.cli.pulsar_admin.policies import (
    DISABLE,
    ENABLE,
    RATE,
    SHARED,
    Policy,
    enabled,
    limit,
    of,
    one_switch,
    quota,
    quota_problem,
    verbs_of,
)
from magnetar.cli.pulsar_admin.verb import Flag, Values, Verb, flag

_NS: Final = "namespaces/{namespace}"
_TYPE: Final = flag("-t --type", "text", "destination_storage", "destination_storage or message_age")


def _row(
    name: str,
    method: str,
    route: str,
    text: str,
    *flags: Flag,
    argument: str = "namespace",
    show: str = "none",
    **more: Any,
) -> Verb:
    return Verb("namespaces", name, argument, method, route, flags, show=show, help=text, **more)


def _new(values: Values) -> Any:
    policies: dict[str, Any] = {"replication_clusters": values["clusters"] or []}
    if values["bundles"]:
        policies["bundles"] = {"numBundles": values["bundles"]}
    return policies


def _creation(values: Values) -> Any:
    body = {"allowAutoTopicCreation": enabled(values), "topicType": values["type"]}
    if values["num_partitions"] is not None:
        body["defaultNumPartitions"] = values["num_partitions"]
    return body


def _creation_problem(values: Values) -> str | None:
    problem = one_switch(values)
    if problem is None and values["type"] not in ("partitioned", "non-partitioned"):
        problem = f"--type {values['type']}: give partitioned or non-partitioned"
    if problem is None and values["type"] == "partitioned" and values["num_partitions"] is None:
        problem = "--num-partitions is needed with --type partitioned"
    return problem


def _bundle_of_split(values: Values) -> str | None:
    return None if values["bundle"] or values["bundle_type"] else "give --bundle or --bundle-type"


_LIFE: Final = (
    _row("list", "GET", "namespaces/{tenant}", "namespaces of a tenant", argument="tenant", show="lines"),
    _row(
        "topics",
        "GET",
        f"{_NS}/topics?mode={{mode}}&includeSystemTopic={{include_system_topic}}",
        "topics of a namespace",
        flag("-m --mode", text="PERSISTENT, NON_PERSISTENT or ALL"),
        flag("-ist --include-system-topic", "flag", False),
        show="lines",
    ),
    _row("bundles", "GET", f"{_NS}/bundles", "its bundles", show="json"),
    _row("policies", "GET", _NS, "all its policies", show="json"),
    _row(
        "create",
        "PUT",
        _NS,
        "create a namespace",
        flag("-c --clusters", "list"),
        flag("-b --bundles", "integer", 0),
        body=_new,
    ),
    _row(
        "delete",
        "DELETE",
        f"{_NS}?force={{force}}",
        "delete a namespace",
        flag("-f --force", "flag", False, "with all its topics"),
    ),
    _row(
        "unload",
        "PUT",
        f"{_NS}/unload",
        "close its topics; clients come again and open them anew",
        flag("-b --bundle", text="this bundle alone"),
        flag("-d --destinationBroker"),
        check=lambda values: (
            "--destinationBroker needs --bundle" if values["destinationBroker"] and not values["bundle"] else None
        ),
        steps="unload",
    ),
    _row(
        "split-bundle",
        "PUT",
        f"{_NS}/{{bundle}}/split?unload={{unload}}&splitAlgorithmName={{split_algorithm_name}}",
        "split a bundle in two",
        flag("-b --bundle"),
        flag("-bt --bundle-type", text="LARGEST or HOT"),
        flag("-u --unload", "flag", False),
        flag("-san --split-algorithm-name"),
        check=_bundle_of_split,
        steps="split",
    ),
    _row(
        "get-topic-positions",
        "GET",
        f"{_NS}/{{bundle}}/topicHashPositions?topics={{topic_list}}",
        "hash positions of the topics in a bundle",
        flag("-b --bundle!"),
        flag("-tl --topic-list", "list"),
        show="json",
    ),
    _row(
        "clear-backlog",
        "POST",
        f"{_NS}/clearBacklog",
        "acknowledge everything in the namespace; asks first unless --force",
        flag("-s --sub", text="of this subscription alone"),
        flag("-b --bundle", text="in this bundle alone"),
        flag("-force --force", "flag", False, "do not ask"),
        steps="clear_backlog",
    ),
    _row(
        "unsubscribe",
        "POST",
        f"{_NS}/unsubscribe/{{sub}}",
        "delete a subscription on all topics",
        flag("-s --sub!"),
        flag("-b --bundle", text="in this bundle alone"),
        steps="unsubscribe",
    ),
    _row("get-properties", "GET", f"{_NS}/properties", "properties of the namespace", show="json"),
    _row(
        "set-properties",
        "PUT",
        f"{_NS}/properties",
        "add or replace properties",
        flag("-p --properties!", "map"),
        body=of("properties"),
    ),
    _row("clear-properties", "DELETE", f"{_NS}/properties", "remove all"),
    _row("get-property", "GET", f"{_NS}/property/{{key}}", "one property", flag("-k --key!"), show="text"),
    _row("set-property", "PUT", f"{_NS}/property/{{key}}/{{value}}", "set one", flag("-k --key!"), flag("-v --value!")),
    _row("remove-property", "DELETE", f"{_NS}/property/{{key}}", "remove one", flag("-k --key!"), show="text"),
)
_PERMISSIONS: Final = (
    _row("permissions", "GET", f"{_NS}/permissions", "actions of each role", show="map"),
    _row(
        "grant-permission",
        "POST",
        f"{_NS}/permissions/{{role}}",
        "grant actions to a role",
        flag("-r --role!"),
        flag("-a --actions!", "actions", text="produce, consume, ..."),
        body=of("actions"),
    ),
    _row("revoke-permission", "DELETE", f"{_NS}/permissions/{{role}}", "take all from a role", flag("-r --role!")),
    _row("subscription-permission", "GET", f"{_NS}/permissions/subscription", "roles of subscriptions", show="map"),
    _row(
        "grant-subscription-permission",
        "POST",
        f"{_NS}/permissions/subscription/{{subscription}}",
        "roles that may use a subscription",
        flag("-s --subscription!"),
        flag("-rs --roles!", "list"),
        body=of("roles"),
    ),
    _row(
        "revoke-subscription-permission",
        "DELETE",
        f"{_NS}/permissions/{{subscription}}/{{role}}",
        "roles that may use a subscription",
        flag("-s --subscription!"),
        flag("-r --role!"),
    ),
)
_SPECIAL: Final = (
    _row("get-clusters", "GET", f"{_NS}/replication", "its clusters", show="lines"),
    _row("set-clusters", "POST", f"{_NS}/replication", "set them", flag("-c --clusters!", "list"), body=of("clusters")),
    _row("get-allowed-clusters", "GET", f"{_NS}/allowedClusters", "clusters it may have", show="lines"),
    _row(
        "set-allowed-clusters",
        "POST",
        f"{_NS}/allowedClusters",
        "set them",
        flag("-c --clusters!", "list"),
        body=of("clusters"),
    ),
    _row("get-backlog-quotas", "GET", f"{_NS}/backlogQuotaMap", "quotas", show="quotas"),
    _row(
        "set-backlog-quota",
        "POST",
        f"{_NS}/backlogQuota?backlogQuotaType={{type}}",
        "set a quota",
        flag("-l --limit", "size"),
        flag("-lt --limitTime", "seconds"),
        flag("-p --policy!", text="producer_request_hold, producer_exception or consumer_backlog_eviction"),
        _TYPE,
        body=quota,
        check=quota_problem,
    ),
    _row("remove-backlog-quota", "DELETE", f"{_NS}/backlogQuota?backlogQuotaType={{type}}", "remove a quota", _TYPE),
    _row("get-anti-affinity-group", "GET", f"{_NS}/antiAffinity", "its group", show="text"),
    _row("set-anti-affinity-group", "POST", f"{_NS}/antiAffinity", "set it", flag("-g --group!"), body=of("group")),
    _row("delete-anti-affinity-group", "DELETE", f"{_NS}/antiAffinity", "remove it"),
    _row("get-resource-group", "GET", f"{_NS}/resourcegroup", "its resource group", show="text"),
    _row("remove-resource-group", "DELETE", f"{_NS}/resourcegroup", "remove it"),
    _row("get-entry-filters", "GET", f"{_NS}/entryFilters", "its entry filters", show="json"),
    _row("remove-entry-filters", "DELETE", f"{_NS}/entryFilters", "remove them"),
)
_SWITCHES: Final = (
    ("encryption-required", "encryptionRequired", (ENABLE, DISABLE), one_switch, enabled),
    ("is-allow-auto-update-schema", "isAllowAutoUpdateSchema", (ENABLE, DISABLE), one_switch, enabled),
    ("schema-validation-enforce", "schemaValidationEnforced", (ENABLE, DISABLE), one_switch, enabled),
)
_TEXTS: Final = (
    ("subscription-auth-mode", "subscriptionAuthMode", "POST", "-m --subscription-auth-mode!", "json"),
    ("schema-compatibility-strategy", "schemaCompatibilityStrategy", "PUT", "-c --compatibility!", "plain"),
)
_APPLIED: Final = flag("-ap --applied", "flag", False, "the broker's setting where there is no policy")
_ENFORCED: Final = _row(
    "get-schema-validation-enforce",
    "GET",
    f"{_NS}/schemaValidationEnforced?applied={{applied}}",
    "whether producers without a schema are refused",
    _APPLIED,
    show="json",
)
_AUTO_UPDATE: Final = (
    _row(
        "get-schema-autoupdate-strategy",
        "GET",
        f"{_NS}/schemaAutoUpdateCompatibilityStrategy",
        "which new schemas are taken (old form)",
        show="autoupdate",
    ),
    _row(
        "set-schema-autoupdate-strategy",
        "PUT",
        f"{_NS}/schemaAutoUpdateCompatibilityStrategy",
        "which new schemas are taken (old form)",
        flag("-c --compatibility", text="Full, Backward, ..."),
        flag("-d --disabled", "flag", False),
        check=lambda values: (
            None if values["compatibility"] or values["disabled"] else "give one of --compatibility and --disabled"
        ),
        body=lambda values: "AutoUpdateDisabled" if values["disabled"] else values["compatibility"],
    ),
)
_PAUSES: Final = tuple(
    _row(
        f"{word}-dispatcher-pause-on-ack-state-persistent",
        method,
        f"{_NS}/dispatcherPauseOnAckStatePersistent",
        "kept and shown",
        show=show,
    )
    for word, method, show in (("set", "POST", "none"), ("get", "GET", "json"), ("remove", "DELETE", "none"))
)
_OWN_POLICIES: Final = (
    Policy("message-ttl", "messageTTL", (flag("-ttl --messageTTL!", "seconds", text="0: off"),), of("messageTTL")),
    Policy(
        "auto-topic-creation",
        "autoTopicCreation",
        (
            ENABLE,
            DISABLE,
            flag("-t --type", "text", "non-partitioned", "partitioned or non-partitioned"),
            flag("-n --num-partitions", "integer"),
        ),
        _creation,
        _creation_problem,
    ),
    Policy(
        "auto-subscription-creation",
        "autoSubscriptionCreation",
        (flag("-e --enable", "flag", False),),
        lambda values: {"allowAutoSubscriptionCreation": enabled(values)},
    ),
    limit("subscription-expiration-time", "subscriptionExpirationTime", "-t --time"),
    limit("max-subscriptions-per-topic", "maxSubscriptionsPerTopic", "-m --max-subscriptions-per-topic"),
    limit("max-producers-per-topic", "maxProducersPerTopic", "-p --max-producers-per-topic"),
    limit("max-consumers-per-topic", "maxConsumersPerTopic", "-c --max-consumers-per-topic"),
    limit("max-consumers-per-subscription", "maxConsumersPerSubscription", "-c --max-consumers-per-subscription"),
    limit(
        "max-unacked-messages-per-subscription",
        "maxUnackedMessagesPerSubscription",
        "-c --max-unacked-messages-per-subscription",
    ),
    limit("max-unacked-messages-per-consumer", "maxUnackedMessagesPerConsumer", "-c --max-unacked-messages-per-topic"),
    limit("max-topics-per-namespace", "maxTopicsPerNamespace", "-t --max-topics-per-namespace"),
)
_CHANGED: Final = {
    "deduplication": {"path": "deduplication"},
    "replicator-dispatch-rate": {"flags": RATE},
    "compaction-threshold": {"verb": "PUT"},
}
"""The attributes of namespace policies that differ from those of topic policies."""


def _upper_compatibility(values: Values) -> str:
    return str(values["compatibility"]).upper()


def _shared() -> tuple[Policy, ...]:
    return tuple(replace(policy, **_CHANGED.get(policy.name, {})) for policy in SHARED)  # type: ignore[arg-type]


def _switch_rows() -> list[Verb]:
    rows = []
    for name, path, flags, check, body in _SWITCHES:
        rows.append(_row(f"set-{name}", "POST", f"{_NS}/{path}", f"set {name}", *flags, check=check, body=body))
        if name != "schema-validation-enforce":
            rows.append(_row(f"get-{name}", "GET", f"{_NS}/{path}", f"the policy {name}", show="json"))
    for name, path, method, names, show in _TEXTS:
        setting = flag(names)
        rows.append(_row(f"get-{name}", "GET", f"{_NS}/{path}", f"the policy {name}", show=show))
        text_body = of(setting.key) if show == "json" else _upper_compatibility
        rows.append(_row(f"set-{name}", method, f"{_NS}/{path}", f"set {name}", setting, body=text_body))
    return rows


VERBS: Final = (
    *_LIFE,
    *_PERMISSIONS,
    *_SPECIAL,
    *_switch_rows(),
    _ENFORCED,
    *_AUTO_UPDATE,
    *_PAUSES,
    *(
        replace(verb, method="POST") if verb.name == "remove-deduplication-snapshot-interval" else verb
        for policy in (*_shared(), *_OWN_POLICIES)
        for verb in verbs_of(policy, "namespaces", "namespace")
    ),
)
