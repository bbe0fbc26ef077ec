"""Policies of namespaces: /admin/v2/namespaces/{tenant}/{namespace}/<policy>."""

from typing import Any, Final, TypeVar

import msgspec
from starlette.responses import Response

from magnetar.broker.admin import policy_rules
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.cluster_lists import (
    known_clusters,
    refuse_beyond_allowed,
    refuse_beyond_tenant,
    refuse_misfit,
)
from magnetar.broker.admin.policy_rules import at_least_zero
from magnetar.broker.admin.policy_table import PolicyRow
from magnetar.broker.admin.responses import done, json_response
from magnetar.broker.admin.routes import NAMESPACE, RouteTable
from magnetar.broker.auth.table import NAMESPACE_ADMIN, SUPER
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.jackson_body import choice_or, fitted
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.errors import RestError
from magnetar.broker.policies.records import Policies, TopicPolicies, shown
from magnetar.broker.policies.values import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    AutoUpdateStrategy,
    BacklogQuota,
    DelayedDeliveryPolicies,
    DispatchRate,
    EntryFilters,
    InactiveTopicPolicies,
    PersistencePolicies,
    PublishRate,
    RetentionPolicies,
    SchemaStrategy,
    SubscribeRate,
    SubscriptionAuthMode,
    SubscriptionType,
)

routes = RouteTable()
# The order in which Apache Pulsar lists a set of subscription types.
_TYPES_IN_ORDER: Final[tuple[SubscriptionType, ...]] = ("Shared", "Failover", "Key_Shared", "Exclusive")
Row = PolicyRow


def _limit(path: str, field: str, verb: str = "POST", **more: Any) -> PolicyRow:
    return Row(path=path, field=field, kind=int, verb=verb, rule=at_least_zero(path), **more)


_OF_POLICIES_ALONE: Final = {
    "retention": ("POST", "DELETE"),
    "delayedDelivery": ("POST", "DELETE"),
    "inactiveTopicPolicies": ("POST", "DELETE"),
    "deduplicationSnapshotInterval": ("POST",),
    "maxSubscriptionsPerTopic": ("POST", "DELETE"),
    "maxTopicsPerNamespace": ("POST", "DELETE"),
    "replicatorDispatchRate": ("GET",),
}
"""Calls that miss the policies of a missing namespace, in the words of Apache Pulsar, where others miss the
namespace.
"""


def _missing(row: PolicyRow, method: str) -> RestError | None:
    """The refusal of a missing namespace; None: in the words of most calls."""
    alone = method in _OF_POLICIES_ALONE.get(row.path, ())
    return rest_refusals.NAMESPACE_POLICIES_MISSING.error() if alone else None


def no_filters(value: EntryFilters) -> RestError | None:
    names = [name for name in (value.entry_filter_names or "").split(",") if name.strip()]
    if not names:
        return rest_refusals.ENTRY_FILTER_EMPTY.error()
    return rest_refusals.ENTRY_FILTER_UNKNOWN.error(name=names[0])


def subscription_types(types: list[SubscriptionType | None]) -> list[SubscriptionType]:
    """Return each type once, in Apache Pulsar's order; refuse a text that names no type."""
    if None in types:
        raise RestError(500, "there is no such subscription type")
    return [each for each in _TYPES_IN_ORDER if each in types]


ROWS: Final = (
    Row(
        path="retention",
        field="retention_policies",
        kind=RetentionPolicies,
        removal_reads_body=True,
        rule=policy_rules.retention,
        null_clears=True,
    ),
    _limit("messageTTL", "message_ttl_in_seconds"),
    Row(
        path="subscriptionExpirationTime",
        field="subscription_expiration_time_minutes",
        kind=int,
        rule=policy_rules.subscription_expiration,
    ),
    Row(path="deduplication", field="deduplication_enabled", kind=bool),
    Row(
        path="deduplicationSnapshotInterval",
        field="deduplication_snapshot_interval_seconds",
        kind=int,
        rule=policy_rules.snapshot_interval,
        null_clears=True,
        removable=False,
    ),
    Row(
        path="autoTopicCreation",
        field="auto_topic_creation_override",
        kind=AutoTopicCreation,
        rule=policy_rules.auto_topic_creation,
        null_clears=True,
    ),
    Row(
        path="autoSubscriptionCreation",
        field="auto_subscription_creation_override",
        kind=AutoSubscriptionCreation,
        null_clears=True,
    ),
    Row(
        path="persistence",
        field="persistence",
        kind=PersistencePolicies,
        rule=policy_rules.persistence,
    ),
    Row(
        path="delayedDelivery",
        field="delayed_delivery_policies",
        kind=DelayedDeliveryPolicies,
        null_clears=True,
    ),
    Row(path="inactiveTopicPolicies", field="inactive_topic_policies", kind=InactiveTopicPolicies, null_clears=True),
    Row(path="dispatchRate", field="topic_dispatch_rate", kind=DispatchRate, null_clears=True, per_cluster=True),
    Row(
        path="subscriptionDispatchRate",
        field="subscription_dispatch_rate",
        kind=DispatchRate,
        null_clears=True,
        per_cluster=True,
    ),
    Row(
        path="replicatorDispatchRate",
        field="replicator_dispatch_rate",
        kind=DispatchRate,
        null_clears=True,
        per_cluster=True,
    ),
    Row(path="publishRate", field="publish_max_message_rate", kind=PublishRate, null_clears=True, per_cluster=True),
    Row(path="subscribeRate", field="cluster_subscribe_rate", kind=SubscribeRate, null_clears=True, per_cluster=True),
    _limit("compactionThreshold", "compaction_threshold", verb="PUT", wide=True),
    _limit("maxProducersPerTopic", "max_producers_per_topic"),
    _limit("maxConsumersPerTopic", "max_consumers_per_topic"),
    _limit("maxConsumersPerSubscription", "max_consumers_per_subscription"),
    _limit("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer"),
    _limit("maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription"),
    _limit("maxSubscriptionsPerTopic", "max_subscriptions_per_topic"),
    _limit("maxTopicsPerNamespace", "max_topics_per_namespace", when_unset=0),
    Row(path="encryptionRequired", field="encryption_required", kind=bool, removable=False),
    Row(path="isAllowAutoUpdateSchema", field="is_allow_auto_update_schema", kind=bool, removable=False),
    Row(path="schemaValidationEnforced", field="schema_validation_enforced", kind=bool, removable=False),
    Row(
        path="schemaCompatibilityStrategy",
        field="schema_compatibility_strategy",
        kind=str,
        verb="PUT",
        convert=choice_or(SchemaStrategy, "UNDEFINED"),
        null_clears=True,
        removable=False,
    ),
    Row(
        path="schemaAutoUpdateCompatibilityStrategy",
        field="schema_auto_update_compatibility_strategy",
        kind=str,
        verb="PUT",
        convert=choice_or(AutoUpdateStrategy, None),
        null_clears=True,
        removable=False,
        unset_status=204,
    ),
    Row(
        path="subscriptionAuthMode",
        field="subscription_auth_mode",
        kind=str,
        convert=choice_or(SubscriptionAuthMode, "None"),
        null_clears=True,
        removable=False,
    ),
    Row(
        path="subscriptionTypesEnabled",
        field="subscription_types_enabled",
        kind=list[SubscriptionType | None],
        convert=subscription_types,
    ),
    Row(path="entryFilters", field="entry_filters", kind=EntryFilters, rule=no_filters, null_clears=True),
    Row(
        path="allowedTopicPropertyKeysForMetrics",
        field="allowed_topic_property_keys_for_metrics",
        kind=list[str | None],
        convert=java_order,
        null_clears=True,
    ),
)


def _declare(row: PolicyRow) -> None:
    async def read(call: Call) -> Response:
        value = row.read(call.policies(_missing(row, "GET")), call.api.settings.cluster_name)
        if row.field == "is_allow_auto_update_schema" and value is None:
            value = call.api.settings.is_allow_auto_update_schema_enabled
        answer = row.show(value)
        return json_response(answer, row.unset_status if answer is None else 200)

    async def write(call: Call) -> Response:
        await row.refuse_misfit(call)
        call.check_namespace_name()
        value = await row.value_of_body(call)  # refused before the namespace is looked up
        policies = call.policies(_missing(row, "POST"))
        if row.field == "retention_policies":
            _refuse(policy_rules.retention_fits_quota(_by_size(policies.backlog_quota_map), value, "namespace"))
        if isinstance(value, AutoTopicCreation):
            _refuse(policy_rules.partitions_allowed(call.api.settings, value))
        return await store(call, value, row.set_status)

    async def remove(call: Call) -> Response:
        if row.removal_reads_body:
            await row.refuse_misfit(call)
        call.policies(_missing(row, "DELETE"))
        return await store(call, None, 204)

    async def store(call: Call, value: Any, status: int) -> Response:
        cluster = call.api.settings.cluster_name
        await call.namespaces.update_namespace(call.namespace, lambda old: row.written(old, value, cluster))
        return done(status)

    path = f"{NAMESPACE}/{row.path}"
    changing = SUPER if row.path == "delayedDelivery" else NAMESPACE_ADMIN
    routes.add("GET", path, NAMESPACE_ADMIN, read)
    routes.add(row.verb, path, changing, write)
    if row.removable:
        routes.add("DELETE", path, changing, remove)


for _row in ROWS:
    _declare(_row)


def _refuse(problem: RestError | None) -> None:
    if problem is not None:
        raise problem


# --- policies outside the table ---------------------------------------------------------------------------------


@routes.get(NAMESPACE + "/backlogQuotaMap", NAMESPACE_ADMIN)
async def backlog_quotas(call: Call) -> Response:
    return json_response({kind: shown(quota) for kind, quota in call.policies().backlog_quota_map.items()})


def _by_size(quotas: dict[str, BacklogQuota]) -> list[BacklogQuota]:
    """The namespace's quotas by size; only these quotas are compared with its retention."""
    return [quota for kind, quota in quotas.items() if kind == "destination_storage"]


@routes.post(NAMESPACE + "/backlogQuota", NAMESPACE_ADMIN)
async def set_backlog_quota(call: Call) -> Response:
    await call.body(dict[str, Any])
    call.check_namespace_name()
    quota, kind = await read_quota(call), quota_type(call)
    if quota is None:
        raise RestError(500, "a backlog quota is required")
    policies = call.policies()
    _refuse(policy_rules.quota_fits_retention(_by_size({kind: quota}), policies.retention_policies, "namespace"))
    await call.namespaces.update_namespace(call.namespace, lambda old: with_quota(old, kind, quota))
    return done()


@routes.delete(NAMESPACE + "/backlogQuota", NAMESPACE_ADMIN)
async def remove_backlog_quota(call: Call) -> Response:
    call.policies()
    kind = quota_type(call)
    await call.namespaces.update_namespace(call.namespace, lambda old: with_quota(old, kind, None))
    return done()


def quota_type(call: Call) -> str:
    """The type of quota of the query parameter; storage when absent."""
    kind = call.query("backlogQuotaType") or "destination_storage"
    if kind not in ("destination_storage", "message_age"):
        raise RestError(404, f"there is no backlog quota type {kind}")
    return kind


async def read_quota(call: Call) -> BacklogQuota | None:
    """The quota of the body; `limit` is the name of `limitSize` in older tools. None: the quota is removed."""
    raw = await call.body(dict[str, Any])
    if raw is None:
        return None
    try:
        quota = fitted(raw, BacklogQuota)
    except msgspec.ValidationError as e:
        raise RestError(400, f"body: {e}") from e
    assert quota is not None, "only null is None"
    if quota.policy is None:
        raise rest_refusals.BACKLOG_QUOTA_WITHOUT_POLICY.error(namespace=call.namespace)
    size = quota.limit_size if "limitSize" in raw or quota.limit is None else quota.limit
    return msgspec.structs.replace(quota, limit=size, limit_size=size)


P = TypeVar("P", Policies, TopicPolicies)


def with_quota(policies: P, kind: str, quota: BacklogQuota | None) -> P:
    kept = {name: value for name, value in policies.backlog_quota_map.items() if name != kind}
    return msgspec.structs.replace(policies, backlog_quota_map=kept if quota is None else kept | {kind: quota})


@routes.get(NAMESPACE + "/replication", NAMESPACE_ADMIN)
async def replication(call: Call) -> Response:
    return json_response(java_order(call.policies().replication_clusters))


@routes.post(NAMESPACE + "/replication", NAMESPACE_ADMIN)
async def set_replication(call: Call) -> Response:
    given = await call.body(list[str | None])
    call.check_namespace_name()
    if not given:
        raise rest_refusals.CLUSTER_IDS_MISSING.error()
    clusters = known_clusters(call, given)
    refuse_misfit(call, clusters)
    refuse_beyond_allowed(call, call.policies(), clusters)
    await call.namespaces.update_namespace(
        call.namespace, lambda old: msgspec.structs.replace(old, replication_clusters=clusters)
    )
    return done(200)


@routes.get(NAMESPACE + "/allowedClusters", NAMESPACE_ADMIN)
async def allowed_clusters(call: Call) -> Response:
    return json_response(java_order(call.policies().allowed_clusters))


@routes.post(NAMESPACE + "/allowedClusters", NAMESPACE_ADMIN)
async def set_allowed_clusters(call: Call) -> Response:
    given = await call.body(list[str | None])
    call.check_namespace_name()
    if given is None:
        raise RestError(500, "a list of clusters is required")
    if call.param("tenant") not in call.namespaces.tenants:
        raise (rest_refusals.TENANT_MISSING if given else rest_refusals.NAMESPACE_MISSING).error()
    refuse_beyond_tenant(call, given)
    clusters = java_order(name for name in given if name is not None)
    replicated = java_order(call.policies().replication_clusters)
    if not set(replicated) <= set(clusters):
        raise rest_refusals.ALLOWED_CLUSTERS_INCOMPLETE.error(clusters=", ".join(replicated))
    _refuse(policy_rules.peers_together(call.namespaces.clusters.get, clusters))
    await call.namespaces.update_namespace(
        call.namespace, lambda old: msgspec.structs.replace(old, allowed_clusters=clusters)
    )
    return done(200)


@routes.get(NAMESPACE + "/dispatcherPauseOnAckStatePersistent", NAMESPACE_ADMIN)
async def pause_on_ack_state(call: Call) -> Response:
    policies = call.policies(rest_refusals.NAMESPACE_POLICIES_MISSING.error())
    return json_response(bool(policies.dispatcher_pause_on_ack_state_persistent_enabled))


@routes.post(NAMESPACE + "/dispatcherPauseOnAckStatePersistent", NAMESPACE_ADMIN)
async def set_pause_on_ack_state(call: Call) -> Response:
    return await _pause_on_ack_state(call, on=True)


@routes.delete(NAMESPACE + "/dispatcherPauseOnAckStatePersistent", NAMESPACE_ADMIN)
async def remove_pause_on_ack_state(call: Call) -> Response:
    return await _pause_on_ack_state(call, on=False)


async def _pause_on_ack_state(call: Call, *, on: bool) -> Response:
    call.policies()
    await call.namespaces.update_namespace(
        call.namespace,
        lambda old: msgspec.structs.replace(old, dispatcher_pause_on_ack_state_persistent_enabled=on),
    )
    return done()
