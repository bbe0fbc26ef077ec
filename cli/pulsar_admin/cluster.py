"""`pulsar-admin` tenants, clusters, brokers, broker-stats, schemas and the rest: one row a verb."""

from __future__ import annotations

from typing import Any, Final

from magnetar.cli.pulsar_admin.policies import of
from magnetar.cli.pulsar_admin.verb import Flag, Values, Verb, flag


def _row(group: str, name: str, argument: str, method: str, route: str, text: str, *flags: Flag, **more: Any) -> Verb:
    return Verb(group, name, argument, method, route, flags, help=text, **more)


_ROLES: Final = flag("-r --admin-roles", "list", text="roles that administer the tenant")
_ALLOWED: Final = flag("-c --allowed-clusters", "list", text="clusters it may use")

TENANTS: Final = (
    _row("tenants", "list", "", "GET", "tenants", "all tenants", show="lines"),
    _row("tenants", "get", "tenant", "GET", "tenants/{tenant}", "roles and clusters of a tenant", show="json"),
    _row(
        "tenants",
        "create",
        "tenant",
        "PUT",
        "tenants/{tenant}",
        "create a tenant; without --allowed-clusters for every cluster",
        _ROLES,
        _ALLOWED,
        steps="create_tenant",
    ),
    _row(
        "tenants",
        "update",
        "tenant",
        "POST",
        "tenants/{tenant}",
        "change the given values, keep the rest",
        _ROLES,
        _ALLOWED,
        steps="update_tenant",
    ),
    _row(
        "tenants",
        "delete",
        "tenant",
        "DELETE",
        "tenants/{tenant}?force={force}",
        "delete a tenant",
        flag("-f --force", "flag", False, "with all its namespaces"),
    ),
)

_CLUSTER_FIELDS: Final = {
    "--url": "serviceUrl",
    "--url-secure": "serviceUrlTls",
    "--broker-url": "brokerServiceUrl",
    "--broker-url-secure": "brokerServiceUrlTls",
    "--proxy-url": "proxyServiceUrl",
    "--auth-plugin": "authenticationPlugin",
    "--auth-parameters": "authenticationParameters",
    "--proxy-protocol": "proxyProtocol",
    "--tls-trust-certs-filepath": "brokerClientTrustCertsFilePath",
    "--tls-key-filepath": "brokerClientKeyFilePath",
    "--tls-certs-filepath": "brokerClientCertificateFilePath",
    "--listener-name": "listenerName",
    "--tls-trust-store-type": "brokerClientTlsTrustStoreType",
    "--tls-trust-store": "brokerClientTlsTrustStore",
    "--tls-trust-store-pwd": "brokerClientTlsTrustStorePassword",
    "--tls-key-store-type": "brokerClientTlsKeyStoreType",
    "--tls-key-store": "brokerClientTlsKeyStore",
    "--tls-key-store-pwd": "brokerClientTlsKeyStorePassword",
    "--tls-factory-plugin": "brokerClientSslFactoryPlugin",
    "--tls-factory-plugin-params": "brokerClientSslFactoryPluginParams",
}
_CLUSTER_SWITCHES: Final = {
    "--tls-enable": "brokerClientTlsEnabled",
    "--tls-allow-insecure": "tlsAllowInsecureConnection",
    "--tls-enable-keystore": "brokerClientTlsEnabledWithKeyStore",
}
_DEFAULTS: Final = {
    "--tls-trust-store-type": "JKS",
    "--tls-key-store-type": "JKS",
    "--tls-factory-plugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}
_CLUSTER_FLAGS: Final = (
    *(flag(name, "text", _DEFAULTS.get(name), f"field {field}") for name, field in _CLUSTER_FIELDS.items()),
    *(flag(name, "flag", False, f"field {field}") for name, field in _CLUSTER_SWITCHES.items()),
)


def _cluster(values: Values) -> Any:
    """ClusterData of the given values, with the defaults of the Java client."""
    fields = {**_CLUSTER_FIELDS, **_CLUSTER_SWITCHES}
    given = {field: values[name.lstrip("-").replace("-", "_")] for name, field in fields.items()}
    return {field: value for field, value in given.items() if value is not None}


_CLUSTER: Final = "clusters/{cluster}"
_DOMAIN: Final = flag("--domain-name!")
_BROKERS: Final = flag("--broker-list", "list")


def _domain(values: Values) -> Any:
    return {"brokers": values["broker_list"]} if values["broker_list"] else {}


CLUSTERS: Final = (
    _row(
        "clusters",
        "list",
        "",
        "GET",
        "clusters",
        "all clusters",
        flag("-c --current", "flag", False, "mark the broker's own with (*)"),
        steps="list_clusters",
    ),
    _row("clusters", "get", "cluster", "GET", _CLUSTER, "addresses of a cluster", show="json"),
    _row("clusters", "create", "cluster", "PUT", _CLUSTER, "create a cluster", *_CLUSTER_FLAGS, body=_cluster),
    _row("clusters", "update", "cluster", "POST", _CLUSTER, "replace its addresses", *_CLUSTER_FLAGS, body=_cluster),
    _row("clusters", "delete", "cluster", "DELETE", _CLUSTER, "delete a cluster"),
    _row("clusters", "get-peer-clusters", "cluster", "GET", f"{_CLUSTER}/peers", "its peers", show="json"),
    _row(
        "clusters",
        "update-peer-clusters",
        "cluster",
        "POST",
        f"{_CLUSTER}/peers",
        "set them",
        flag("--peer-clusters!", "list"),
        body=of("peer_clusters"),
    ),
    _row(
        "clusters",
        "list-failure-domains",
        "cluster",
        "GET",
        f"{_CLUSTER}/failureDomains",
        "its failure domains",
        show="domains",
    ),
    _row(
        "clusters",
        "get-failure-domain",
        "cluster",
        "GET",
        f"{_CLUSTER}/failureDomains/{{domain_name}}",
        "a failure domain",
        _DOMAIN,
        show="json",
    ),
    *(
        _row(
            "clusters",
            f"{word}-failure-domain",
            "cluster",
            "POST",
            f"{_CLUSTER}/failureDomains/{{domain_name}}",
            f"{word} one",
            _DOMAIN,
            _BROKERS,
            body=_domain,
        )
        for word in ("create", "update")
    ),
    _row(
        "clusters",
        "delete-failure-domain",
        "cluster",
        "DELETE",
        f"{_CLUSTER}/failureDomains/{{domain_name}}",
        "delete one",
        _DOMAIN,
    ),
)
BROKERS: Final = (
    _row("brokers", "list", "cluster", "GET", "brokers/{cluster}", "brokers that are up", show="lines"),
    _row("brokers", "leader-broker", "", "GET", "brokers/leaderBroker", "the leader", show="json"),
    _row(
        "brokers",
        "namespaces",
        "cluster",
        "GET",
        "brokers/{cluster}/{url}/ownedNamespaces",
        "bundles that a broker serves",
        flag("-u --url!", text="HOST:PORT of the broker's web port"),
        show="ownership",
    ),
    _row(
        "brokers",
        "update-dynamic-config",
        "",
        "POST",
        "brokers/configuration/{config}/{value}",
        "change a setting while the broker runs",
        flag("-c --config!"),
        flag("-v --value!"),
    ),
    _row(
        "brokers",
        "delete-dynamic-config",
        "",
        "DELETE",
        "brokers/configuration/{config}",
        "take such a change back",
        flag("-c --config!"),
    ),
    _row(
        "brokers",
        "list-dynamic-config",
        "",
        "GET",
        "brokers/configuration",
        "settings that can be changed",
        show="lines",
    ),
    _row(
        "brokers", "get-all-dynamic-config", "", "GET", "brokers/configuration/values", "changed settings", show="map"
    ),
    _row(
        "brokers", "get-internal-config", "", "GET", "brokers/internal-configuration", "addresses inside", show="json"
    ),
    _row("brokers", "get-runtime-config", "", "GET", "brokers/configuration/runtime", "settings in effect", show="map"),
    _row(
        "brokers",
        "healthcheck",
        "",
        "GET",
        "brokers/health?topicVersion={topic_version}",
        "whether the broker could store a message just now",
        flag("-tv --topic-version", text="V1 or V2"),
        show="text",
    ),
    _row("brokers", "backlog-quota-check", "", "GET", "brokers/backlog-quota-check", "check quotas now", show="ok"),
    _row("brokers", "version", "", "GET", "brokers/version", "version that the broker states", show="text"),
)
_INDENT: Final = flag("-i --indent", "flag", False)
STATS: Final = (
    _row("broker-stats", "monitoring-metrics", "", "GET", "broker-stats/metrics", "figures", _INDENT, steps="metrics"),
    _row("broker-stats", "topics", "", "GET", "broker-stats/topics", "stats of all topics", _INDENT, steps="indented"),
    _row("broker-stats", "destinations", "", "GET", "broker-stats/topics", "the same", _INDENT, steps="indented"),
    _row(
        "broker-stats", "mbeans", "", "GET", "broker-stats/mbeans", "of the JVM: empty here", _INDENT, steps="indented"
    ),
    _row("broker-stats", "load-report", "", "GET", "broker-stats/load-report", "load of the broker", show="json"),
)
_SCHEMA: Final = "schemas/{schema_topic}"
_FILE: Final = flag("-f --filename!", "json_file", text="a file with type, schema and properties")
SCHEMAS: Final = (
    _row(
        "schemas",
        "get",
        "topic",
        "GET",
        f"{_SCHEMA}/schema",
        "the schema of a topic",
        flag("-a --all-version", "flag", False, "every version"),
        steps="schema",
    ),
    _row(
        "schemas",
        "delete",
        "topic",
        "DELETE",
        f"{_SCHEMA}/schema?force={{force}}",
        "delete it",
        flag("-f --force", "flag", False),
    ),
    _row("schemas", "upload", "topic", "POST", f"{_SCHEMA}/schema", "add a version", _FILE, body=of("filename")),
    _row("schemas", "metadata", "topic", "GET", f"{_SCHEMA}/metadata", "its versions", show="json"),
    _row(
        "schemas",
        "compatibility",
        "topic",
        "POST",
        f"{_SCHEMA}/compatibility",
        "whether the topic would take a schema",
        _FILE,
        body=of("filename"),
        show="json",
    ),
)
_BOOKIE: Final = flag("-b --bookie!")


def _rack(values: Values) -> Any:
    return {"rack": values["rack"]} | ({"hostname": values["hostname"]} if values["hostname"] else {})


BOOKIES: Final = (
    _row("bookies", "racks-placement", "", "GET", "bookies/racks-info", "racks as they are kept", show="json"),
    _row("bookies", "list-bookies", "", "GET", "bookies/all", "bookies of the cluster: none on one node", show="json"),
    _row(
        "bookies", "get-bookie-rack", "", "GET", "bookies/racks-info/{bookie}", "rack of a bookie", _BOOKIE, show="json"
    ),
    _row("bookies", "delete-bookie-rack", "", "DELETE", "bookies/racks-info/{bookie}", "forget one", _BOOKIE),
    _row(
        "bookies",
        "set-bookie-rack",
        "",
        "POST",
        "bookies/racks-info/{bookie}?group={group}",
        "set the rack of a bookie",
        flag("-g --group", "text", "default"),
        _BOOKIE,
        flag("-r --rack!"),
        flag("-hn --hostname"),
        body=_rack,
    ),
)
_ISOLATION: Final = f"{_CLUSTER}/namespaceIsolationPolicies"
_FAILOVER: Final = ("min_limit", "usage_threshold")


def _texts(values: Values, key: str) -> list[str]:
    return [each for each in values[key] or () if each]


def _failover(values: Values) -> dict[str, str]:
    pairs = (each.partition("=") for each in values["auto_failover_policy_params"])
    return {name.strip(): value.strip() for name, _, value in pairs}


def _isolation(values: Values) -> Any:
    policy: dict[str, Any] = {key: _texts(values, key) for key in ("namespaces", "primary", "secondary")}
    policy["auto_failover_policy"] = {
        "policy_type": values["auto_failover_policy_type"],
        "parameters": _failover(values),
    }
    return policy | ({"unload_scope": values["unload_scope"]} if values["unload_scope"] else {})


def _wrong_isolation(values: Values) -> str | None:
    """The refusal of an empty list, as in pulsar-admin; None without an empty list."""
    for key in ("namespaces", "primary"):
        if not _texts(values, key):
            return f"unable to parse {key} parameter list: []"
    if values["auto_failover_policy_type"] != "min_available":
        return f"Unknown auto failover policy type specified : {values['auto_failover_policy_type']}"
    if sorted(_failover(values)) != sorted(_FAILOVER):
        return f"Unknown auto failover policy params specified : give {' and '.join(_FAILOVER)}"
    return None


OTHERS: Final = (
    _row(
        "namespaces",
        "get-anti-affinity-namespaces",
        "",
        "GET",
        "namespaces/{cluster}/antiAffinity/{group}?tenant={tenant}",
        "namespaces of a group",
        flag("-p --tenant!"),
        flag("-c --cluster!"),
        flag("-g --group!"),
        show="lines",
    ),
    _row("resourcegroups", "list", "", "GET", "resourcegroups", "resource groups", show="lines"),
    _row(
        "resourcegroups",
        "get",
        "resourcegroup",
        "GET",
        "resourcegroups/{resourcegroup}",
        "a resource group",
        show="json",
    ),
    _row(
        "ns-isolation-policy",
        "list",
        "cluster",
        "GET",
        _ISOLATION,
        "isolation policies",
        show="map",
    ),
    _row(
        "ns-isolation-policy",
        "set",
        "cluster policy",
        "POST",
        f"{_ISOLATION}/{{policy}}",
        "create or replace one",
        flag("--namespaces!", "list", text="patterns of namespaces"),
        flag("--primary!", "list", text="patterns of brokers that serve them"),
        flag("--secondary", "list", text="patterns of brokers that step in"),
        flag("--auto-failover-policy-type!", text="min_available"),
        flag("--auto-failover-policy-params!", "list", text="min_limit=NUMBER,usage_threshold=PERCENT"),
        flag("--unload-scope", text="all_matching, none or changed"),
        body=_isolation,
        check=_wrong_isolation,
    ),
    _row(
        "ns-isolation-policy", "brokers", "cluster", "GET", f"{_ISOLATION}/brokers", "policies by broker", show="json"
    ),
    _row(
        "ns-isolation-policy",
        "broker",
        "cluster",
        "GET",
        f"{_ISOLATION}/brokers/{{broker}}",
        "those of one broker",
        flag("--broker!", text="HOST:PORT of the broker's web port"),
        show="json",
    ),
    _row(
        "ns-isolation-policy",
        "get",
        "cluster policy",
        "GET",
        f"{_ISOLATION}/{{policy}}",
        "an isolation policy",
        show="json",
    ),
    _row(
        "ns-isolation-policy",
        "delete",
        "cluster policy",
        "DELETE",
        f"{_ISOLATION}/{{policy}}",
        "delete one",
    ),
)
VERBS: Final = (*TENANTS, *CLUSTERS, *BROKERS, *STATS, *SCHEMAS, *BOOKIES, *OTHERS)
