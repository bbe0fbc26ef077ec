"""Clusters: /admin/v2/clusters."""

from typing import Final

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call, valid_name
from magnetar.broker.admin.responses import done, json_response, precondition
from magnetar.broker.admin.routes import ADMIN, RouteTable
from magnetar.broker.auth.table import OPEN, SUPER
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.compat.java_uris import scheme_of
from magnetar.broker.errors import RestError
from magnetar.broker.policies.records import shown
from magnetar.broker.policies.values import ClusterData

routes = RouteTable()
# cluster_parts has the routes of these members
_OF_OTHER_ROUTES: Final = (
    "failure_domains",
    "isolation_policies",
    "bookie_racks",
    "migrated",
    "migrated_cluster_url",
)
_KEPT_APART: Final = dict.fromkeys(_OF_OTHER_ROUTES)
CLUSTER = ADMIN + "/clusters/{cluster}"
# Values that Apache Pulsar shows for every cluster, whether set or not.
_ALWAYS_SHOWN = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
}
# Values of the cluster that Apache Pulsar creates at its first start.
_OF_OWN_CLUSTER: Final[dict[str, object]] = {
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}


@routes.get(ADMIN + "/clusters", OPEN)
async def list_clusters(call: Call) -> Response:
    return json_response(java_order(call.namespaces.clusters.names()))


@routes.get(CLUSTER, SUPER)
async def get_cluster(call: Call) -> Response:
    cluster = _cluster(call)
    data = shown(msgspec.structs.replace(cluster, **_KEPT_APART))
    own: dict[str, object] = {}
    if call.param("cluster") == call.api.settings.cluster_name:
        own = _OF_OWN_CLUSTER if _has_urls(cluster) else _OF_OWN_CLUSTER | _own_urls(call)
    assert isinstance(data, dict), "ClusterData is an object"
    return json_response(own | _ALWAYS_SHOWN | data)


@routes.put(CLUSTER, SUPER)
async def create_cluster(call: Call) -> Response:
    name = call.param("cluster")
    data = await call.body(ClusterData)
    if not valid_name(name):
        raise rest_refusals.CLUSTER_NAME_INVALID.error()
    if data is None:
        raise RestError(400, "cluster data is required")
    _check_urls(data)
    if name in call.namespaces.clusters:
        raise rest_refusals.CLUSTER_EXISTS.error()
    await call.namespaces.clusters.create(name, msgspec.structs.replace(data, **_KEPT_APART))
    return done(200)


@routes.post(CLUSTER, SUPER)
async def update_cluster(call: Call) -> Response:
    data = await call.body(ClusterData)
    if data is None:
        raise RestError(500, "the data of a cluster are required")
    _check_urls(data)
    _cluster(call)
    await call.namespaces.clusters.update(
        call.param("cluster"),
        lambda old: msgspec.structs.replace(data, **{part: getattr(old, part) for part in _OF_OTHER_ROUTES}),
    )
    return done(200)


@routes.delete(CLUSTER, SUPER)
async def delete_cluster(call: Call) -> Response:
    """Delete the cluster; refused while the cluster has a namespace or isolation policies."""
    name = call.param("cluster")
    cluster, isolation = _cluster(call), call.namespaces.isolation.get(name)
    if cluster.isolation_policies if isolation is None else isolation:
        raise rest_refusals.CLUSTER_IN_USE.error()
    for namespace in call.namespaces.namespaces.names():
        policies = call.namespaces.policies(namespace)
        if policies is not None and name in policies.replication_clusters:
            raise precondition(f"Cluster not empty: namespace {namespace} lives in it")
    await call.namespaces.isolation.forget(name)
    await call.namespaces.failure_domains.forget(name)
    await call.namespaces.clusters.delete(name)
    return done()


@routes.get(CLUSTER + "/peers", SUPER)
async def get_peers(call: Call) -> Response:
    return json_response(_cluster(call).peer_cluster_names)


@routes.post(CLUSTER + "/peers", SUPER)
async def set_peers(call: Call) -> Response:
    peers = await call.body(list[str])
    for peer in peers or []:
        if peer == call.param("cluster"):
            raise precondition(f"{peer} itself can't be part of peer-list")
        if peer not in call.namespaces.clusters:
            raise rest_refusals.PEER_CLUSTER_UNKNOWN.error(cluster=peer)
    _cluster(call)
    await call.namespaces.clusters.update(
        call.param("cluster"), lambda old: msgspec.structs.replace(old, peer_cluster_names=peers)
    )
    return done()


def _cluster(call: Call) -> ClusterData:
    found = call.namespaces.clusters.get(call.param("cluster"))
    if found is None:
        raise rest_refusals.CLUSTER_MISSING.error()
    return found


def _check_urls(data: ClusterData) -> None:
    """Raise 400 for an address that is no URI or has another scheme."""
    for url, schemes, refusal in (
        (data.service_url, ("http",), rest_refusals.CLUSTER_WEB_URL_ILLEGAL.error()),
        (data.service_url_tls, ("https",), rest_refusals.CLUSTER_WEB_URL_TLS_ILLEGAL.error()),
        (data.broker_service_url, ("pulsar",), rest_refusals.CLUSTER_BROKER_URL_ILLEGAL.error()),
        (data.broker_service_url_tls, ("pulsar+ssl",), rest_refusals.CLUSTER_BROKER_URL_TLS_ILLEGAL.error()),
        (data.proxy_service_url, ("pulsar", "pulsar+ssl"), rest_refusals.CLUSTER_PROXY_URL_ILLEGAL.error()),
    ):
        if url and scheme_of(url) not in schemes:
            raise refusal


def _has_urls(data: ClusterData) -> bool:
    return any((data.service_url, data.service_url_tls, data.broker_service_url, data.broker_service_url_tls))


def _own_urls(call: Call) -> dict[str, object]:
    """The addresses of this broker, shown for its own cluster until an administrator sets an address."""
    urls = call.api.urls
    found: dict[str, object] = {
        "serviceUrl": urls.web_url,
        "serviceUrlTls": urls.web_url_tls,
        "brokerServiceUrl": urls.service_url,
        "brokerServiceUrlTls": urls.service_url_tls,
    }
    return {key: url for key, url in found.items() if url}
