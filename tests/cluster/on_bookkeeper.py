"""The conformance scenarios and the official client's black-box tests with the messages in a real BookKeeper.

    python -m tests.cluster.on_bookkeeper conformance [ARGUMENTS OF PYTEST]
    python -m tests.cluster.on_bookkeeper blackbox [ARGUMENTS OF PYTEST]
    python -m tests.cluster.on_bookkeeper sample

Arguments that name test files of `tests/blackbox` replace the whole folder. SIGTERM ends the tests and the services.

The broker is a member of a cluster of one: a real ZooKeeper, three real bookies, every entry on all of them (E3 W3 A2).
Tests of features that only a data directory has (damage, backup, files, its start) are left out.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import uuid

from kazoo.client import KazooClient

from tests.cluster.broker_processes import Member, initialize
from tests.cluster.real_cluster import RealCluster, missing

__all__ = ["ZOOKEEPER", "fresh"]

ZOOKEEPER = "MAGNETAR_TESTS_ZOOKEEPER"
"""Variable of the environment: brokers of `tests/blackbox` are members of the cluster whose ZooKeeper this is."""
SKIPPED = "MAGNETAR_TESTS_SKIPPED"
"""Variable of the environment: tests whose broker finds the cluster taken write their names into this file."""
HERE = pathlib.Path(__file__).resolve().parent
CONFORMANCE = HERE.parent / "conformance"
BLACKBOX = HERE.parent / "blackbox"
ELSEWHERE = {
    "test_backup": "images of a data directory",
    "test_damaged_directory": "a data directory",
    "test_data_files": "its files",
    "test_docs_run": "pages about `magnetar standalone`",
    "test_restore_until": "images of a data directory",
    "test_start": "the start of `magnetar standalone`",
    "test_storage_faults": "a disk that fails",
    "test_turn_counts": "turns of the embedded engine",
}
"""Black-box tests of the embedded engine, and their subjects."""
ELSEWHERE_ALONE = ["tests/blackbox/test_prometheus.py::test_a_full_disk_and_messages_reach_prometheus"]
"""Single tests of the embedded engine: the broker of a cluster has no data directory whose disk is full."""
OTHERWISE = {
    "topic_policy_persistence": "three copies of an entry are this cluster's default",
    "topic_policy_persistence_for_all_clusters": "the same",
    "topic_policies_with_applied_values": "the same",
    "levels_of_persistence": "the same",
    "global_and_local_persistence": "the same",
    "settings_in_force_name_every_key": "isRunningStandalone is false",
    "brokers_asked_about_themselves": "public/default has other bundles",
    "bundle_of_a_topic_and_its_hash": "the same",
    "bookie_affinity_of_a_namespace_that_is_looked_at": "a request about a topic finds the owner of its bundle first",
    "partitions_of_no_topic_may_not_be_used": "before a lookup the topic's bundle has no owner: ServiceNotReady, as there",
    "base_of_partitions_where_no_topic_may_be_made": "the same",
    "creation_override_partitioned_3_by_requests": "the same",
    "creation_override_off_by_requests": "the same",
    "ws_pattern_partitions": "the same, and a WebSocket session serves topics of its broker",
    "producers_of_odd_names": "ZooKeeper has no nodes called . and ..",
    "consumers_of_odd_names": "the same",
    "schemas_of_odd_names": "the same",
}
"""Scenarios whose recordings, made with a standalone broker, do not hold in a cluster."""
KEPT = ("zookeeper", "ledgers")
EVERY = {"default": "not security", "auth": "security"}
SAMPLE = {"default": "wire_publish or wire_backlog"}


class Address:
    """The part of a cluster that ``initialize`` uses."""

    def __init__(self, zookeeper):
        self.zookeeper = zookeeper


def fresh(zookeeper, name="c1"):
    """Delete all metadata except those of the bookies, and initialize the cluster of this name again."""
    client = KazooClient(zookeeper)
    client.start(30)
    for node in client.get_children("/"):
        if node not in KEPT:
            client.delete(f"/{node}", recursive=True)
    client.stop()
    client.close()
    initialize(Address(zookeeper), name)


def settings_of(path):
    lines = (line.partition("=") for line in path.read_text().splitlines() if line and not line.startswith("#"))
    found = {key: value for key, _, value in lines}
    if found.get("authenticationEnabled") == "true":  # brokers of a cluster prove themselves to each other
        secret = base64.b64decode(found["tokenSecretKey"].rpartition(",")[2])
        found["brokerClientAuthenticationPlugin"] = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        found["brokerClientAuthenticationParameters"] = f"token:{token(secret, 'admin')}"
    return found


def token(secret, subject):
    """Signed with HS256."""

    def text(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    signed = text(b'{"alg":"HS256"}') + b"." + text(b'{"sub":"%s"}' % subject.encode())
    return (signed + b"." + text(hmac.digest(secret, signed, "sha256"))).decode()


def conformance(cluster, directory, arguments, chosen_of):
    """Run the conformance scenarios. ``chosen_of``: profile -> pytest expression that selects its scenarios."""
    code = 0
    for profile, chosen in chosen_of.items():
        settings = settings_of(CONFORMANCE / f"{profile}.conf")
        fresh(cluster.zookeeper, settings["clusterName"])
        member = Member(directory, f"{profile}-{uuid.uuid4().hex[:4]}", cluster.zookeeper, **settings)
        try:
            member.start()
            environment = {f"MAGNETAR_CONFORMANCE_{profile.upper()}": f"{member.url} {member.http}"}
            if profile == "default":
                environment["MAGNETAR_CONFORMANCE_QUOTAS"] = environment["MAGNETAR_CONFORMANCE_DEFAULT"]
            environment["MAGNETAR_CONFORMANCE_CLUSTER"] = "1"
            tests = f"{CONFORMANCE / 'test_conformance.py'}::test_log_is_as_recorded"
            left_out = " and ".join(f"not {name}" for name in OTHERWISE)
            code |= pytest([tests, "-k", f"({chosen}) and {left_out}", *arguments], environment)
            code |= member.terminate()
        finally:
            member.end()
    return code


def blackbox(tests, cluster, directory, arguments):
    """Run the black-box tests. Tests whose broker finds the cluster taken by another fixture's broker run again alone."""
    left_out = [f"--ignore={BLACKBOX / name}.py" for name in ELSEWHERE]
    left_out += [f"--deselect={name}" for name in ELSEWHERE_ALONE]
    code, names = 0, directory / "skipped"
    while True:
        names.write_text("")
        code |= pytest([*tests, *left_out, *arguments], {ZOOKEEPER: cluster.zookeeper, SKIPPED: str(names)})
        skipped = names.read_text().splitlines()
        if not skipped:
            return code
        if set(skipped) == set(tests):
            print("without a broker to themselves:", *skipped)
            return code or 1
        tests = skipped


def pytest(arguments, environment):
    """Run pytest and return its exit code; when an exception interrupts the wait, kill every process of the tests."""
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    with subprocess.Popen(command, env=os.environ | environment, start_new_session=True) as tests:
        try:
            return tests.wait()
        finally:
            if tests.poll() is None:
                os.killpg(tests.pid, signal.SIGKILL)


def end(*_):
    """Handle SIGTERM: exit through all ``with`` blocks, each of which ends its own processes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def main(what, *arguments):
    signal.signal(signal.SIGTERM, end)
    if (reason := missing()) is not None:
        print(reason)
        return int(os.environ.get("CI") == "true")
    with tempfile.TemporaryDirectory(prefix="magnetar-cluster-") as name, contextlib.ExitStack() as stack:
        directory = pathlib.Path(name)
        cluster = RealCluster(directory / "bk")
        stack.callback(cluster.down)
        cluster.up(3)
        code = 0
        if what in ("conformance", "sample"):
            code |= conformance(cluster, directory, arguments, SAMPLE if what == "sample" else EVERY)
        if what == "blackbox":
            files = [each for each in arguments if each.endswith(".py")]
            others = [each for each in arguments if each not in files]
            code |= blackbox(files or [str(BLACKBOX)], cluster, directory, others)
        if what == "sample":
            code |= blackbox([str(BLACKBOX / "test_publish_and_consume.py")], cluster, directory, arguments)
        return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
