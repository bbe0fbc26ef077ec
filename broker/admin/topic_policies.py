"""Policies of topics: /admin/v2/{domain}/{tenant}/{namespace}/{topic}/<policy>, `?applied=true` for what applies
after all.
"""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from magnetar.broker.admin import policy_rules
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.namespace_policies import no_filters, quota_type, read_quota
from magnetar.broker.admin.policy_rules import at_least_zero
from magnetar.broker.admin.policy_table import PolicyRow, known_or
from magnetar.broker.admin.responses import RestError, done, json_response, not_found, precondition
from magnetar.broker.admin.routes import TOPIC, RouteTable
from magnetar.broker.auth.table import TOPIC_ADMIN
from magnetar.broker.policies import TopicConfig
from magnetar.broker.policy_records import TopicPolicies, shown
from magnetar.broker.policy_values import (
    AutoSubscriptionCreation,
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
    SubscriptionType,
)
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
Row = PolicyRow


def _of(name: str) -> Any:
    """What applies is the attribute of that name."""
    return lambda config: getattr(config, name)


def _limit(path: str, field: str, applied: str = "", **more: Any) -> PolicyRow:
    of = _of(applied) if applied else None
    return Row(path=path, field=field, kind=int, rule=at_least_zero(path), applied=of, **more)


def _applied_filters(_config: TopicConfig) -> EntryFilters:
    return EntryFilters()


def _applied_auto_subscription(config: TopicConfig) -> AutoSubscriptionCreation:
    return AutoSubscriptionCreation(allow_auto_subscription_creation=config.allow_auto_subscription_creation)


ROWS: Final = (
    Row(
        path="retention",
        field="retention",
        kind=RetentionPolicies,
        rule=policy_rules.retention,
        applied=_of("retention"),
    ),
    Row(
        path="persistence",
        field="persistence",
        kind=PersistencePolicies,
        rule=policy_rules.persistence,
        applied=_of("persistence"),
    ),
    Row(
        path="delayedDelivery",
        field="delayed_delivery",
        kind=DelayedDeliveryPolicies,
        null_clears=True,
        applied=_of("delayed_delivery"),
    ),
    Row(
        path="inactiveTopicPolicies",
        field="inactive_topic",
        kind=InactiveTopicPolicies,
        null_clears=True,
        applied=_of("inactive_topic"),
    ),
    Row(path="dispatchRate", field="dispatch_rate", kind=DispatchRate, null_clears=True, applied=_of("dispatch_rate")),
    Row(
        path="subscriptionDispatchRate",
        field="subscription_dispatch_rate",
        kind=DispatchRate,
        null_clears=True,
        applied=_of("subscription_dispatch_rate"),
    ),
    Row(
        path="replicatorDispatchRate",
        field="replicator_dispatch_rate",
        kind=DispatchRate,
        null_clears=True,
        applied=_of("replicator_dispatch_rate"),
    ),
    Row(path="publishRate", field="publish_rate", kind=PublishRate, unset_status=204),
    Row(
        path="subscribeRate",
        field="subscribe_rate",
        kind=SubscribeRate,
        null_clears=True,
        applied=_of("subscribe_rate"),
    ),
    Row(
        path="deduplicationEnabled",
        field="deduplication_enabled",
        kind=bool,
        null_clears=True,
        applied=_of("deduplication_enabled"),
    ),
    _limit("deduplicationSnapshotInterval", "deduplication_snapshot_interval_seconds", null_clears=True),
    _limit("compactionThreshold", "compaction_threshold", "compaction_threshold_bytes"),
    _limit("maxProducers", "max_producers", "max_producers"),
    _limit("maxConsumers", "max_consumers", "max_consumers"),
    _limit("maxConsumersPerSubscription", "max_consumers_per_subscription", unset_status=204),
    _limit("maxSubscriptionsPerTopic", "max_subscriptions", unset_status=204),
    _limit("maxUnackedMessagesOnConsumer", "max_unacked_messages_per_consumer", "max_unacked_messages_per_consumer"),
    _limit(
        "maxUnackedMessagesOnSubscription",
        "max_unacked_messages_per_subscription",
        "max_unacked_messages_per_subscription",
    ),
    _limit("maxMessageSize", "max_message_size", unset_status=204),
    Row(
        path="schemaCompatibilityStrategy",
        field="schema_compatibility_strategy",
        kind=str,
        verb="PUT",
        convert=known_or(SchemaStrategy, None),
        null_clears=True,
        applied=_of("schema_compatibility_strategy"),
    ),
    Row(
        path="schemaValidationEnforced",
        field="schema_validation_enforced",
        kind=bool,
        removable=False,
        when_unset=False,
        applied=_of("schema_validation_enforced"),
    ),
    Row(
        path="autoSubscriptionCreation",
        field="auto_subscription_creation",
        kind=AutoSubscriptionCreation,
        null_clears=True,
        applied=_applied_auto_subscription,
    ),
    Row(
        path="subscriptionTypesEnabled",
        field="subscription_types_enabled",
        kind=list[SubscriptionType],
        null_clears=True,
        removed=[],
        unset_status=204,
    ),
    Row(
        path="dispatcherPauseOnAckStatePersistent",
        field="dispatcher_pause_on_ack_state_persistent",
        kind=bool,
        convert=lambda _: True,
        when_unset=False,
        applied=lambda _: False,
    ),
    Row(path="entryFilters", field="entry_filters", kind=EntryFilters, rule=no_filters, applied=_applied_filters),
)


def policy_topic(call: Call) -> TopicName:
    """The topic whose policies are meant; raises for partitions, unknown topics, and when there are no such
    policies.
    """
    name = call.topic()
    if not call.api.settings.topic_level_policies_enabled:
        raise RestError(405, "Topic level policies is disabled, to enable the topic level policy and retry.")
    if name.is_partition:
        raise precondition("Not allowed to set/get topic policy for a partition")
    if call.topics.partition_count(name) is None and not call.topics.exists(name):
        raise not_found(f"Topic {name} not found")
    return name


def _declare(row: PolicyRow) -> None:
    async def read(call: Call) -> Response:
        name = policy_topic(call)
        value = row.read(call.namespaces.topic_policies(name), call.api.settings.cluster_name)
        if value is None and call.flag("applied") and row.applied is not None:
            value = row.applied(call.namespaces.effective(name))
        answer = row.show(value)
        return json_response(answer, row.unset_status if answer is None else 200)

    async def write(call: Call) -> Response:
        name = policy_topic(call)
        if row.field == "dispatcher_pause_on_ack_state_persistent":
            value: Any = True
        else:
            value = await row.value_of_body(call)
        if row.field == "max_message_size":
            refuse(policy_rules.message_size(call.api.settings, value))
        if row.field == "retention":
            refuse(policy_rules.quota_fits_retention(call.namespaces.topic_policies(name).backlog_quota_map, value))
        return await store(call, name, value)

    async def remove(call: Call) -> Response:
        return await store(call, policy_topic(call), row.removed)

    async def store(call: Call, name: TopicName, value: Any) -> Response:
        await call.namespaces.update_topic(name, lambda old: row.written(old, value, ""))
        return done()

    path = f"{TOPIC}/{row.path}"
    routes.add("GET", path, TOPIC_ADMIN, read)
    routes.add(row.verb, path, TOPIC_ADMIN, write)
    if row.removable:
        routes.add("DELETE", path, TOPIC_ADMIN, remove)


def refuse(problem: RestError | None) -> None:
    if problem is not None:
        raise problem


for _row in ROWS:
    _declare(_row)


# --- what does not fit the table --------------------------------------------------------------------------------


@routes.get(TOPIC + "/messageTTL", TOPIC_ADMIN)
async def message_ttl(call: Call) -> Response:
    name = policy_topic(call)
    value = call.namespaces.topic_policies(name).message_ttl_in_seconds
    if value is None and call.flag("applied"):
        value = call.namespaces.effective(name).message_ttl_seconds
    return json_response(value)


@routes.post(TOPIC + "/messageTTL", TOPIC_ADMIN)
async def set_message_ttl(call: Call) -> Response:
    """The value is a query parameter; without one the policy is removed."""
    name = policy_topic(call)
    value = call.query_number("messageTTL")
    if value is not None and value < 0:
        raise precondition("Invalid value for message TTL")
    return await _store_ttl(call, name, value)


@routes.delete(TOPIC + "/messageTTL", TOPIC_ADMIN)
async def remove_message_ttl(call: Call) -> Response:
    return await _store_ttl(call, policy_topic(call), None)


async def _store_ttl(call: Call, name: TopicName, value: int | None) -> Response:
    await call.namespaces.update_topic(name, lambda old: msgspec.structs.replace(old, message_ttl_in_seconds=value))
    return done()


@routes.get(TOPIC + "/backlogQuotaMap", TOPIC_ADMIN)
async def backlog_quotas(call: Call) -> Response:
    name = policy_topic(call)
    quotas = call.namespaces.topic_policies(name).backlog_quota_map
    if not quotas and call.flag("applied"):
        config = call.namespaces.effective(name)
        quotas = {"destination_storage": config.size_quota, "message_age": config.age_quota}
    return json_response({kind: shown(quota) for kind, quota in quotas.items()})


@routes.post(TOPIC + "/backlogQuota", TOPIC_ADMIN)
async def set_backlog_quota(call: Call) -> Response:
    name = policy_topic(call)
    quota, kind = await read_quota(call), quota_type(call)
    if quota is not None:
        kept = call.namespaces.topic_policies(name).retention
        refuse(policy_rules.quota_fits_retention({kind: quota}, kept))
    await call.namespaces.update_topic(name, lambda old: _with_quota(old, kind, quota))
    return done()


@routes.delete(TOPIC + "/backlogQuota", TOPIC_ADMIN)
async def remove_backlog_quota(call: Call) -> Response:
    name, kind = policy_topic(call), quota_type(call)
    await call.namespaces.update_topic(name, lambda old: _with_quota(old, kind, None))
    return done()


def _with_quota(policies: TopicPolicies, kind: str, quota: BacklogQuota | None) -> TopicPolicies:
    kept = {name: value for name, value in policies.backlog_quota_map.items() if name != kind}
    return msgspec.structs.replace(policies, backlog_quota_map=kept if quota is None else kept | {kind: quota})


@routes.get(TOPIC + "/replication", TOPIC_ADMIN)
async def replication(call: Call) -> Response:
    name = policy_topic(call)
    clusters = call.namespaces.topic_policies(name).replication_clusters
    if clusters is None and call.flag("applied"):
        policies = call.namespaces.policies(name.namespace)
        clusters = policies.replication_clusters if policies is not None else None
    return json_response(clusters)


@routes.post(TOPIC + "/replication", TOPIC_ADMIN)
async def set_replication(call: Call) -> Response:
    name = policy_topic(call)
    clusters = await call.body(list[str])
    if not clusters:
        raise precondition("ClusterIds should not be null or empty")
    if call.api.settings.cluster_name not in clusters:
        raise precondition("Can not remove local cluster from the topic-level replication clusters policy")
    for cluster in clusters:
        if cluster not in call.namespaces.clusters:
            raise RestError(403, f"Invalid cluster id: {cluster}")
    return await _store_replication(call, name, clusters)


@routes.delete(TOPIC + "/replication", TOPIC_ADMIN)
async def remove_replication(call: Call) -> Response:
    return await _store_replication(call, policy_topic(call), None)


async def _store_replication(call: Call, name: TopicName, clusters: list[str] | None) -> Response:
    await call.namespaces.update_topic(name, lambda old: msgspec.structs.replace(old, replication_clusters=clusters))
    return done()


@routes.get(TOPIC + "/offloadPolicies", TOPIC_ADMIN)
async def offload_policies(call: Call) -> Response:
    policy_topic(call)
    return json_response(None)


@routes.post(TOPIC + "/offloadPolicies", TOPIC_ADMIN)
async def set_offload_policies(call: Call) -> Response:
    policy_topic(call)
    raise precondition("There is no storage to offload to")


@routes.delete(TOPIC + "/offloadPolicies", TOPIC_ADMIN)
async def remove_offload_policies(call: Call) -> Response:
    policy_topic(call)
    return done()


@routes.put(TOPIC + "/shadowTopics", TOPIC_ADMIN)
async def set_shadow_topics(call: Call) -> Response:
    policy_topic(call)
    raise precondition("There is no cluster to have shadow topics in")


@routes.delete(TOPIC + "/shadowTopics", TOPIC_ADMIN)
async def remove_shadow_topics(call: Call) -> Response:
    policy_topic(call)
    return done()


@routes.get(TOPIC + "/shadowTopics", TOPIC_ADMIN)
async def shadow_topics(call: Call) -> Response:
    policy_topic(call)
    return json_response(None)
