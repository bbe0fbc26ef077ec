"""The plain values a subscription works with, taken from the broker's settings and the topic's policies."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.settings import Settings

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """Limits of dispatch; the names of the broker settings are in the comments."""

    max_read_entries: int = 100  # dispatcherMaxReadBatchSize
    min_read_entries: int = 1  # dispatcherMinReadBatchSize
    max_read_bytes: int = 5 * _MIB  # dispatcherMaxReadSizeBytes
    max_round_robin_entries: int = 20  # dispatcherMaxRoundRobinBatchSize
    read_backoff_initial_ms: int = 15_000  # dispatcherReadFailureBackoffInitialTimeInMs
    read_backoff_max_ms: int = 60_000  # dispatcherReadFailureBackoffMaxTimeInMs
    skip_damaged_entries: bool = False  # autoSkipNonRecoverableData
    max_consumers: int = 0  # maxConsumersPerSubscription; 0 = no limit
    max_unacked_per_consumer: int = 50_000  # maxUnackedMessagesPerConsumer; 0 = no limit
    max_unacked_per_subscription: int = 200_000  # maxUnackedMessagesPerSubscription; 0 = no limit
    failover_delay_ms: int = 1_000  # activeConsumerFailoverDelayTimeMillis
    failover_consistent_hashing: bool = False  # activeConsumerFailoverConsistentHashing
    key_shared_consistent_hashing: bool = True  # subscriptionKeySharedUseConsistentHashing
    key_shared_ring_points: int = 100  # subscriptionKeySharedConsistentHashingReplicaPoints
    key_shared_look_ahead_per_consumer: int = 2_000  # keySharedLookAheadMsgInReplayThresholdPerConsumer; 0 = no limit
    key_shared_look_ahead_per_subscription: int = 20_000  # ...PerSubscription; 0 = no limit
    batch_index_acks: bool = True  # acknowledgmentAtBatchIndexLevelEnabled

    def look_ahead(self, consumers: int) -> int:
        """Return how many entries that wait for their key stop the reads of so many consumers of Key_Shared. Without
        both limits those of unacknowledged messages count, as in Apache Pulsar.
        """
        limits = self.key_shared_look_ahead_per_consumer * consumers, self.key_shared_look_ahead_per_subscription
        if not any(limits):
            limits = self.max_unacked_per_consumer * consumers, self.max_unacked_per_subscription
        return min((limit for limit in limits if limit > 0), default=sys.maxsize)

    @classmethod
    def of(cls, settings: Settings, config: TopicConfig) -> SubscriptionSettings:
        """Make them from the broker's settings and the policies in force for the topic."""
        return cls(
            max_read_entries=settings.dispatcher_max_read_batch_size,
            max_read_bytes=settings.dispatcher_max_read_size_bytes,
            skip_damaged_entries=settings.auto_skip_non_recoverable_data,
            max_round_robin_entries=settings.dispatcher_max_round_robin_batch_size,
            max_consumers=config.max_consumers_per_subscription,
            max_unacked_per_consumer=config.max_unacked_messages_per_consumer,
            max_unacked_per_subscription=config.max_unacked_messages_per_subscription,
            failover_delay_ms=settings.active_consumer_failover_delay_time_millis,
            failover_consistent_hashing=settings.active_consumer_failover_consistent_hashing,
            key_shared_consistent_hashing=settings.subscription_key_shared_use_consistent_hashing,
            key_shared_ring_points=settings.subscription_key_shared_consistent_hashing_replica_points,
            key_shared_look_ahead_per_consumer=settings.key_shared_look_ahead_msg_in_replay_threshold_per_consumer,
            key_shared_look_ahead_per_subscription=settings.key_shared_look_ahead_msg_in_replay_threshold_per_subscription,
            batch_index_acks=settings.acknowledgment_at_batch_index_level_enabled,
        )
