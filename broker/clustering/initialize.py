"""`magnetar initialize-cluster-metadata`: writes the initial metadata of a cluster to ZooKeeper, as Apache Pulsar's
command of the same name. It may be repeated: nodes that are there stay as they are.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from magnetar.bookkeeper.errors import BookKeeperError, MetadataError, NodeExistsError
from magnetar.bookkeeper.service_uri import parse_service_uri
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.broker.clustering.cluster_settings import zookeeper_servers
from magnetar.broker.clustering.zookeeper_client_file import read_security, zookeeper_options
from magnetar.broker.policies.records import Policies, even_bundles, shown
from magnetar.broker.policies.values import ClusterData, TenantInfo

if TYPE_CHECKING:
    import argparse

    from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions

__all__ = ["add_arguments", "cluster_nodes", "run_initialize"]

EXIT_CONFIGURATION: Final = 78
EXIT_UNAVAILABLE: Final = 69
_COORDINATORS: Final = "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
_LEDGER_LAYOUT: Final = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Pulsar's options; those without effect here are taken all the same."""
    add = parser.add_argument
    add("-c", "--cluster", required=True, metavar="NAME", help="name of the cluster: clusterName of its brokers")
    add("-md", "--metadata-store", "--zookeeper", "-zk", required=True, metavar="URL", help="zk:host:port,host:port")
    add(
        *("-cms", "--configuration-metadata-store", "--configuration-store", "-cs"),
        metavar="URL",
        help="the same ZooKeeper, or left out",
    )
    add("-uw", "--web-service-url", default="", metavar="URL", help="where clients reach some broker by HTTP")
    add("-tw", "--web-service-url-tls", default="", metavar="URL")
    add("-ub", "--broker-service-url", default="", metavar="URL", help="and by the binary protocol")
    add("-tb", "--broker-service-url-tls", default="", metavar="URL")
    add(
        *("--existing-bk-metadata-service-uri", "--bookkeeper-metadata-service-uri", "-bookkeeper-metadata-uri"),
        dest="ledgers",
        default="",
        metavar="URI",
        help="metadata of a BookKeeper that is there already; without it /ledgers is made",
    )
    add("--default-namespace-bundle-number", type=int, default=16, metavar="N", help="bundles of public/default")
    add("--initial-num-transaction-coordinators", type=int, default=16, metavar="N")
    add("--initial-num-stream-storage-containers", type=int, default=16, metavar="N", help="no effect here")
    add(
        *("--metadata-store-config-path", "-mscp"),
        default="",
        metavar="FILE",
        help="ZooKeeper's client settings, for TLS: metadataStoreConfigPath of the brokers",
    )
    add(
        "--jaas-login-config",
        default="",
        metavar="FILE",
        help="user and password for ZooKeeper, section Client: jaasLoginConfigPath of the brokers",
    )
    add("--metadata-store-session-timeout-ms", "--zookeeper-session-timeout-ms", type=int, default=30000, metavar="MS")


def cluster_nodes(options: argparse.Namespace) -> dict[str, bytes]:
    """Path and value of every node below /admin, parents first."""
    cluster, encode = options.cluster, msgspec.json.encode
    data = ClusterData(
        service_url=options.web_service_url or None,
        service_url_tls=options.web_service_url_tls or None,
        broker_service_url=options.broker_service_url or None,
        broker_service_url_tls=options.broker_service_url_tls or None,
        broker_client_tls_enabled=False,
        tls_allow_insecure_connection=False,
        broker_client_tls_enabled_with_key_store=False,
        broker_client_tls_trust_store_type="JKS",
        broker_client_tls_key_store_type="JKS",
        broker_client_ssl_factory_plugin="org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    )
    tenant = encode(TenantInfo(admin_roles=[], allowed_clusters=[cluster]))
    bundles = even_bundles(options.default_namespace_bundle_number)
    policies = encode(shown(Policies(replication_clusters=[cluster], bundles=bundles)))
    return {
        f"/admin/clusters/{cluster}": encode(data),
        "/admin/policies/public": tenant,
        "/admin/policies/public/default": policies,
        "/admin/policies/pulsar": tenant,
        "/admin/policies/pulsar/system": policies,
        _COORDINATORS: encode({"partitions": options.initial_num_transaction_coordinators, "deleted": False}),
    }


def run_initialize(options: argparse.Namespace) -> int:
    """Returns the exit code of the process."""
    try:
        servers = _checked(options)
    except (ValueError, MetadataError) as error:
        sys.stderr.write(f"magnetar: error: {error}\n")
        return EXIT_CONFIGURATION
    try:
        made = asyncio.run(_initialize(servers, options))
    except BookKeeperError as error:
        sys.stderr.write(f"magnetar: error: {error}\n")
        return EXIT_UNAVAILABLE
    sys.stdout.write(f"cluster {options.cluster!r}: {made} nodes made at {servers}\n")
    return 0


def _checked(options: argparse.Namespace) -> str:
    """ZooKeeper's servers. Raises ValueError, MetadataError."""
    servers = zookeeper_servers("--metadata-store", options.metadata_store)
    other = options.configuration_metadata_store
    if other and zookeeper_servers("--configuration-metadata-store", other) != servers:
        raise ValueError("--configuration-metadata-store differs from --metadata-store: brokers here keep both in one")
    if options.ledgers:
        parse_service_uri(options.ledgers)
    read_security(options.metadata_store_config_path, options.jaas_login_config)
    if not 1 <= options.default_namespace_bundle_number <= 1024:
        raise ValueError("--default-namespace-bundle-number must be 1 to 1024")
    return servers


async def _initialize(servers: str, options: argparse.Namespace) -> int:
    hosts, _, chroot = servers.partition("/")
    security = read_security(options.metadata_store_config_path, options.jaas_login_config)

    def service(servers: str) -> ZooKeeperOptions:
        return zookeeper_options(servers, security, options.metadata_store_session_timeout_ms)

    if chroot:
        root = await ZooKeeperSession.connect(service(hosts))
        await _create(root, f"/{chroot}", b"")
        await root.close()
    session = await ZooKeeperSession.connect(service(servers))
    try:
        nodes = {} if options.ledgers else _ledger_nodes()
        nodes.update(cluster_nodes(options))
        return sum([await _create(session, path, value) for path, value in nodes.items()])
    finally:
        await session.close()


def _ledger_nodes() -> dict[str, bytes]:
    return {
        "/ledgers": b"",
        "/ledgers/available": b"",
        "/ledgers/available/readonly": b"",
        "/ledgers/INSTANCEID": str(uuid4()).encode(),
        "/ledgers/LAYOUT": _LEDGER_LAYOUT,
    }


async def _create(session: ZooKeeperSession, path: str, value: bytes) -> bool:
    try:
        await session.create(path, value, make_parents=True)
    except NodeExistsError:
        return False
    return True
