"""A broker without the calls that only Linux has, as on macOS: `as_macos` takes these away. No test runs on a Mac."""

import contextlib
import os
import pathlib
import subprocess
import sys

import pytest

from tests.blackbox.clients import quiet_client
from tests.blackbox.foreign import kafka_entry, publish, vector_bytes

pytestmark = pytest.mark.blackbox
AS_MACOS = {"PYTHONPATH": str(pathlib.Path(__file__).parent / "as_macos")}
RECEIVE_MS = 60_000


def run(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "magnetar", *map(str, arguments)],
        env=os.environ | AS_MACOS | {"NO_COLOR": "1", "COLUMNS": "200"} | variables,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )


def sent_and_left(broker, topic, count):
    """Publish so many messages, receive them, acknowledge the first half."""
    with contextlib.closing(quiet_client(broker.url)) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
        for number in range(count):
            producer.send_async(b"%d" % number, lambda result, _id: None)
        producer.flush()
        for _ in range(count // 2):
            consumer.acknowledge(consumer.receive(RECEIVE_MS))
        consumer.close()


def received(broker, topic, last):
    """The messages up to the last."""
    with contextlib.closing(quiet_client(broker.url)) as client:
        consumer = client.subscribe(topic, "s")
        found = [int(consumer.receive(RECEIVE_MS).data())]
        while found[-1] != last:
            found.append(int(consumer.receive(RECEIVE_MS).data()))
        return found


@pytest.mark.parametrize("later", [AS_MACOS, {}])
def test_messages_survive_a_kill(new_broker, tmp_path, later):
    """The next broker runs as on macOS, or on Linux with the same files."""
    syncs = tmp_path / "syncs"
    broker = new_broker(env=AS_MACOS | {"SYNCS_FILE": str(syncs)})
    sent_and_left(broker, "a", 2000)
    assert syncs.stat().st_size > 2, "receipts wait for full syncs"
    broker.kill()
    broker = new_broker(env=later)
    found = received(broker, "a", 1999)
    assert found == list(range(found[0], 2000)), "a kill may bring back acknowledged messages"
    assert found[0] <= 1000
    assert broker.metrics("process_resident_memory_bytes") != 0
    assert '"cpu"' in broker.admin("GET", "/admin/v2/broker-stats/load-report")


def test_entries_are_converted(new_broker):
    broker = new_broker(env=AS_MACOS, messageConverters="kafka")
    with contextlib.closing(quiet_client(broker.url)) as client:
        consumer = client.subscribe("a", "s")
        publish(broker, "a", [kafka_entry(vector_bytes("java_m2_none_create"))])
        assert consumer.receive(RECEIVE_MS).data() is not None


def test_commands_run(new_broker, tmp_path):
    broker = new_broker(env=AS_MACOS)
    sent_and_left(broker, "a", 100)
    ran = run("backup", "--data-dir", broker.data_dir, tmp_path / "images")
    assert ran.returncode != 0
    assert "stop the broker first" in ran.stderr
    assert (
        "sync" in run("doctor", "--data-dir", broker.data_dir, "--url", broker.url, "--admin-url", broker.http).stdout
    )
    assert broker.stop() == 0
    assert run("verify", broker.data_dir).returncode == 0
    syncs = tmp_path / "syncs"
    made = run("backup", "--data-dir", broker.data_dir, tmp_path / "images", SYNCS_FILE=str(syncs))
    assert made.returncode == 0
    assert syncs.stat().st_size > 2, "an image is on the disk"
    restored = run("restore", tmp_path / "images", tmp_path / "data2")
    assert restored.returncode == 0, restored.stderr
    assert received(new_broker("data2", env=AS_MACOS), "a", 99) == list(range(50, 100))


def test_a_program_starts_a_broker():
    program = "import magnetar\nwith magnetar.start() as broker:\n    print(broker.url)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | AS_MACOS,
        text=True,
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert ran.stdout.startswith("pulsar://")
