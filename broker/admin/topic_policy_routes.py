"""Policies of topics: /admin/v2/{domain}/{tenant}/{namespace}/{topic}/<policy>, `?applied=true` for the effective
value.
"""

from collections.abc import Callable
from typing import Any, Final, get_args

from starlette.responses import Response

from magnetar.broker.admin import policy_rules
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.namespace_policies import no_filters, subscription_types
from magnetar.broker.admin.policy_rules import at_least_zero_of_topic
from magnetar.broker.admin.policy_table import PolicyRow
from magnetar.broker.admin.responses import done, json_response
from magnetar.broker.admin.routes import TOPIC, RouteTable
from magnetar.broker.admin.topic_calls import check_tenant, policy_topic
from magnetar.broker.auth.table import TOPIC_ADMIN, TOPIC_POLICY
from magnetar.broker.errors import RestError
from magnetar.broker.policies.effective import TopicConfig
from magnetar.broker.policies.records import TopicPolicies
from magnetar.broker.policies.values import (
    AutoSubscriptionCreation,
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


def scope_of(call: Call, row: PolicyRow | None = None) -> bool:
    """Whether the call is for the policies of all clusters (?isGlobal=true) instead of this cluster."""
    return (row is None or row.isolated) and call.flag("isGlobal")


def own_policies(call: Call, name: TopicName, *, all_clusters: bool) -> TopicPolicies:
    return call.namespaces.topic_policies(name).of_scope(all_clusters=all_clusters)


async def change_own(
    call: Call, name: TopicName, change: Callable[[TopicPolicies], TopicPolicies], *, all_clusters: bool
) -> Response:
    await call.namespaces.update_topic(
        name,
        lambda old: old.with_scope(change(old.of_scope(all_clusters=all_clusters)), all_clusters=all_clusters),
    )
    return done()


def refuse(problem: RestError | None) -> None:
    if problem is not None:
        raise problem


def _of(name: str) -> Any:
    """A function that returns the policy in force, by the name of its attribute."""
    return lambda config: getattr(config, name)


def _limit(path: str, field: str, applied: str = "", **more: Any) -> PolicyRow:
    of = _of(applied) if applied else None
    return Row(path=path, field=field, kind=int, rule=at_least_zero_of_topic(path), applied=of, **more)


def _applied_filters(_config: TopicConfig) -> EntryFilters:
    return EntryFilters()


def _applied_auto_subscription(config: TopicConfig) -> AutoSubscriptionCreation:
    return AutoSubscriptionCreation(allow_auto_subscription_creation=config.allow_auto_subscription_creation)


def _known_strategy(text: str) -> str | None:
    """Return the strategy; None for UNDEFINED and for an unknown text."""
    return text if text in get_args(SchemaStrategy) and text != "UNDEFINED" else None


ROWS: Final = (
    Row(
        path="retention",
        field="retention",
        kind=RetentionPolicies,
        rule=policy_rules.retention,
        null_ignored=True,
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
    Row(path="dispatchRate", field="dispatch_rate", kind=DispatchRate, null_ignored=True, applied=_of("dispatch_rate")),
    Row(
        path="subscriptionDispatchRate",
        field="subscription_dispatch_rate",
        kind=DispatchRate,
        null_ignored=True,
        applied=_of("subscription_dispatch_rate"),
    ),
    Row(
        path="replicatorDispatchRate",
        field="replicator_dispatch_rate",
        kind=DispatchRate,
        null_clears=True,
        applied=_of("replicator_dispatch_rate"),
    ),
    Row(path="publishRate", field="publish_rate", kind=PublishRate, null_ignored=True, unset_status=204),
    Row(
        path="subscribeRate",
        field="subscribe_rate",
        kind=SubscribeRate,
        null_ignored=True,
        removal_reads_body=True,
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
    _limit("compactionThreshold", "compaction_threshold", "compaction_threshold_bytes", wide=True),
    _limit("maxProducers", "max_producers", "max_producers"),
    _limit("maxConsumers", "max_consumers", "max_consumers"),
    _limit("maxConsumersPerSubscription", "max_consumers_per_subscription", unset_status=204),
    _limit("maxSubscriptionsPerTopic", "max_subscriptions", unset_status=204),
    _limit(
        "maxUnackedMessagesOnConsumer",
        "max_unacked_messages_per_consumer",
        "max_unacked_messages_per_consumer",
        null_clears=True,
    ),
    _limit(
        "maxUnackedMessagesOnSubscription",
        "max_unacked_messages_per_subscription",
        "max_unacked_messages_per_subscription",
        null_clears=True,
    ),
    _limit("maxMessageSize", "max_message_size", unset_status=204),
    Row(
        path="schemaCompatibilityStrategy",
        field="schema_compatibility_strategy",
        kind=str,
        verb="PUT",
        convert=_known_strategy,
        null_clears=True,
        removal_reads_body=True,
        isolated=False,
        applied=_of("schema_compatibility_strategy"),
    ),
    Row(
        path="schemaValidationEnforced",
        field="schema_validation_enforced",
        kind=bool,
        removable=False,
        isolated=False,
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
        kind=list[SubscriptionType | None],
        convert=subscription_types,
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
    Row(
        path="entryFilters",
        field="entry_filters",
        kind=EntryFilters,
        rule=no_filters,
        null_clears=True,
        applied=_applied_filters,
    ),
)


def _declare(row: PolicyRow) -> None:
    def topic_of(call: Call) -> TopicName:
        if row.field == "max_message_size":
            check_tenant(call)
        return policy_topic(call)

    async def read(call: Call) -> Response:
        name = topic_of(call)
        policies = own_policies(call, name, all_clusters=scope_of(call, row))
        value = row.read(policies, call.api.settings.cluster_name)
        if value is None and call.flag("applied") and row.applied is not None:
            value = row.applied(call.namespaces.effective_with(name, policies))
        answer = row.show(value)
        return json_response(answer, row.unset_status if answer is None else 200)

    async def write(call: Call) -> Response:
        paused = row.field == "dispatcher_pause_on_ack_state_persistent"
        if not paused:
            await row.refuse_misfit(call)
        name, all_clusters = topic_of(call), scope_of(call, row)
        if row.null_ignored and await call.is_null():
            return done()
        value: Any = True if paused else await row.value_of_body(call)
        if row.field == "max_message_size":
            refuse(policy_rules.message_size(call.api.settings, value))
        if row.field == "retention":
            own = own_policies(call, name, all_clusters=all_clusters).backlog_quota_map
            quotas = call.policies().backlog_quota_map | own
            refuse(policy_rules.retention_fits_quota(quotas.values(), value, "topic"))
        return await change_own(call, name, lambda old: row.written(old, value, ""), all_clusters=all_clusters)

    async def remove(call: Call) -> Response:
        if row.removal_reads_body:
            await row.refuse_misfit(call)
        name = topic_of(call)
        return await change_own(
            call, name, lambda old: row.written(old, row.removed, ""), all_clusters=scope_of(call, row)
        )

    path = f"{TOPIC}/{row.path}"
    need = TOPIC_ADMIN if row.field == "max_message_size" else TOPIC_POLICY
    routes.add("GET", path, need, read)
    routes.add(row.verb, path, need, write)
    if row.removable:
        routes.add("DELETE", path, need, remove)


for _row in ROWS:
    _declare(_row)
