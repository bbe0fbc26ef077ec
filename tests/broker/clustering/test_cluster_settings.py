"""Settings of `magnetar broker`."""

import pytest

from magnetar.bookkeeper.wire.digests import DigestType
from magnetar.broker.clustering.cluster_settings import (
    CLUSTER_DEFAULTS,
    CLUSTER_OLDER_NAMES,
    ClusterServices,
    cluster_services,
)
from magnetar.broker.clustering.cluster_stores import _DIGESTS
from magnetar.broker.ownership.placement_strategies import STRATEGIES
from magnetar.broker.ownership.shedding import SHEDDERS
from magnetar.broker.settings import SETTINGS
from magnetar.broker.settings_loader import SettingsError, load_settings

PULSAR_CONF = """
clusterName=c1
metadataStoreUrl=zk:127.0.0.1:2181
configurationMetadataStoreUrl=zk:127.0.0.1:2181
bookkeeperMetadataServiceUri=zk+null://127.0.0.1:2181/ledgers
brokerServicePort=9651
webServicePort=9081
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
managedLedgerDefaultEnsembleSize=3
managedLedgerDefaultWriteQuorum=3
managedLedgerDefaultAckQuorum=2
metadataStoreSessionTimeoutMillis=6000
managedLedgerCacheSizeMB=64
functionsWorkerEnabled=false
allowAutoTopicCreation=true
allowAutoTopicCreationType=non-partitioned
acknowledgmentAtBatchIndexLevelEnabled=true
brokerEntryMetadataInterceptors=org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor,org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor
exposingBrokerEntryMetadataToClientEnabled=true
brokerDeleteInactiveTopicsEnabled=false
defaultNumberOfNamespaceBundles=16
"""

AUTHENTICATION = {"authenticationEnabled": "true", "authenticationProviders": "token", "tokenSecretKey": "x" * 32}


def loaded(tmp_path=None, **changes):
    file = None
    if tmp_path is not None:
        file = tmp_path / "broker.conf"
        file.write_text(PULSAR_CONF)
    overrides = [f"{key}={value}" for key, value in changes.items()]
    return load_settings(file, {}, overrides, lambda _: None, CLUSTER_DEFAULTS, CLUSTER_OLDER_NAMES)


def test_a_file_of_apache_pulsar_is_taken_as_it_is(tmp_path):
    settings = loaded(tmp_path)
    expected = ClusterServices("127.0.0.1:2181", "zk+null://127.0.0.1:2181/ledgers", "/ledgers")
    assert cluster_services(settings) == expected
    assert settings.metadata_store_session_timeout_millis == 6000


def test_defaults_of_omitted_settings():
    settings = loaded(metadataStoreUrl="zk:a:1,b:2/pulsar")
    found = cluster_services(settings)
    assert (found.servers, found.ledgers_root) == ("a:1,b:2/pulsar", "/ledgers")
    assert settings.managed_ledger_default_ensemble_size == settings.managed_ledger_default_ack_quorum == 2
    below = loaded(metadataStoreUrl="zk:a:1/p", bookkeeperMetadataServiceUri="zk+hierarchical://a:1/p/bk/ledgers")
    assert cluster_services(below).ledgers_root == "/bk/ledgers"
    assert cluster_services(loaded(metadataStoreUrl="metadata-store:zk:a:1")).servers == "a:1"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"zookeeperServers": "a:1,b:2/p"}, ("zk:a:1,b:2/p", "", 30_000, 30)),
        ({"metadataStoreUrl": "zk:c:1", "zookeeperServers": "a:1"}, ("zk:c:1", "", 30_000, 30)),
        ({"zookeeperServers": "a:1", "configurationStoreServers": "b:1"}, ("zk:a:1", "zk:b:1", 30_000, 30)),
        ({"zookeeperServers": "a:1", "globalZookeeperServers": "d:1"}, ("zk:a:1", "zk:d:1", 30_000, 30)),
        ({"globalZookeeperServers": "d:1", "configurationStoreServers": "b:1"}, ("", "zk:b:1", 30_000, 30)),
        (
            {"configurationStoreServers": "b:1", "configurationMetadataStoreUrl": "zk:a:1", "metadataStoreUrl": ""},
            ("", "zk:a:1", 30_000, 30),
        ),
        (
            {
                "zooKeeperSessionTimeoutMillis": 5000,
                "metadataStoreSessionTimeoutMillis": 9000,
                "zooKeeperOperationTimeoutSeconds": 7,
            },
            ("", "", 5000, 7),
        ),
        ({"zooKeeperSessionTimeoutMillis": 0, "zooKeeperOperationTimeoutSeconds": -1}, ("", "", 30_000, 30)),
        ({"zooKeeperSessionTimeoutMillis": ""}, ("", "", 30_000, 30)),
    ],
)
def test_older_names_have_the_effect_that_they_have_in_apache_pulsar(changes, expected):
    found = loaded(**changes)
    assert (
        found.metadata_store_url,
        found.configuration_metadata_store_url,
        found.metadata_store_session_timeout_millis,
        found.metadata_store_operation_timeout_seconds,
    ) == expected


def test_policies_in_another_zookeeper_are_refused_by_their_older_names_too():
    for key in ("configurationStoreServers", "globalZookeeperServers"):
        with pytest.raises(ValueError, match="differs from metadataStoreUrl"):
            cluster_services(loaded(metadataStoreUrl="zk:a:1", **{key: "b:1"}))
        cluster_services(loaded(metadataStoreUrl="zk:a:1", **{key: "a:1"}))
        cluster_services(loaded(metadataStoreUrl="zk:a:1", **{key: "zk:a:1"}))


def test_an_older_name_is_not_among_the_keys_without_effect():
    warnings = []
    given = ["zookeeperServers=a:1", "zooKeeperCacheExpirySeconds=1"]
    load_settings(None, {}, given, warnings.append, CLUSTER_DEFAULTS, CLUSTER_OLDER_NAMES)
    assert warnings == ["of no effect here and ignored: zooKeeperCacheExpirySeconds"]


def test_a_wrong_value_of_an_older_name_is_an_error_with_that_name():
    with pytest.raises(SettingsError, match="zooKeeperSessionTimeoutMillis cannot be 'x'"):
        loaded(zooKeeperSessionTimeoutMillis="x")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "metadataStoreUrl is missing"),
        ({"metadataStoreUrl": "etcd:http://a:1"}, "only ZooKeeper"),
        ({"metadataStoreUrl": "zk:"}, "only ZooKeeper"),
        ({"configurationMetadataStoreUrl": "zk:b:1"}, "differs from metadataStoreUrl"),
        ({"bookkeeperMetadataServiceUri": "zk+null://b:1/ledgers"}, "other servers"),
        ({"bookkeeperMetadataServiceUri": "etcd://a:1/ledgers"}, "bookkeeperMetadataServiceUri"),
        ({"webServicePort": ""}, "webServicePort"),
        ({"managedLedgerDefaultAckQuorum": 3}, "does not hold"),
        ({"topicPoliciesServiceClassName": "a.MetadataStoreTopicPoliciesService"}, "topicPoliciesServiceClassName"),
        (AUTHENTICATION, "brokerClientAuthenticationPlugin"),
        ({"loadManagerClassName": "org.apache.pulsar...ExtensibleLoadManagerImpl"}, "loadManagerClassName"),
    ],
)
def test_unworkable_settings_are_refused_with_the_reason(changes, reason):
    url = {"metadataStoreUrl": "zk:a:1"} if changes else {}
    with pytest.raises(ValueError, match=reason):
        cluster_services(loaded(**{**url, **changes}))


def test_every_digest_of_the_settings_is_one_of_the_client():
    assert set(SETTINGS["managedLedgerDigestType"].choices) == _DIGESTS.keys()
    assert set(_DIGESTS.values()) == set(DigestType)


@pytest.mark.parametrize("package", ["", "org.apache.pulsar.broker.loadbalance.impl."])
def test_strategies_have_their_names_in_apache_pulsar_with_or_without_package(package):
    for key, names in (
        ("loadBalancerLoadPlacementStrategy", STRATEGIES),
        ("loadBalancerLoadSheddingStrategy", SHEDDERS),
    ):
        for name in names:
            also = {"loadBalancerLoadSheddingStrategy": name} if name == "AvgShedder" else {}
            cluster_services(loaded(metadataStoreUrl="zk:a:1", **{key: package + name, **also}))
        changes = {key: f"{package}TransferShedder"}
        with pytest.raises(ValueError, match=f"{key} cannot be .*{', '.join(names)}.*loadBalancerEnabled=false"):
            cluster_services(loaded(metadataStoreUrl="zk:a:1", **changes))
        cluster_services(loaded(metadataStoreUrl="zk:a:1", loadBalancerEnabled="false", **changes))


def test_avg_shedder_as_placement_needs_the_shedding_strategy():
    name = "org.apache.pulsar.broker.loadbalance.impl.AvgShedder"
    where = {"metadataStoreUrl": "zk:a:1"}
    cluster_services(loaded(loadBalancerLoadSheddingStrategy=name, **where))
    cluster_services(loaded(loadBalancerLoadSheddingStrategy=name, loadBalancerLoadPlacementStrategy=name, **where))
    with pytest.raises(ValueError, match=r"AvgShedder.*ThresholdShedder.*loadBalancerLoadSheddingStrategy"):
        cluster_services(loaded(loadBalancerLoadPlacementStrategy=name, **where))
