"""`magnetar kafka import` against a running broker: exactly once, also after kills.

`MAGNETAR_CRASH_LONG=1` kills 60 times instead of 6.
"""

import base64
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time

import pulsar
import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.clients import quiet_client
from tests.blackbox.kafka_files import SEGMENT, data_records, segment, stored_records
from tests.blackbox.raw import RawPeer
from tests.broker.admin.test_admin_security import KEY, token
from tests.broker.admin.test_admin_server import Certificates
from tests.waiting import wait_for

TOPIC = "persistent://public/default/orders"
KILLS = 60 if os.environ.get("MAGNETAR_CRASH_LONG") else 6
SMALL = segment(60_000)


class Importer:
    """`magnetar kafka import` as a process."""

    def __init__(self, broker, path, *options, topic=TOPIC):
        command = [sys.executable, "-m", "magnetar", "kafka", "import", str(path), "--topic", topic, "--json"]
        command += ["--service-url", broker.url, "--admin-url", broker.http, *options]
        # A test run in the background ignores SIGINT, and a child inherits that.
        command = ["env", "--default-signal=INT", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait(self, timeout=60):
        """(exit code, report, output)."""
        out, said = self.process.communicate(timeout=timeout)
        return self.process.returncode, json.loads(out), said

    def kill(self):
        self.process.kill()
        self.process.communicate()


def run(broker, path, *options, **names):
    return Importer(broker, path, *options, **names).wait()


@pytest.fixture
def file(tmp_path):
    """Write a segment of a partition's directory: file(data) -> path."""

    def write(data, name=SEGMENT, folder="orders-0"):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return path

    return write


def deduplicating(new_broker, **settings):
    return new_broker(brokerDeduplicationEnabled="true", **settings)


def stats(broker, topic=TOPIC):
    return json.loads(broker.admin("GET", f"/admin/v2/{topic.replace('://', '/', 1)}/stats"))


def wait_growth(broker, importer):
    """Return when the importer has stored messages, or has ended."""
    before = None

    def grown():
        nonlocal before
        if importer.process.poll() is not None:
            return True
        now = stats(broker)["msgInCounter"]
        before = now if before is None else before
        return now > before

    wait_for(grown, subject="growth of the topic", ignoring=OSError)  # the topic may not be there yet


def test_a_segment_is_stored_as_it_is_and_only_once(new_broker, file):
    broker = deduplicating(new_broker)
    path = file(SMALL)
    code, report, said = run(broker, path)
    assert code == 0, said
    expected = data_records(SMALL)
    assert stored_records(broker, TOPIC) == expected
    assert report["files"][0]["messages"] == len(expected) == stats(broker)["msgInCounter"]
    code, report, said = run(broker, path)
    assert (code, report["files"][0]["entries"]) == (0, 0)
    assert "going on" in said
    assert len(stored_records(broker, TOPIC)) == len(expected)


def test_a_file_that_grew_and_more_files(new_broker, file):
    broker = deduplicating(new_broker)
    half = SMALL[: len(SMALL) // 2]
    path = file(half)
    code, report, said = run(broker, path)
    assert code == 1
    assert f"position {report['files'][0]['torn_at']} " in said
    file(SMALL)
    other = segment(20_000, seed=2)
    file(other, name="00000000000000009999.log")
    code, report, said = run(broker, path.parent)  # the directory: its segments by name
    assert (code, len(report["files"])) == (0, 2), said
    assert stored_records(broker, TOPIC) == data_records(SMALL) + data_records(other)


def test_batches_as_producers_send_them(new_broker, file):
    """Offsets begin again with every record set, so the import counts its progress in positions."""
    broker = deduplicating(new_broker)
    data = segment(9_000, seed=3) + segment(9_000, seed=4)
    path = file(data, name="produced.bin")
    for _ in range(2):
        assert run(broker, path)[0] == 0
    assert stored_records(broker, TOPIC) == data_records(data)
    code, _, said = run(broker, path, "--sequence-ids", "offset", topic=f"{TOPIC}-2")
    assert code == 1
    assert "--sequence-ids position" in said


@pytest.mark.timeout(120 + 60 * KILLS)
def test_killed_at_random_points_nothing_is_lost_or_twice(new_broker, file):
    """kill -9 of the importer, then of the broker, wherever they are: the topic ends with every record once, in order."""
    chance = random.Random(7)
    broker = deduplicating(new_broker)
    broker.admin("POST", "/admin/v2/namespaces/public/default/deduplicationSnapshotInterval", b"1")
    data = segment(12_000_000, value_bytes=2_000)
    path, expected = file(data), data_records(data)
    # Slow enough to be met at work, on a busy machine as well: twelve seconds for the file.
    limit = {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": 1_000_000}
    broker.admin("POST", "/admin/v2/namespaces/public/default/publishRate", json.dumps(limit).encode())
    in_the_middle, done = 0, 0
    for kill in range(KILLS):
        importer = Importer(broker, path)
        if kill % 4 != 3:  # else anywhere, also while it starts
            wait_growth(broker, importer)
        time.sleep(chance.uniform(0.0, 0.6))
        if kill % 3 == 2:
            broker.kill()
            broker.start()
            time.sleep(chance.uniform(0.0, 0.6))
        importer.kill()
        before, done = done, len(stored_records(broker, TOPIC))
        in_the_middle += before < done < len(expected)
    assert in_the_middle > 0, "no kill met an import at work"
    broker.admin("DELETE", "/admin/v2/namespaces/public/default/publishRate")
    code, report, said = run(broker, path)
    assert code == 0, said
    assert report["files"][0]["complete"]
    assert stored_records(broker, TOPIC) == expected


def test_a_broker_that_restarts_meanwhile(new_broker, file):
    """The import continues without a new command."""
    broker = deduplicating(new_broker)
    limit = {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": 2_000_000}
    broker.admin("POST", "/admin/v2/namespaces/public/default/publishRate", json.dumps(limit).encode())
    data = segment(4_000_000, value_bytes=2_000)
    importer = Importer(broker, file(data))
    wait_growth(broker, importer)
    broker.kill()
    time.sleep(0.3)
    broker.start()
    broker.admin("DELETE", "/admin/v2/namespaces/public/default/publishRate")
    code, report, said = importer.wait()
    assert code == 0, said
    assert "trying again" in said
    assert stored_records(broker, TOPIC) == data_records(data)


def test_without_deduplication_nothing_is_stored(new_broker, file):
    broker = new_broker()
    path = file(SMALL)
    code, _, said = run(broker, path)
    assert code == 78
    assert "--enable-deduplication" in said
    assert stored_records(broker, TOPIC) == []
    code, _, said = run(broker, path, "--admin-url", "http://127.0.0.1:1")
    assert code == 78
    assert "--assume-deduplication" in said
    assert stored_records(broker, TOPIC) == []
    assert run(broker, path, "--enable-deduplication")[0] == 0
    assert run(broker, path)[0] == 0
    assert stored_records(broker, TOPIC) == data_records(SMALL)


def test_a_false_assumption_is_found_out_and_mended(new_broker, file):
    broker = new_broker()
    path = file(SMALL)
    code, _, said = run(broker, path, "--assume-deduplication")
    assert code == 78
    assert "does not deduplicate" in said
    assert run(broker, path, "--enable-deduplication")[0] == 0  # finds the first entry in the topic
    assert stored_records(broker, TOPIC) == data_records(SMALL)


def test_a_true_assumption(new_broker, file):
    broker = deduplicating(new_broker)
    code, _, said = run(broker, file(SMALL), "--assume-deduplication", "--admin-url", "http://127.0.0.1:1")
    assert code == 0, said
    assert stored_records(broker, TOPIC) == data_records(SMALL)


def test_a_name_the_broker_has_forgotten_is_found_in_the_topic(new_broker, file):
    """Brokers forget producers that are away for hours; switching deduplication off and on forgets at once."""
    broker = new_broker()
    path = file(SMALL[: len(SMALL) // 2])
    assert run(broker, path, "--enable-deduplication", "--on-damage", "skip")[0] == 0
    policy = f"/admin/v2/{TOPIC.replace('://', '/', 1)}/deduplicationEnabled"
    broker.admin("POST", policy, b"false")
    peer = RawPeer(broker.url)
    assert peer.producer(TOPIC, producer_name="other").producer_success.last_sequence_id == -1
    peer.close()
    file(SMALL)
    code, report, said = run(broker, path, "--enable-deduplication")
    assert code == 0, said
    assert report["files"][0]["resumed_after"] > 0
    assert stored_records(broker, TOPIC) == data_records(SMALL)


def test_damage_is_named_and_left_out_when_asked(new_broker, file):
    broker = deduplicating(new_broker)
    first, second, third = segment(9_000, seed=5), segment(9_000, seed=6), segment(9_000, seed=7)
    damaged = bytearray(first + second + third)
    at = len(first) + 8  # the size of a batch: the frame is broken
    damaged[at : at + 4] = b"\x00\x00\x00\x01"
    damaged[len(damaged) - 1] ^= 1  # and the last checksum is wrong
    path = file(damaged, name="damaged.bin")
    code, report, said = run(broker, path)
    assert code == 1
    assert f"damage at position {len(first)}:" in said
    assert stored_records(broker, TOPIC) == data_records(first)
    code, report, said = run(broker, path, "--on-damage", "skip")
    assert code == 0, said
    assert report["files"][0]["damage"][0]["position"] == len(first)
    assert len(report["files"][0]["damage"]) == 2
    stored = stored_records(broker, TOPIC)
    whole = data_records(first) + data_records(second) + data_records(third)
    assert 0 < len(whole) - len(stored) < 90
    left = iter(whole)
    assert all(record in left for record in stored), "in order, and nothing that was not there"


def test_a_dry_run_needs_no_broker(broker, file):
    code, report, _ = run(broker, file(SMALL), "--dry-run", "--check-records", "--service-url", "pulsar://127.0.0.1:1")
    assert (code, report["files"][0]["messages"]) == (0, len(data_records(SMALL)))


def test_faulty_options_are_reported(broker, file, tmp_path):
    path = file(SMALL)
    for code, text, arguments in [
        (66, "no Kafka record batch", [file(b"", name="empty.log")]),
        (66, "No such file", [tmp_path / "absent.log"]),
        (66, "is no service URL", [path, "--service-url", "http://127.0.0.1"]),
        (66, "persistent", [path, "--topic", "non-persistent://public/default/x"]),
        (69, "run the same command again", [path, "--service-url", "pulsar://127.0.0.1:1", "--retry-seconds", "0"]),
        (77, "TopicNotFound", [path, "--topic", "persistent://public/absent/x"]),
    ]:
        found, _, said = run(broker, *arguments)
        assert (found, text in said) == (code, True), said


def test_a_partitioned_topic_wants_one_partition(broker, file):
    broker.admin("PUT", "/admin/v2/persistent/public/default/parted/partitions", b"2")
    code, _, said = run(broker, file(SMALL), topic="parted")
    assert code == 66
    assert "parted-partition-N" in said
    code, _, said = run(broker, file(SMALL), "--enable-deduplication", topic="parted-partition-1")
    assert code == 0, said
    assert stored_records(broker, "persistent://public/default/parted-partition-1") == data_records(SMALL)


def test_two_imports_of_one_file_at_once(new_broker, file):
    """The name belongs to one importer at a time; the other waits for the name and finds all records stored."""
    broker = deduplicating(new_broker)
    path = file(SMALL)
    both = [Importer(broker, path) for _ in range(2)]
    assert [each.wait()[0] for each in both] == [0, 0]
    assert stored_records(broker, TOPIC) == data_records(SMALL)


def test_entries_larger_than_the_broker_takes(new_broker, file):
    broker = deduplicating(new_broker, maxMessageSize=4_000)
    path = file(SMALL)
    code, _, said = run(broker, path)
    assert code == 1
    assert "maxMessageSize" in said
    code, report, _ = run(broker, path, "--on-damage", "skip")
    assert code == 0
    assert report["files"][0]["damage"]


def test_ids_reach_the_broker(new_broker, file):
    broker = deduplicating(new_broker)
    _, report, _ = run(broker, file(SMALL))
    peer = RawPeer(broker.url)
    found = peer.producer(TOPIC, producer_name=report["files"][0]["producer"])
    peer.close()
    assert found.producer_success.last_sequence_id == data_records(SMALL)[-1].offset
    assert found.type == pb.BaseCommand.PRODUCER_SUCCESS


def test_every_pulsar_client_reads_imported_records(new_broker, file):
    broker = deduplicating(new_broker, messageConverters="kafka")
    assert run(broker, file(SMALL))[0] == 0
    expected = data_records(SMALL)
    client = quiet_client(broker.url)
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    got = [reader.read_next(10_000) for _ in expected]
    assert not reader.has_message_available()
    client.close()
    assert [message.data() for message in got] == [record.value for record in expected]
    assert [base64.b64decode(message.partition_key()) for message in got] == [record.key for record in expected]
    assert [message.event_timestamp() for message in got] == [max(record.timestamp, 0) for record in expected]
    assert got[-1].properties() == {name: value.decode() for name, value in expected[-1].headers if name != "bin"} | (
        {"bin": "/wA=", "__kafka.header.b64": "1"} if expected[-1].headers else {}
    )


def test_over_tls_with_a_token_and_rights(new_broker, file, tmp_path):
    certificates = Certificates(tmp_path)
    certificate, key = certificates.make("localhost")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    broker = new_broker(
        webServicePort="",
        brokerServicePortTls=port,
        webServicePortTls=0,
        advertisedAddress="localhost",
        tlsCertificateFilePath=certificate,
        tlsKeyFilePath=key,
        authenticationEnabled="true",
        authorizationEnabled="true",
        authenticationProviders="token",
        tokenSecretKey="data:;base64," + base64.b64encode(KEY).decode(),
        superUserRoles="admin",
        brokerDeduplicationEnabled="true",
    )
    path, secret = file(SMALL), tmp_path / "token"
    assert broker.http.startswith("https://")
    common = ["--token", f"file:{secret}", "--service-url", f"pulsar+ssl://localhost:{port}"]
    trusted = [*common, "--tls-trust-certs", certificates.authority[0]]
    secret.write_text(token("admin") + "\n")
    code, _, said = run(broker, path, *common)
    assert (code, "--tls-trust-certs" in said) == (69, True), said
    code, report, said = run(broker, path, *trusted)
    assert code == 0, said
    assert report["files"][0]["messages"] == len(data_records(SMALL))
    secret.write_text(token("nobody"))
    code, _, said = run(broker, path, *trusted)
    assert (code, "AuthorizationError" in said) == (77, True), said
    code, _, said = run(broker, path, *common, "--tls-allow-insecure", "--token", "nonsense")
    assert (code, "AuthenticationError" in said) == (77, True), said


def test_the_example_of_the_documentation_runs(broker, tmp_path):
    page = pathlib.Path(__file__).parents[2] / "docs" / "features" / "converters.md"
    section = page.read_text().split("## Importing a Kafka log file")[1]
    script = re.search(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE).group(1)
    promised = re.search(r"^```\n\n((?:    .*\n)+)", section, re.MULTILINE).group(1)
    here = f"--topic orders --service-url {broker.url} --admin-url {broker.http}"
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script.replace("--topic orders", here)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        check=True,
    )
    assert done.stdout.splitlines() == [line.strip() for line in promised.splitlines()]


def test_interrupted_by_the_keyboard(new_broker, file):
    broker = deduplicating(new_broker)
    limit = {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": 1_000_000}
    broker.admin("POST", "/admin/v2/namespaces/public/default/publishRate", json.dumps(limit).encode())
    data = segment(8_000_000, value_bytes=2_000)
    importer = Importer(broker, file(data))
    wait_growth(broker, importer)
    importer.process.send_signal(signal.SIGINT)
    code, report, said = importer.wait()
    assert (code, report["files"][0]["complete"]) == (130, False)
    assert "run the same command again" in said
    stored = stored_records(broker, TOPIC)
    assert stored == data_records(data)[: len(stored)]
    assert 0 < len(stored) < len(data_records(data))
    assert report["files"][0]["messages"] <= len(stored)


def durable_subscriptions(broker, topic=TOPIC):
    return [name for name, each in stats(broker, topic)["subscriptions"].items() if each["isDurable"]]


def test_records_of_aborted_kafka_transactions_are_left_out(new_broker):
    """The log of a real Kafka 4.1; the expected records are those that Kafka's own consumers read."""
    folder = pathlib.Path(__file__).parents[1] / "vectors" / "kafka_transactions"
    expected = json.loads((folder / "expected.json").read_text())
    broker = deduplicating(new_broker)
    code, report, said = run(broker, folder)
    assert code == 75, said
    assert report["files"][-1]["waits_at"] == 0
    assert [record.offset for record in stored_records(broker, TOPIC)] == [row[0] for row in expected["read_committed"]]
    assert run(broker, folder, "--isolation-level", "read_uncommitted", topic=f"{TOPIC}-all")[0] == 0
    everything = [record.offset for record in stored_records(broker, f"{TOPIC}-all")]
    assert everything == [row[0] for row in expected["read_uncommitted"]]


def test_an_import_protects_its_entries_from_trimming(new_broker, file):
    """A topic that nothing keeps is deleted once it is inactive; the import makes a subscription that keeps it."""
    broker = deduplicating(new_broker, brokerDeleteInactiveTopicsFrequencySeconds=1, messageConverters="kafka")
    code, report, said = run(broker, file(SMALL))
    assert code == 0, said
    assert "kafka-import" in report["files"][0]["kept_by"]
    assert f"importing into {TOPIC} at {broker.url}" in said
    assert durable_subscriptions(broker) == ["kafka-import"]
    code, report, said = run(broker, file(SMALL), "--protect", "none", topic=f"{TOPIC}-lost")
    assert code == 0, said
    assert report["files"][0]["kept_by"] is None
    assert "warning" in said
    with contextlib.suppress(OSError):
        wait_for(lambda: not stats(broker, f"{TOPIC}-lost"), 40, "deletion of the unprotected topic", every=0.2)
    client = quiet_client(broker.url)
    consumer = client.subscribe(TOPIC, "kafka-import", consumer_type=pulsar.ConsumerType.Shared)
    consumer.receive(10_000)
    client.close()
    assert len(stored_records(broker, TOPIC)) == len(data_records(SMALL))


def test_retention_keeps_it_as_well(new_broker, file):
    broker = deduplicating(new_broker)
    code, report, said = run(broker, file(SMALL), "--protect", "retention")
    assert code == 0, said
    assert "retention" in report["files"][0]["kept_by"]
    assert durable_subscriptions(broker) == []
    _, report, _ = run(broker, file(SMALL, name="00000000000000009999.log"))
    assert report["files"][0]["kept_by"] == "the retention policy (no limits)"
    assert durable_subscriptions(broker) == []


def test_no_topic_is_created_to_be_refused(new_broker, file):
    broker = new_broker()
    assert run(broker, file(SMALL))[0] == 78
    assert run(broker, file(SMALL), "--admin-url", "http://127.0.0.1:1")[0] == 78
    assert json.loads(broker.admin("GET", "/admin/v2/persistent/public/default")) == []


def test_no_partitioned_topic_is_created_by_the_question_for_partitions(new_broker, file):
    broker = new_broker(allowAutoTopicCreationType="partitioned", defaultNumPartitions=4)
    assert run(broker, file(SMALL), "--enable-deduplication")[0] == 0
    assert json.loads(broker.admin("GET", "/admin/v2/persistent/public/default/partitioned")) == []
