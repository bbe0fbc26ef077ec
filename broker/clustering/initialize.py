"""`magnetar initialize-cluster-metadata`: writes the initial metadata of a cluster to ZooKeeper, as Apache Pulsar's
command of the same name. It may be repeated, and called for a further cluster: present nodes stay as they are, but for
the clusters of tenants and namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from magnetar.bookkeeper.errors import BookKeeperError, MetadataError, NodeExistsError, NodeVersionError
from magnetar.bookkeeper.service_uri import parse_service_uri
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.broker.clustering.cluster_settings import zookeeper_servers
from magnetar.broker.clustering.zookeeper_client_file import read_security, zookeeper_options
from magnetar.broker.errors import UNREADABLE
from magnetar.broker.policies.records import Policies, even_bundles, shown
from magnetar.broker.policies.values import ClusterData, TenantInfo

if TYPE_CHECKING:
    import argparse

    from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions

__all__ = ["add_arguments", "cluster_nodes", "merged", "run_initialize"]

EXIT_CONFIGURATION: Final = 78
EXIT_UNAVAILABLE: Final = 69
_COORDINATORS: Final = "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
_BUNDLES: Final = 16
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
    add(
        *("--default-namespace-bundle-number", "-bn"),
        type=int,
        default=0,
        metavar="N",
        help="bundles of public/default; 0: 16",
    )
    add("-pu", "--proxy-url", default="", metavar="URL", help="a proxy in front of the brokers")
    add("-pp", "--proxy-protocol", default="", choices=("", "SNI"), help="how that proxy finds a broker")
    add("--auth-plugin", default="", metavar="CLASS", help="how other clusters authenticate at this cluster")
    add("--auth-parameters", default="", metavar="TEXT")
    add("-te", "--tls-enable", action="store_true", help="other clusters connect to this cluster by TLS")
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
    add(
        *("--configuration-metadata-store-config-path", "-cmscp"),
        default="",
        metavar="FILE",
        help="the same file as --metadata-store-config-path, or left out",
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
        proxy_service_url=options.proxy_url or None,
        proxy_protocol=options.proxy_protocol or None,
        authentication_plugin=options.auth_plugin or None,
        authentication_parameters=options.auth_parameters or None,
        broker_client_tls_enabled=options.tls_enable,
        tls_allow_insecure_connection=False,
        broker_client_tls_enabled_with_key_store=False,
        broker_client_tls_trust_store_type="JKS",
        broker_client_tls_key_store_type="JKS",
        broker_client_ssl_factory_plugin="org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    )
    tenant = encode(TenantInfo(admin_roles=[], allowed_clusters=[cluster]))

    def policies(bundles: int) -> bytes:
        return encode(shown(Policies(replication_clusters=[cluster], bundles=even_bundles(bundles))))

    return {
        f"/admin/clusters/{cluster}": encode(data),
        "/admin/policies/public": tenant,
        "/admin/policies/public/default": policies(options.default_namespace_bundle_number or _BUNDLES),
        "/admin/policies/pulsar": tenant,
        "/admin/policies/pulsar/system": policies(_BUNDLES),
        _COORDINATORS: encode({"partitions": options.initial_num_transaction_coordinators, "deleted": False}),
        "/bookies": b"{}",
    }


def merged(path: str, stored: bytes, made: bytes) -> bytes:
    """The new value of a present node: tenants and namespaces get this cluster too, and coordinators become as many as
    the command wants. Everything else stays as it is.

    Raises ValueError for a node that cannot be read.
    """
    list_of = {4: "allowedClusters", 5: "replication_clusters"}.get(len(path.split("/")))
    try:
        old, new = (msgspec.json.decode(value, type=dict[str, Any]) for value in (stored, made))
        if path == _COORDINATORS:
            return made if old["partitions"] < new["partitions"] else stored
        if not path.startswith("/admin/policies/") or list_of is None:
            return stored
        present = list(old.get(list_of) or [])
        added = [each for each in new[list_of] if each not in present]
    except (*UNREADABLE, KeyError, TypeError) as error:
        raise ValueError(f"the node {path} cannot be read: {error}") from error
    return msgspec.json.encode(old | {list_of: present + added}) if added else stored


def run_initialize(options: argparse.Namespace) -> int:
    """Returns the exit code of the process."""
    try:
        servers = _checked(options)
    except (ValueError, MetadataError) as error:
        sys.stderr.write(f"magnetar: error: {error}\n")
        return EXIT_CONFIGURATION
    try:
        made = asyncio.run(_initialize(servers, options))
    except (ValueError, BookKeeperError) as error:
        sys.stderr.write(f"magnetar: error: {error}\n")
        return EXIT_CONFIGURATION if isinstance(error, ValueError) else EXIT_UNAVAILABLE
    sys.stdout.write(f"cluster {options.cluster!r}: {made} nodes made at {servers}\n")
    return 0


def _checked(options: argparse.Namespace) -> str:
    """ZooKeeper's servers. Raises ValueError, MetadataError."""
    servers = zookeeper_servers("--metadata-store", options.metadata_store)
    other = options.configuration_metadata_store
    if other and zookeeper_servers("--configuration-metadata-store", other) != servers:
        raise ValueError("--configuration-metadata-store differs from --metadata-store: brokers here keep both in one")
    if options.configuration_metadata_store_config_path not in ("", options.metadata_store_config_path):
        raise ValueError("--configuration-metadata-store-config-path differs from --metadata-store-config-path")
    if options.ledgers:
        parse_service_uri(options.ledgers)
    read_security(options.metadata_store_config_path, options.jaas_login_config)
    if not 0 <= options.default_namespace_bundle_number <= 1024:
        raise ValueError("--default-namespace-bundle-number must be 0 to 1024")
    if options.initial_num_transaction_coordinators < 1:
        raise ValueError("--initial-num-transaction-coordinators must be 1 at least")
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
        return sum([await _create_or_merge(session, path, value) for path, value in nodes.items()])
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


async def _create_or_merge(session: ZooKeeperSession, path: str, value: bytes) -> bool:
    """Whether the node was not there."""
    while not await _create(session, path, value):
        if not path.startswith("/admin/"):
            return False
        node = await session.get(path)
        wanted = merged(path, node.value, value)
        if wanted == node.value:
            return False
        with contextlib.suppress(NodeVersionError):  # another program changes it now
            await session.set(path, wanted, node.version)
            return False
    return True


async def _create(session: ZooKeeperSession, path: str, value: bytes) -> bool:
    try:
        await session.create(path, value, make_parents=True)
    except NodeExistsError:
        return False
    return True
