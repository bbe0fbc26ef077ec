"""The settings of a cluster, checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from magnetar.broker.clustering.zookeeper_client_file import ZooKeeperSecurity, read_security
from magnetar.broker.ownership.cluster_nodes import LOAD_MANAGERS
from magnetar.broker.ownership.placement_strategies import STRATEGIES
from magnetar.broker.ownership.shedding import SHEDDERS
from magnetar.broker.setting_areas.older_names import OlderName

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

__all__ = ["CLUSTER_DEFAULTS", "CLUSTER_OLDER_NAMES", "ClusterServices", "cluster_services"]

CLUSTER_DEFAULTS: Final = {
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
}
"""The defaults that differ between `magnetar broker` and `magnetar standalone`: copies as in Apache Pulsar."""

CLUSTER_OLDER_NAMES: Final = (
    OlderName("zookeeperServers", "metadataStoreUrl", before="zk:"),
    OlderName("configurationStoreServers", "configurationMetadataStoreUrl", before="zk:"),
    OlderName("globalZookeeperServers", "configurationMetadataStoreUrl", before="zk:"),
    OlderName("zooKeeperSessionTimeoutMillis", "metadataStoreSessionTimeoutMillis", stronger=True),
    OlderName("zooKeeperOperationTimeoutSeconds", "metadataStoreOperationTimeoutSeconds", stronger=True),
)
"""The keys of earlier versions that brokers of Apache Pulsar 4.2 still follow."""

_POLICY_SERVICES: Final = ("SystemTopicBasedTopicPoliciesService",)


@dataclass(frozen=True, slots=True)
class ClusterServices:
    """The addresses of the cluster's services."""

    servers: str
    """ZooKeeper: host:port,host:port with an optional path."""
    ledgers_uri: str
    """The address of BookKeeper's metadata, on the same ZooKeeper."""
    ledgers_root: str
    security: ZooKeeperSecurity = field(default_factory=ZooKeeperSecurity)


def cluster_services(settings: Settings) -> ClusterServices:
    """Raises ValueError, with a remedy, for settings that a member of a cluster does not support."""
    servers = zookeeper_servers("metadataStoreUrl", settings.metadata_store_url)
    for_policies = settings.configuration_metadata_store_url
    if for_policies and zookeeper_servers("configurationMetadataStoreUrl", for_policies) != servers:
        raise ValueError(
            "configurationMetadataStoreUrl differs from metadataStoreUrl: this broker keeps both in one ZooKeeper"
        )
    if settings.web_service_port is None and settings.web_service_port_tls is None:
        raise ValueError("a broker of a cluster needs webServicePort or webServicePortTls: others know it by that")
    if settings.load_manager_class_name.rpartition(".")[2] not in LOAD_MANAGERS:
        raise ValueError(
            f"loadManagerClassName cannot be {settings.load_manager_class_name!r}: this broker shares topics by the "
            "nodes of the ModularLoadManagerImpl, and all brokers of a cluster must have the same"
        )
    if settings.topic_policies_service_class_name.rpartition(".")[2] not in _POLICY_SERVICES:
        raise ValueError(
            f"topicPoliciesServiceClassName cannot be {settings.topic_policies_service_class_name!r}: this broker "
            "keeps policies of topics in __change_events, and all brokers of a cluster must do the same"
        )
    if settings.topic_level_policies_enabled and settings.authentication_enabled:
        _check_own_credentials(settings)
    _check_strategies(settings)
    sizes = (
        settings.managed_ledger_default_ensemble_size,
        settings.managed_ledger_default_write_quorum,
        settings.managed_ledger_default_ack_quorum,
    )
    if not sizes[0] >= sizes[1] >= sizes[2]:
        raise ValueError(
            f"managedLedgerDefaultEnsembleSize {sizes[0]} >= managedLedgerDefaultWriteQuorum {sizes[1]} >= "
            f"managedLedgerDefaultAckQuorum {sizes[2]} does not hold"
        )
    found = _with_ledgers(servers, settings.bookkeeper_metadata_service_uri)
    return replace(found, security=read_security(settings.metadata_store_config_path, settings.jaas_login_config_path))


def _check_strategies(settings: Settings) -> None:
    for key, value, known in (
        ("loadBalancerLoadSheddingStrategy", settings.load_balancer_load_shedding_strategy, tuple(SHEDDERS)),
        ("loadBalancerLoadPlacementStrategy", settings.load_balancer_load_placement_strategy, tuple(STRATEGIES)),
    ):
        if settings.load_balancer_enabled and value.rpartition(".")[2] not in known:
            names = ", ".join(known)
            raise ValueError(f"{key} cannot be {value!r}: this broker has {names}; or set loadBalancerEnabled=false")
    shedding, placement = (
        each.rpartition(".")[2]
        for each in (settings.load_balancer_load_shedding_strategy, settings.load_balancer_load_placement_strategy)
    )
    if settings.load_balancer_enabled and placement == "AvgShedder" != shedding:
        raise ValueError(
            f"loadBalancerLoadPlacementStrategy AvgShedder does not work with the shedding strategy {shedding}: set "
            "loadBalancerLoadSheddingStrategy to org.apache.pulsar.broker.loadbalance.impl.AvgShedder too"
        )


def _check_own_credentials(settings: Settings) -> None:
    """Raise ValueError unless the broker has credentials of its own: the policies of topics are in topics, which the
    broker reads as a client of their owner.
    """
    if settings.broker_client_authentication_plugin.rpartition(".")[2] in ("", "AuthenticationDisabled"):
        raise ValueError(
            "authenticationEnabled=true: a broker of a cluster proves itself to the others, so it needs "
            "brokerClientAuthenticationPlugin and brokerClientAuthenticationParameters of a role in superUserRoles; "
            "or set topicLevelPoliciesEnabled=false"
        )


def zookeeper_servers(key: str, url: str) -> str:
    """``zk:host:port,...[/path]`` without its scheme. Raises ValueError."""
    scheme, _, rest = url.removeprefix("metadata-store:").partition(":")
    rest = rest.removeprefix("//")
    if not url:
        raise ValueError(f"{key} is missing: where ZooKeeper is, as zk:host:port")
    if scheme != "zk" or not rest.partition("/")[0]:
        raise ValueError(f"{key} cannot be {url!r}: only ZooKeeper is supported, as zk:host:port,host:port")
    return rest


def _with_ledgers(servers: str, uri: str) -> ClusterServices:
    from magnetar.bookkeeper.errors import MetadataError  # noqa: PLC0415 - only brokers of a cluster
    from magnetar.bookkeeper.service_uri import parse_service_uri  # noqa: PLC0415 - the same

    own_hosts, _, path = servers.partition("/")
    uri = uri or f"zk+null://{own_hosts}/{path + '/' if path else ''}ledgers"
    try:
        found = parse_service_uri(uri)
    except MetadataError as error:
        raise ValueError(f"bookkeeperMetadataServiceUri: {error}") from error
    if sorted(found.servers.split(",")) != sorted(own_hosts.split(",")):
        raise ValueError(
            "bookkeeperMetadataServiceUri names other servers than metadataStoreUrl: this broker keeps both in one "
            "ZooKeeper"
        )
    root = found.root
    if path:
        if not f"{root}/".startswith(f"/{path}/"):
            raise ValueError(f"bookkeeperMetadataServiceUri must lie below /{path}, the path in metadataStoreUrl")
        root = root.removeprefix(f"/{path}") or "/ledgers"
    return ClusterServices(servers, uri, root)
