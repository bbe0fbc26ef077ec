"""Policies of namespaces and topics as they are stored and shown.

They are never changed in place: a change stores a copy (`namespaces.NamespaceStore`), so a reader may keep its value.
"""

import zlib
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Final

import msgspec
from msgspec import field

from magnetar.broker.policies.values import (
    AuthPolicies,
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    BookieAffinity,
    BundlesData,
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

LAST_BUNDLE_BOUNDARY: Final = 0xFFFFFFFF
# Fields of Policies that Apache Pulsar keeps elsewhere: not part of a namespace's shown policies.
KEPT_APART: Final = ("antiAffinityGroup", "bookieAffinity")


class Policies(msgspec.Struct, kw_only=True, frozen=True):
    """All policies of a namespace, named as in Pulsar's JSON. None: not set, the broker's setting applies."""

    auth_policies: AuthPolicies = field(default_factory=AuthPolicies)
    replication_clusters: list[str] = []
    allowed_clusters: list[str] = []
    bundles: BundlesData = field(default_factory=BundlesData)
    backlog_quota_map: dict[str, BacklogQuota] = {}
    cluster_dispatch_rate: dict[str, DispatchRate] = field(name="clusterDispatchRate", default_factory=dict)
    topic_dispatch_rate: dict[str, DispatchRate] = field(name="topicDispatchRate", default_factory=dict)
    subscription_dispatch_rate: dict[str, DispatchRate] = field(name="subscriptionDispatchRate", default_factory=dict)
    replicator_dispatch_rate: dict[str, DispatchRate] = field(name="replicatorDispatchRate", default_factory=dict)
    cluster_subscribe_rate: dict[str, SubscribeRate] = field(name="clusterSubscribeRate", default_factory=dict)
    publish_max_message_rate: dict[str, PublishRate] = field(name="publishMaxMessageRate", default_factory=dict)
    persistence: PersistencePolicies | None = None
    deduplication_enabled: bool | None = field(name="deduplicationEnabled", default=None)
    auto_topic_creation_override: AutoTopicCreation | None = field(name="autoTopicCreationOverride", default=None)
    auto_subscription_creation_override: AutoSubscriptionCreation | None = field(
        name="autoSubscriptionCreationOverride", default=None
    )
    latency_stats_sample_rate: dict[str, int] = {}
    message_ttl_in_seconds: int | None = None
    subscription_expiration_time_minutes: int | None = None
    retention_policies: RetentionPolicies | None = None
    deleted: bool = False
    encryption_required: bool = False
    delayed_delivery_policies: DelayedDeliveryPolicies | None = None
    inactive_topic_policies: InactiveTopicPolicies | None = None
    subscription_auth_mode: SubscriptionAuthMode = "None"
    max_producers_per_topic: int | None = None
    max_consumers_per_topic: int | None = None
    max_consumers_per_subscription: int | None = None
    max_unacked_messages_per_consumer: int | None = None
    max_unacked_messages_per_subscription: int | None = None
    max_subscriptions_per_topic: int | None = None
    max_topics_per_namespace: int | None = None
    compaction_threshold: int | None = None
    offload_threshold: int = -1
    offload_threshold_in_seconds: int = -1
    offload_deletion_lag_ms: int | None = None
    schema_auto_update_compatibility_strategy: str | None = None
    schema_compatibility_strategy: SchemaStrategy = "UNDEFINED"
    is_allow_auto_update_schema: bool | None = None
    schema_validation_enforced: bool = False
    offload_policies: dict[str, object] | None = None
    deduplication_snapshot_interval_seconds: int | None = field(
        name="deduplicationSnapshotIntervalSeconds", default=None
    )
    subscription_types_enabled: list[str] = []
    """Also names of types that this broker does not know."""
    allowed_topic_property_keys_for_metrics: list[str | None] | None = None
    properties: dict[str, str] = {}
    resource_group_name: str | None = None
    entry_filters: EntryFilters | None = field(name="entryFilters", default=None)
    anti_affinity_group: str | None = field(name="antiAffinityGroup", default=None)
    bookie_affinity: BookieAffinity | None = field(name="bookieAffinity", default=None)
    migrated: bool = False
    dispatcher_pause_on_ack_state_persistent_enabled: bool | None = field(
        name="dispatcherPauseOnAckStatePersistentEnabled", default=None
    )


class TopicPolicies(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Policies of a topic; partitions have the policies of their topic. None: not set."""

    retention: RetentionPolicies | None = None
    message_ttl_in_seconds: int | None = None
    backlog_quota_map: dict[str, BacklogQuota] = {}
    persistence: PersistencePolicies | None = None
    delayed_delivery: DelayedDeliveryPolicies | None = None
    inactive_topic: InactiveTopicPolicies | None = None
    deduplication_enabled: bool | None = None
    deduplication_snapshot_interval_seconds: int | None = None
    compaction_threshold: int | None = None
    max_producers: int | None = None
    max_consumers: int | None = None
    max_consumers_per_subscription: int | None = None
    max_subscriptions: int | None = None
    max_unacked_messages_per_consumer: int | None = None
    max_unacked_messages_per_subscription: int | None = None
    max_message_size: int | None = None
    subscription_expiration_time_minutes: int | None = None
    dispatch_rate: DispatchRate | None = None
    subscription_dispatch_rate: DispatchRate | None = None
    replicator_dispatch_rate: DispatchRate | None = None
    publish_rate: PublishRate | None = None
    subscribe_rate: SubscribeRate | None = None
    subscription_types_enabled: list[SubscriptionType] | None = None
    schema_compatibility_strategy: SchemaStrategy | None = None
    schema_validation_enforced: bool | None = None
    auto_subscription_creation: AutoSubscriptionCreation | None = None
    replication_clusters: list[str] | None = None
    offload_policies: dict[str, object] | None = None
    entry_filters: EntryFilters | None = None
    dispatcher_pause_on_ack_state_persistent: bool | None = None
    subscription_rates: dict[str, DispatchRate] = {}
    for_all_clusters: "TopicPolicies | None" = None

    def of_scope(self, *, all_clusters: bool) -> "TopicPolicies":
        """The policies set for all clusters, or those of this cluster."""
        return (self.for_all_clusters or TopicPolicies()) if all_clusters else self

    def with_scope(self, policies: "TopicPolicies", *, all_clusters: bool) -> "TopicPolicies":
        """Return a copy in which `policies` replace the policies of that scope.

        Subscription types of a scope with a policy are an empty list where they are not set, as in Apache Pulsar.
        """
        unset = policies.subscription_types_enabled is None
        if unset and msgspec.structs.replace(policies, for_all_clusters=None) != TopicPolicies():
            policies = msgspec.structs.replace(policies, subscription_types_enabled=[])
        if all_clusters:
            return msgspec.structs.replace(self, for_all_clusters=policies)
        return msgspec.structs.replace(policies, for_all_clusters=self.for_all_clusters)

    def merged(self) -> "TopicPolicies":
        """The policies in force here: those of this cluster, else those set for all clusters."""
        everywhere = self.for_all_clusters
        if everywhere is None:
            return self
        quotas = everywhere.backlog_quota_map | self.backlog_quota_map
        rates = everywhere.subscription_rates | self.subscription_rates
        own = {name: getattr(self, name) for name in self.__struct_fields__}
        more = {name: getattr(everywhere, name) for name, value in own.items() if value is None or value == []}
        return msgspec.structs.replace(self, **more, backlog_quota_map=quotas, subscription_rates=rates)


def shown(value: object) -> object:
    """A value as the admin API shows it: plain JSON values, unset fields of objects left out."""
    return _without_nulls(msgspec.to_builtins(value))


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def even_bundles(count: int) -> BundlesData:
    """`count` equal parts of the hash range, as a new namespace has them."""
    step = (LAST_BUNDLE_BOUNDARY + 1) // count
    cuts = [step * i for i in range(count)] + [LAST_BUNDLE_BOUNDARY]
    return BundlesData(boundaries=[f"0x{cut:08x}" for cut in cuts], num_bundles=count)


def hash_of(topic: str) -> int:
    """The place of a topic's full name in the range that bundles share: its CRC-32."""
    return zlib.crc32(topic.encode())


def bundle_of(topic: str, bundles: BundlesData) -> str:
    """The bundle of a topic's full name: the range its hash falls into."""
    return bundle_finder(bundles)(topic)


def bundle_finder(bundles: BundlesData) -> Callable[[str], str]:
    """Return `bundle_of` for many topics: makes the ranges, up to 16,384, once."""
    ranges = bundle_ranges(bundles)
    starts = [int(each.partition("_")[0], 16) for each in ranges]
    least_from = list(accumulate(reversed(starts), min))[::-1]  # boundaries from a request may be in any order

    def find(topic: str) -> str:
        index = bisect_right(least_from, hash_of(topic)) - 1
        return ranges[index] if index >= 0 else "0x00000000_0xffffffff"

    return find


def bundle_ranges(bundles: BundlesData) -> list[str]:
    """Names of the bundles: "0x00000000_0x40000000", ..."""
    return [f"{low}_{high}" for low, high in pairwise(bundles.boundaries or [])]
