"""The nodes of `magnetar initialize-cluster-metadata`, compared with those of Apache Pulsar 4.2.4."""

import argparse
import json

from magnetar.broker.clustering.initialize import add_arguments, cluster_nodes, run_initialize
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
        ("--default-namespace-bundle-number", "0"),
    ):
        assert run_initialize(parsed(*ARGUMENTS, *wrong)) == 78
        assert "magnetar: error: " in capsys.readouterr().err
