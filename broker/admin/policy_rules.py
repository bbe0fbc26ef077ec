"""The rules of a policy value beyond its type. A rule takes the value and returns the refusal, or None.

Statuses as Apache Pulsar has them: contradictions in retention and persistence are 400, values out of range 412.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.admin.responses import precondition
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.errors import RestError
from magnetar.broker.limits import most_partitions
from magnetar.broker.policies.values import (
    AutoTopicCreation,
    BacklogQuota,
    ClusterData,
    DelayedDeliveryPolicies,
    PersistencePolicies,
    RetentionPolicies,
)

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

Rule = Callable[[Any], RestError | None]
_LARGEST_QUORUM = 5
UNLIMITED: Final = -1
_MIB: Final = 1024 * 1024
_MINUTE_S: Final = 60
_NAMES_OF_LIMITS: Final = {
    "deduplicationSnapshotInterval": "interval",
    "maxUnackedMessagesOnConsumer": "maxUnackedNum",
    "maxUnackedMessagesOnSubscription": "maxUnackedNum",
}
_INVALID_VALUES_OF_TOPICS: Final = ("compactionThreshold", "maxConsumersPerSubscription")


def at_least_zero(what: str) -> Rule:
    """A rule for limits: 0 is unlimited, a negative number is refused in Apache Pulsar's words."""

    def rule(value: int) -> RestError | None:
        if value >= 0:
            return None
        if what == "messageTTL":
            return rest_refusals.POLICY_VALUE_INVALID.error(policy="message TTL, message TTL must >= 0")
        return precondition(f"{_NAMES_OF_LIMITS.get(what, what)} must be 0 or more")

    return rule


def message_ttl(value: int) -> RestError | None:
    """The rule for the policies of a new namespace."""
    return rest_refusals.POLICY_VALUE_INVALID.error(policy="message TTL") if value < 0 else None


def at_least_zero_of_topic(what: str) -> Rule:
    """The same for a policy of a topic, whose refusal has another text for some limits."""
    if what == "maxMessageSize":
        return lambda value: rest_refusals.MESSAGE_SIZE_OF_TOPIC_INVALID.error() if value < 0 else None
    plain = at_least_zero(what)
    if what not in _INVALID_VALUES_OF_TOPICS:
        return plain
    return lambda value: rest_refusals.POLICY_VALUE_INVALID.error(policy=what) if value < 0 else None


def subscription_expiration(value: int) -> RestError | None:
    """A rule for minutes; the tests of the Go client expect this text."""
    return rest_refusals.EXPIRATION_TIME_INVALID.error() if value < 0 else None


def snapshot_interval(value: int) -> RestError | None:
    """A rule for the seconds of a namespace; a policy of a topic has another text."""
    return rest_refusals.SNAPSHOT_INTERVAL_NEGATIVE.error() if value < 0 else None


def retention(value: RetentionPolicies) -> RestError | None:
    """Refuse a retention with only one of both limits: with a limit of 0 the broker could keep no messages."""
    for limit, number in (("time", value.time_in_minutes), ("size", value.size_in_mb)):
        if number < UNLIMITED:
            return rest_refusals.RETENTION_LIMIT_INVALID.error(limit=limit)
    if (value.time_in_minutes == 0) != (value.size_in_mb == 0):
        return rest_refusals.RETENTION_HALF_DISABLED.error()
    return None


def persistence(value: PersistencePolicies) -> RestError | None:
    """Refuse values that Apache Pulsar refuses with its defaults of `managedLedgerMaxEnsembleSize` and similar keys."""
    ensemble, write, ack = value.bookkeeper_ensemble, value.bookkeeper_write_quorum, value.bookkeeper_ack_quorum
    for name, number in (("Ensemble", ensemble), ("WriteQuorum", write), ("AckQuorum", ack)):
        if not 0 < number <= _LARGEST_QUORUM:
            return rest_refusals.BOOKIE_NUMBER_OUT_OF_RANGE.error(name=name, most=_LARGEST_QUORUM)
    if ensemble >= write >= ack:
        return None
    return rest_refusals.BOOKIE_NUMBERS_UNORDERED.error(ensemble=ensemble, write=write, ack=ack)


def auto_topic_creation(value: AutoTopicCreation) -> RestError | None:
    if not value.allow_auto_topic_creation:
        return None
    problem = None
    # As in Apache Pulsar: a type in other letters is accepted, and is none of the two types afterwards.
    if (value.topic_type or "").lower() not in ("partitioned", "non-partitioned"):
        problem = f"Unknown topic type [{'null' if value.topic_type is None else value.topic_type}]"
    elif value.topic_type == "partitioned" and value.default_num_partitions is None:
        problem = "[defaultNumPartitions] cannot be null when the type is partitioned."
    elif value.topic_type == "partitioned" and (value.default_num_partitions or 0) < 1:
        problem = "[defaultNumPartitions] cannot be less than 1 for partition type."
    elif value.topic_type == "non-partitioned" and value.default_num_partitions is not None:
        problem = "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
    return rest_refusals.AUTO_TOPIC_CREATION_INVALID.error(problem=problem) if problem else None


def partitions_allowed(settings: "Settings", value: AutoTopicCreation) -> RestError | None:
    """Refuse an override that exceeds the limit, even if it creates nothing, as in Apache Pulsar."""
    most = most_partitions(settings.max_num_partitions_per_partitioned_topic)
    if (value.default_num_partitions or 0) > most:
        return rest_refusals.TOO_MANY_PARTITIONS_TO_CREATE.error(most=most)
    return None


def delayed_delivery(value: DelayedDeliveryPolicies) -> RestError | None:
    if value.active and value.tick_time < 0:
        return precondition("The tick time for delayed delivery must be 0 or more")
    return None


def quota_fits_retention(quotas: Iterable[BacklogQuota], kept: RetentionPolicies | None, of: str) -> RestError | None:
    """Refuse a backlog quota that is not smaller than the retention, in size or in age. Both limits of a quota count,
    whatever its type. A limit of -1 is no limit and passes; a retention of 0 or -1 is not compared.
    """
    if kept is None or all(_fits(quota, kept) for quota in quotas):
        return None
    return rest_refusals.BACKLOG_QUOTA_BEYOND_RETENTION.error(subject=of)


def retention_fits_quota(quotas: Iterable[BacklogQuota], kept: RetentionPolicies | None, of: str) -> RestError | None:
    """Refuse a retention that the backlog quotas exceed: the same rule when the quotas are set before the retention."""
    if quota_fits_retention(quotas, kept, of) is None:
        return None
    return rest_refusals.RETENTION_BELOW_BACKLOG_QUOTA.error(subject=of)


def peers_together(data: Callable[[str], ClusterData | None], clusters: Iterable[str]) -> RestError | None:
    """A refusal when a cluster is to be used together with a cluster that replaces it."""
    chosen = java_order(clusters)
    for cluster in chosen:
        known = data(cluster)
        peers = [peer for peer in (known and known.peer_cluster_names) or () if peer in chosen]
        if peers:
            return rest_refusals.PEERS_TOGETHER.error(
                cluster=cluster, peers=", ".join(peers), clusters=", ".join(chosen)
            )
    return None


def _fits(quota: BacklogQuota, kept: RetentionPolicies) -> bool:
    size_fits = kept.size_in_mb <= 0 or quota.limit_size < kept.size_in_mb * _MIB
    return size_fits and (kept.time_in_minutes <= 0 or quota.limit_time < kept.time_in_minutes * _MINUTE_S)


def message_size(settings: "Settings", value: int) -> RestError | None:
    if 0 <= value <= settings.max_message_size:
        return None
    return rest_refusals.MESSAGE_SIZE_OF_TOPIC_INVALID.error()
