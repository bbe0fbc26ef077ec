"""The values policies are made of, in the JSON shapes of Pulsar's admin API.

Decoding checks types and enumerations; `admin/policy_rules.py` checks all other rules.
"""

from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from magnetar.broker.compat.jackson_body import Int32
from magnetar.broker.policies.role_patterns import RolePatterns

BacklogPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
InactiveTopicDeleteMode = Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]
SubscriptionAuthMode = Literal["None", "Prefix"]
SubscriptionType = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]
SchemaStrategy = Literal[
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
]
AutoUpdateStrategy = Literal[
    "AutoUpdateDisabled",
    "Backward",
    "Forward",
    "Full",
    "AlwaysCompatible",
    "BackwardTransitive",
    "ForwardTransitive",
    "FullTransitive",
]
OLDER_SCHEMA_STRATEGIES: Final[dict[str, str]] = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
"""Maps an AutoUpdateStrategy to a SchemaStrategy."""
AuthAction = Literal["produce", "consume", "functions", "sources", "sinks", "packages"]
Granted = AuthAction | None
"""An action, or None for the name of an action that does not exist."""


class ClusterData(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    """The addresses of a cluster's brokers."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    proxy_service_url: str | None = None
    proxy_protocol: str | None = None
    authentication_plugin: str | None = None
    authentication_parameters: str | None = None
    peer_cluster_names: list[str] | None = None
    broker_client_tls_enabled: bool | None = None
    tls_allow_insecure_connection: bool | None = None
    broker_client_tls_enabled_with_key_store: bool | None = None
    broker_client_tls_trust_store_type: str | None = None
    broker_client_tls_key_store_type: str | None = None
    broker_client_ssl_factory_plugin: str | None = None
    broker_client_trust_certs_file_path: str | None = None
    listener_name: str | None = None
    migrated: bool | None = None
    migrated_cluster_url: dict[str, str] | None = None
    failure_domains: dict[str, dict[str, list[str]]] | None = None
    isolation_policies: dict[str, dict[str, object]] | None = None
    bookie_racks: dict[str, dict[str, dict[str, str]]] | None = None


class TenantInfo(msgspec.Struct, rename="camel", kw_only=True):
    """A tenant: its administrator roles, and the clusters of its namespaces."""

    admin_roles: list[str] | None = None
    allowed_clusters: list[str] = []


class BundlesData(msgspec.Struct, rename="camel", kw_only=True):
    """How a namespace is cut into bundles: numBundles + 1 boundaries of the 32-bit hash range, as hex texts."""

    boundaries: list[str] | None = None
    num_bundles: Int32 = 0


class RetentionPolicies(
    msgspec.Struct, rename={"time_in_minutes": "retentionTimeInMinutes", "size_in_mb": "retentionSizeInMB"}
):
    """Consumed messages are kept while both limits allow it; -1 is unlimited, 0 and 0 keeps nothing."""

    time_in_minutes: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] = 0
    size_in_mb: int = 0


class BacklogQuota(msgspec.Struct, rename="camel", kw_only=True):
    """A limit in bytes (`destination_storage`) or seconds (`message_age`), and the effect beyond it."""

    limit: int | None = None  # for older tools: the same as limit_size
    limit_size: int = 0
    limit_time: Int32 = 0
    policy: BacklogPolicy | None = None


class PersistencePolicies(msgspec.Struct, rename="camel", kw_only=True):
    """The persistence policies. Only the mark-delete rate has an effect here; the rest is kept for tools."""

    bookkeeper_ensemble: Int32 = 2
    bookkeeper_write_quorum: Int32 = 2
    bookkeeper_ack_quorum: Int32 = 2
    managed_ledger_max_mark_delete_rate: float = -1.0
    managed_ledger_storage_class_name: str | None = None


class DelayedDeliveryPolicies(msgspec.Struct, rename="camel", kw_only=True):
    """Times in milliseconds; a maximum of 0 is unlimited."""

    tick_time: int = 0
    active: bool = False
    max_delivery_delay_in_millis: int = 0


class DispatchRate(msgspec.Struct, rename="camel", kw_only=True):
    """Messages and bytes per period to consumers; 0 and less is unlimited."""

    dispatch_throttling_rate_in_msg: Int32 = 0
    dispatch_throttling_rate_in_byte: int = 0
    relative_to_publish_rate: bool = False
    rate_period_in_second: Int32 = 0


class PublishRate(msgspec.Struct, rename="camel", kw_only=True):
    """Messages and bytes per second from producers; 0 and less is unlimited."""

    publish_throttling_rate_in_msg: Int32 = -1
    publish_throttling_rate_in_byte: int = -1


class SubscribeRate(msgspec.Struct, rename="camel", kw_only=True):
    """How often one consumer may subscribe per period; 0 and less is unlimited."""

    subscribe_throttling_rate_per_consumer: Int32 = -1
    rate_period_in_second: Int32 = 30


class AutoTopicCreation(msgspec.Struct, rename="camel", kw_only=True):
    """Overrides automatic creation of topics for a namespace."""

    allow_auto_topic_creation: bool = False
    topic_type: str | None = None
    default_num_partitions: Int32 | None = None


class AutoSubscriptionCreation(msgspec.Struct, rename="camel", kw_only=True):
    """Overrides automatic creation of subscriptions."""

    alone: ClassVar[type] = bool
    allow_auto_subscription_creation: bool = False


class InactiveTopicPolicies(msgspec.Struct, rename="camel", kw_only=True):
    """The conditions for the deletion of an unused topic."""

    inactive_topic_delete_mode: InactiveTopicDeleteMode | None = None
    max_inactive_duration_seconds: Int32 = 0
    delete_while_inactive: bool = False


class ResourceGroup(msgspec.Struct, rename="camel", kw_only=True):
    """Limits that namespaces of one group share; -1: none. Kept for tools, not enforced."""

    publish_rate_in_msgs: Int32 | None = None
    publish_rate_in_bytes: int | None = None
    dispatch_rate_in_msgs: Int32 | None = None
    dispatch_rate_in_bytes: int | None = None


class ResourceQuota(msgspec.Struct, rename="camel", kw_only=True):
    """The expected maximal load of a bundle. Kept for tools: a single broker balances no load."""

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    bandwidth_in: float = 0.0
    bandwidth_out: float = 0.0
    memory: float = 0.0
    dynamic: bool = True


class BookieAffinity(msgspec.Struct, rename="camel", kw_only=True):
    """Groups of bookies preferred by a namespace. Kept for tools: the embedded store has no bookies."""

    bookkeeper_affinity_group_primary: str | None = None
    bookkeeper_affinity_group_secondary: str | None = None


class LocalPolicies(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A cluster's record of a namespace beside its policies. ``migrated`` is always written, as by Apache Pulsar."""

    bundles: BundlesData
    bookie_affinity: BookieAffinity | None = msgspec.field(name="bookieAffinityGroup", default=None)
    anti_affinity_group: str | None = msgspec.field(name="namespaceAntiAffinityGroup", default=None)
    migrated: bool = msgspec.field(default_factory=bool)


class EntryFilters(msgspec.Struct, rename="camel", kw_only=True):
    """Names of entry filters; Magnetar has no entry filters."""

    alone: ClassVar[type] = str
    entry_filter_names: str = ""


_NO_TOPIC: Final = "no topic"
"""The key of the patterns of all topics without grants; no name of a topic has a space."""


class AuthPolicies(msgspec.Struct, kw_only=True, dict=True):
    """Grants: role -> actions on the namespace, topic -> role -> actions, subscription -> roles. Never changed: the
    values that checks of rights need are kept.
    """

    namespace_auth: dict[str, list[Granted]] = {}
    destination_auth: dict[str, dict[str, list[Granted]]] = {}
    subscription_auth_roles: dict[str, list[str]] = {}

    @cached_property
    def subscription_roles(self) -> dict[str, frozenset[str]]:
        """The roles of `subscription_auth_roles`."""
        return {name: frozenset(roles) for name, roles in self.subscription_auth_roles.items()}

    @cached_property
    def _patterns(self) -> dict[str, RolePatterns]:
        return {}

    def patterns(self, topic: str) -> RolePatterns:
        """The patterns of roles with a grant on the topic; "": on the namespace."""
        grants = self.destination_auth.get(topic, {}) if topic else self.namespace_auth
        key = topic if grants else _NO_TOPIC
        found = self._patterns.get(key)
        if found is None:
            found = self._patterns[key] = RolePatterns(grants)
        return found
