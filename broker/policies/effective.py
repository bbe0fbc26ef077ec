"""The effective policies of a topic: its own policy, else the namespace's, else the broker's setting."""

from dataclasses import dataclass, replace
from typing import Final, TypedDict, TypeVar

from magnetar.broker.policies.records import Policies, TopicPolicies
from magnetar.broker.policies.values import (
    OLDER_SCHEMA_STRATEGIES,
    AutoTopicCreation,
    BacklogQuota,
    DelayedDeliveryPolicies,
    DispatchRate,
    InactiveTopicPolicies,
    PersistencePolicies,
    PublishRate,
    RetentionPolicies,
    SubscribeRate,
)
from magnetar.broker.settings import Settings

T = TypeVar("T")
R = TypeVar("R", DispatchRate, PublishRate, SubscribeRate)
NO_POLICIES: Final = Policies()
NO_TOPIC_POLICIES: Final = TopicPolicies()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Plain values for one topic. Limits: 0 is unlimited; -1 where the field names it. Equal configs need no action."""

    retention: RetentionPolicies
    message_ttl_seconds: int
    size_quota: BacklogQuota
    age_quota: BacklogQuota
    persistence: PersistencePolicies
    delayed_delivery: DelayedDeliveryPolicies
    inactive_topic: InactiveTopicPolicies
    deduplication_enabled: bool
    deduplication_snapshot_interval_seconds: int
    compaction_threshold_bytes: int
    max_producers: int
    max_consumers: int
    max_consumers_per_subscription: int
    max_subscriptions: int
    max_unacked_messages_per_consumer: int
    max_unacked_messages_per_subscription: int
    max_topics_per_namespace: int
    max_message_size: int
    dispatch_rate: DispatchRate  # the rate of the policies; see dispatch_rate_in_force
    subscription_dispatch_rate: DispatchRate
    subscription_rates: dict[str, DispatchRate]  # subscription name -> rate of that subscription
    replicator_dispatch_rate: DispatchRate
    publish_rate: PublishRate
    subscribe_rate: SubscribeRate
    dispatch_rate_in_force: DispatchRate  # a policy without a limit leaves the limit of namespace or broker
    subscription_dispatch_rate_in_force: DispatchRate
    subscribe_rate_in_force: SubscribeRate
    broker_dispatch_rate: DispatchRate  # of all topics together
    broker_publish_rate: PublishRate
    dispatch_rates_count_entries: bool
    dispatch_rates_spare_caught_up: bool
    subscription_types_enabled: tuple[str, ...]
    subscription_expiration_minutes: int
    schema_compatibility_strategy: str
    is_allow_auto_update_schema: bool
    schema_validation_enforced: bool
    encryption_required: bool
    allow_auto_topic_creation: bool
    auto_topic_creation_type: str
    default_num_partitions: int
    allow_auto_subscription_creation: bool


def events_config(settings: Settings, namespace: Policies) -> TopicConfig:
    """The configuration of the topic that holds the policies of a namespace's topics: policies that limit or drop
    messages are off, because the topic would lose policies; compaction keeps it small.
    """
    kept = Policies(retention_policies=namespace.retention_policies, persistence=namespace.persistence)
    return replace(
        effective_config(settings, kept, NO_TOPIC_POLICIES),
        message_ttl_seconds=0,
        size_quota=_NO_QUOTA,
        age_quota=_NO_QUOTA,
        deduplication_enabled=False,
        compaction_threshold_bytes=1,
        max_producers=0,
        max_consumers=0,
        max_subscriptions=0,
        max_topics_per_namespace=0,
        subscription_types_enabled=_ALL_TYPES,
        subscription_expiration_minutes=0,
        schema_compatibility_strategy="ALWAYS_COMPATIBLE",
        is_allow_auto_update_schema=True,
        schema_validation_enforced=False,
        encryption_required=False,
        allow_auto_topic_creation=True,
        auto_topic_creation_type="non-partitioned",
        dispatch_rate_in_force=DispatchRate(),
        subscription_dispatch_rate_in_force=DispatchRate(),
        subscribe_rate_in_force=SubscribeRate(),
        publish_rate=PublishRate(),
    )


_NO_QUOTA: Final = BacklogQuota(limit=-1, limit_size=-1, limit_time=-1)
_ALL_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")


class _Limits(TypedDict):
    max_producers: int
    max_consumers: int
    max_consumers_per_subscription: int
    max_subscriptions: int
    max_unacked_messages_per_consumer: int
    max_unacked_messages_per_subscription: int
    max_topics_per_namespace: int
    max_message_size: int


class _Rates(TypedDict):
    dispatch_rate: DispatchRate
    subscription_dispatch_rate: DispatchRate
    replicator_dispatch_rate: DispatchRate
    publish_rate: PublishRate
    subscribe_rate: SubscribeRate
    dispatch_rate_in_force: DispatchRate
    subscription_dispatch_rate_in_force: DispatchRate
    subscribe_rate_in_force: SubscribeRate
    broker_dispatch_rate: DispatchRate
    broker_publish_rate: PublishRate
    dispatch_rates_count_entries: bool
    dispatch_rates_spare_caught_up: bool


class _Creation(TypedDict):
    allow_auto_topic_creation: bool
    auto_topic_creation_type: str
    default_num_partitions: int
    allow_auto_subscription_creation: bool


def effective_config(settings: Settings, namespace: Policies, topic: TopicPolicies) -> TopicConfig:
    """The configuration of a topic."""
    return TopicConfig(
        retention=retention(settings, namespace, topic),
        message_ttl_seconds=first(
            topic.message_ttl_in_seconds, namespace.message_ttl_in_seconds, settings.ttl_duration_default_in_seconds
        ),
        size_quota=backlog_quota(settings, namespace, topic, "destination_storage"),
        age_quota=backlog_quota(settings, namespace, topic, "message_age"),
        persistence=persistence(settings, namespace, topic),
        delayed_delivery=delayed_delivery(settings, namespace, topic),
        inactive_topic=inactive_topic(settings, namespace, topic),
        deduplication_enabled=first(
            topic.deduplication_enabled, namespace.deduplication_enabled, settings.broker_deduplication_enabled
        ),
        deduplication_snapshot_interval_seconds=first(
            topic.deduplication_snapshot_interval_seconds,
            namespace.deduplication_snapshot_interval_seconds,
            settings.broker_deduplication_snapshot_interval_seconds,
        ),
        compaction_threshold_bytes=first(
            topic.compaction_threshold,
            namespace.compaction_threshold,
            settings.broker_service_compaction_threshold_in_bytes,
        ),
        subscription_types_enabled=tuple(
            topic.subscription_types_enabled
            or namespace.subscription_types_enabled
            or settings.subscription_types_enabled
        ),
        subscription_rates=topic.subscription_rates,
        subscription_expiration_minutes=first(
            topic.subscription_expiration_time_minutes,
            namespace.subscription_expiration_time_minutes,
            settings.subscription_expiration_time_minutes,
        ),
        schema_compatibility_strategy=schema_strategy(settings, namespace, topic),
        is_allow_auto_update_schema=first(
            namespace.is_allow_auto_update_schema, settings.is_allow_auto_update_schema_enabled
        ),
        schema_validation_enforced=first(
            topic.schema_validation_enforced,
            namespace.schema_validation_enforced or settings.is_schema_validation_enforced,
        ),
        encryption_required=namespace.encryption_required or settings.encryption_require_on_producer,
        **_limits(settings, namespace, topic),
        **_rates(settings, namespace, topic),
        **_creation(settings, namespace, topic),
    )


def _limits(settings: Settings, namespace: Policies, topic: TopicPolicies) -> _Limits:
    return {
        "max_producers": first(
            topic.max_producers, namespace.max_producers_per_topic, settings.max_producers_per_topic
        ),
        "max_consumers": first(
            topic.max_consumers, namespace.max_consumers_per_topic, settings.max_consumers_per_topic
        ),
        "max_consumers_per_subscription": first(
            topic.max_consumers_per_subscription,
            namespace.max_consumers_per_subscription,
            settings.max_consumers_per_subscription,
        ),
        "max_subscriptions": first(
            topic.max_subscriptions, namespace.max_subscriptions_per_topic, settings.max_subscriptions_per_topic
        ),
        "max_unacked_messages_per_consumer": first(
            topic.max_unacked_messages_per_consumer,
            namespace.max_unacked_messages_per_consumer,
            settings.max_unacked_messages_per_consumer,
        ),
        "max_unacked_messages_per_subscription": first(
            topic.max_unacked_messages_per_subscription,
            namespace.max_unacked_messages_per_subscription,
            settings.max_unacked_messages_per_subscription,
        ),
        "max_topics_per_namespace": first(namespace.max_topics_per_namespace, settings.max_topics_per_namespace),
        "max_message_size": topic.max_message_size or settings.max_message_size,
    }


def _rates(settings: Settings, namespace: Policies, topic: TopicPolicies) -> _Rates:
    cluster = settings.cluster_name
    dispatch = topic.dispatch_rate, namespace.topic_dispatch_rate.get(cluster), _topic_dispatch_rate(settings)
    subscription = (
        topic.subscription_dispatch_rate,
        namespace.subscription_dispatch_rate.get(cluster),
        _subscription_dispatch_rate(settings),
    )
    subscribe = topic.subscribe_rate, namespace.cluster_subscribe_rate.get(cluster), _subscribe_rate(settings)
    return {
        "dispatch_rate": first(*dispatch),
        "subscription_dispatch_rate": first(*subscription),
        "replicator_dispatch_rate": first(
            topic.replicator_dispatch_rate,
            namespace.replicator_dispatch_rate.get(cluster),
            _replicator_dispatch_rate(settings),
        ),
        "publish_rate": first_limited(
            topic.publish_rate, namespace.publish_max_message_rate.get(cluster), _topic_publish_rate(settings)
        ),
        "subscribe_rate": first(*subscribe),
        "dispatch_rate_in_force": first_limited(*dispatch),
        "subscription_dispatch_rate_in_force": first_limited(*subscription),
        "subscribe_rate_in_force": first_limited(*subscribe),
        "broker_dispatch_rate": _per_second(
            settings.dispatch_throttling_rate_in_msg, settings.dispatch_throttling_rate_in_byte
        ),
        "broker_publish_rate": PublishRate(
            publish_throttling_rate_in_msg=settings.broker_publisher_throttling_max_message_rate,
            publish_throttling_rate_in_byte=settings.broker_publisher_throttling_max_byte_rate,
        ),
        "dispatch_rates_count_entries": settings.dispatch_throttling_on_batch_message_enabled,
        "dispatch_rates_spare_caught_up": not settings.dispatch_throttling_on_non_backlog_consumer_enabled,
    }


def first_limited(*rates: R | None) -> R:
    """Return the first rate with a limit, else the last rate: a policy cannot remove the limit of a higher level
    (Apache Pulsar's `normalize`).
    """
    for rate in rates:
        if rate is not None and is_limit(rate):
            return rate
    last = rates[-1]
    assert last is not None, "the broker's rate is the last one and never unset"
    return last


def is_limit(rate: DispatchRate | PublishRate | SubscribeRate) -> bool:
    """Whether a rate limits anything."""
    if isinstance(rate, DispatchRate):
        return rate.dispatch_throttling_rate_in_msg > 0 or rate.dispatch_throttling_rate_in_byte > 0
    if isinstance(rate, PublishRate):
        return rate.publish_throttling_rate_in_msg > 0 or rate.publish_throttling_rate_in_byte > 0
    return rate.subscribe_throttling_rate_per_consumer > 0 and rate.rate_period_in_second > 0


def _topic_dispatch_rate(settings: Settings) -> DispatchRate:
    return _per_second(
        settings.dispatch_throttling_rate_per_topic_in_msg,
        settings.dispatch_throttling_rate_per_topic_in_byte,
        relative=settings.dispatch_throttling_rate_relative_to_publish_rate,
    )


def _subscription_dispatch_rate(settings: Settings) -> DispatchRate:
    return _per_second(
        settings.dispatch_throttling_rate_per_subscription_in_msg,
        settings.dispatch_throttling_rate_per_subscription_in_byte,
        relative=settings.dispatch_throttling_rate_relative_to_publish_rate,
    )


def _replicator_dispatch_rate(settings: Settings) -> DispatchRate:
    return _per_second(
        settings.dispatch_throttling_rate_per_replicator_in_msg,
        settings.dispatch_throttling_rate_per_replicator_in_byte,
        relative=settings.dispatch_throttling_rate_relative_to_publish_rate,
    )


def _topic_publish_rate(settings: Settings) -> PublishRate:
    return PublishRate(
        publish_throttling_rate_in_msg=settings.max_publish_rate_per_topic_in_messages,
        publish_throttling_rate_in_byte=settings.max_publish_rate_per_topic_in_bytes,
    )


def _subscribe_rate(settings: Settings) -> SubscribeRate:
    return SubscribeRate(
        subscribe_throttling_rate_per_consumer=settings.subscribe_throttling_rate_per_consumer,
        rate_period_in_second=settings.subscribe_rate_period_per_consumer_in_second,
    )


def _per_second(messages: int, size: int, *, relative: bool = False) -> DispatchRate:
    return DispatchRate(
        dispatch_throttling_rate_in_msg=messages,
        dispatch_throttling_rate_in_byte=size,
        relative_to_publish_rate=relative,
        rate_period_in_second=1,
    )


def _creation(settings: Settings, namespace: Policies, topic: TopicPolicies) -> _Creation:
    topics = namespace.auto_topic_creation_override or AutoTopicCreation(
        allow_auto_topic_creation=settings.allow_auto_topic_creation,
        topic_type=settings.allow_auto_topic_creation_type,
        default_num_partitions=settings.default_num_partitions,
    )
    subscriptions = topic.auto_subscription_creation or namespace.auto_subscription_creation_override
    return {
        "allow_auto_topic_creation": topics.allow_auto_topic_creation,
        "auto_topic_creation_type": topics.topic_type or "non-partitioned",
        "default_num_partitions": topics.default_num_partitions or settings.default_num_partitions,
        "allow_auto_subscription_creation": settings.allow_auto_subscription_creation
        if subscriptions is None
        else subscriptions.allow_auto_subscription_creation,
    }


def first(*values: T | None) -> T:
    """Return the first value that is set. Precondition: the last value is set."""
    for value in values:
        if value is not None:
            return value
    raise AssertionError("the broker's setting is the last value and never unset")


def retention(settings: Settings, namespace: Policies, topic: TopicPolicies) -> RetentionPolicies:
    return (
        topic.retention
        or namespace.retention_policies
        or RetentionPolicies(settings.default_retention_time_in_minutes, settings.default_retention_size_in_mb)
    )


def backlog_quota(settings: Settings, namespace: Policies, topic: TopicPolicies, kind: str) -> BacklogQuota:
    """The quota of that type; -1 is unlimited. A quota without a policy has the value of the broker."""
    found = topic.backlog_quota_map.get(kind) or namespace.backlog_quota_map.get(kind)
    if found is not None:
        return found
    gib, age = settings.backlog_quota_default_limit_gb, settings.backlog_quota_default_limit_second
    size = int(gib * (1 << 30)) if gib > 0 else settings.backlog_quota_default_limit_bytes
    by_size = kind == "destination_storage"
    limit = size if by_size else -1
    # The loader accepts only the three policies of the declared type.
    policy = settings.backlog_quota_default_retention_policy
    return BacklogQuota(
        limit=limit,
        limit_size=limit,
        limit_time=-1 if by_size else age,
        policy=policy,  # type: ignore[arg-type]
    )


def persistence(settings: Settings, namespace: Policies, topic: TopicPolicies) -> PersistencePolicies:
    return (
        topic.persistence
        or namespace.persistence
        or PersistencePolicies(
            bookkeeper_ensemble=settings.managed_ledger_default_ensemble_size,
            bookkeeper_write_quorum=settings.managed_ledger_default_write_quorum,
            bookkeeper_ack_quorum=settings.managed_ledger_default_ack_quorum,
            managed_ledger_max_mark_delete_rate=settings.managed_ledger_default_mark_delete_rate_limit,
        )
    )


def delayed_delivery(settings: Settings, namespace: Policies, topic: TopicPolicies) -> DelayedDeliveryPolicies:
    return (
        topic.delayed_delivery
        or namespace.delayed_delivery_policies
        or DelayedDeliveryPolicies(
            tick_time=settings.delayed_delivery_tick_time_millis,
            active=settings.delayed_delivery_enabled,
            max_delivery_delay_in_millis=settings.delayed_delivery_max_delay_in_millis,
        )
    )


def inactive_topic(settings: Settings, namespace: Policies, topic: TopicPolicies) -> InactiveTopicPolicies:
    idle = settings.broker_delete_inactive_topics_max_inactive_duration_seconds
    return (
        topic.inactive_topic
        or namespace.inactive_topic_policies
        or InactiveTopicPolicies(
            # The loader accepts only the modes of the declared type.
            inactive_topic_delete_mode=settings.broker_delete_inactive_topics_mode,  # type: ignore[arg-type]
            max_inactive_duration_seconds=idle or settings.broker_delete_inactive_topics_frequency_seconds,
            delete_while_inactive=settings.broker_delete_inactive_topics_enabled,
        )
    )


def schema_strategy(settings: Settings, namespace: Policies, topic: TopicPolicies) -> str:
    """Return the schema compatibility strategy: of the topic, else the namespace, else the namespace's older auto
    update strategy, else the broker. UNDEFINED counts as not set.
    """
    for strategy in (topic.schema_compatibility_strategy, namespace.schema_compatibility_strategy):
        if strategy is not None and strategy != "UNDEFINED":
            return strategy
    older = namespace.schema_auto_update_compatibility_strategy
    return settings.schema_compatibility_strategy if older is None else OLDER_SCHEMA_STRATEGIES[older]
