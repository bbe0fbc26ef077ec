"""The nodes of `magnetar initialize-cluster-metadata`, compared with those of Apache Pulsar 4.2.4."""

import argparse
import json

import pytest

from magnetar.broker.clustering.initialize import add_arguments, cluster_nodes, merged, run_initialize
from tests.storage.pulsar_layout.golden_nodes import node

ARGUMENTS = (
    *("--cluster", "c1", "--metadata-store", "zk:a:1", "--configuration-metadata-store", "zk:a:1"),
    *("--web-service-url", "http://127.0.0.1:9081", "--broker-service-url", "pulsar://127.0.0.1:9651"),
    *("--existing-bk-metadata-service-uri", "zk+null://a:1/ledgers"),
)


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def test_the_nodes_are_those_of_pulsars_command():
    nodes = cluster_nodes(parsed(*ARGUMENTS))
    assert nodes.pop("/bookies") == b"{}"
    for path, value in nodes.items():
        ours, theirs = json.loads(value), json.loads(node("initialized", path))
        if path.startswith("/admin/clusters/"):
            assert ours.items() <= theirs.items()
        else:
            assert ours == theirs


def test_wrong_arguments_are_an_error_of_the_configuration(capsys):
    for wrong in (
        ("--metadata-store", "etcd:a"),
        ("--configuration-metadata-store", "zk:b:1"),
        ("--existing-bk-metadata-service-uri", "etcd://x/y"),
        ("--default-namespace-bundle-number", "1025"),
        ("--initial-num-transaction-coordinators", "0"),
        ("--configuration-metadata-store-config-path", "another"),
    ):
        assert run_initialize(parsed(*ARGUMENTS, *wrong)) == 78
        assert "magnetar: error: " in capsys.readouterr().err


def test_every_option_of_pulsars_command_stands_where_it_puts_it():
    options = ("-uw", "http://h:1", "-tw", "https://h:2", "-ub", "pulsar://h:3", "-tb", "pulsar+ssl://h:4", "-te")
    options += ("-pu", "pulsar+ssl://p:5", "-pp", "SNI", "--auth-plugin", "a.b.C", "--auth-parameters", "x:y")
    options += ("-bn", "4", "--initial-num-transaction-coordinators", "32")
    nodes = cluster_nodes(parsed("-c", "c2", "-md", "zk:a:1", *options))
    assert json.loads(nodes["/admin/clusters/c2"]) == {
        "serviceUrl": "http://h:1",
        "serviceUrlTls": "https://h:2",
        "brokerServiceUrl": "pulsar://h:3",
        "brokerServiceUrlTls": "pulsar+ssl://h:4",
        "proxyServiceUrl": "pulsar+ssl://p:5",
        "proxyProtocol": "SNI",
        "authenticationPlugin": "a.b.C",
        "authenticationParameters": "x:y",
        "brokerClientTlsEnabled": True,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
        "brokerClientTlsTrustStoreType": "JKS",
        "brokerClientTlsKeyStoreType": "JKS",
        "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    }
    namespaces = ("/admin/policies/public/default", "/admin/policies/pulsar/system")
    assert [json.loads(nodes[path])["bundles"]["numBundles"] for path in namespaces] == [4, 16]


def test_a_further_cluster_joins_existing_metadata_as_with_pulsars_command():
    first = cluster_nodes(parsed(*ARGUMENTS))
    second = cluster_nodes(parsed("-c", "c2", "-md", "zk:a:1", "--initial-num-transaction-coordinators", "32"))
    changed = {}
    for path, value in second.items():
        if path in first:
            found = merged(path, first[path], value)
            assert merged(path, found, value) == found
            if found != first[path]:
                changed[path] = json.loads(found)
    tenant = {"adminRoles": [], "allowedClusters": ["c1", "c2"]}
    assert changed.pop("/admin/policies/public") == changed.pop("/admin/policies/pulsar") == tenant
    assert changed.pop(max(first, key=len)) == {"partitions": 32, "deleted": False}
    for path in ("/admin/policies/public/default", "/admin/policies/pulsar/system"):
        assert changed.pop(path) == json.loads(first[path]) | {"replication_clusters": ["c1", "c2"]}
    assert not changed


def test_fewer_coordinators_and_other_addresses_change_nothing():
    first = cluster_nodes(parsed(*ARGUMENTS))
    again = cluster_nodes(parsed(*ARGUMENTS, "-uw", "http://x:1", "--initial-num-transaction-coordinators", "8"))
    assert all(merged(path, first[path], value) == first[path] for path, value in again.items())


@pytest.mark.parametrize(
    "stored",
    [
        *(b"", b"{", b"[]", b'{"allowedClusters":3}', b'{"allowedClusters":["\xff"]}'),
        pytest.param(b'{"unknown":' + b"[" * 100_000, id="deep"),
    ],
)
def test_a_node_that_cannot_be_read_is_named(stored):
    with pytest.raises(ValueError, match="/admin/policies/public cannot be read"):
        merged("/admin/policies/public", stored, b'{"allowedClusters":["c1"]}')
