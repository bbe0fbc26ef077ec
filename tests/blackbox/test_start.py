"""Start, stop and invalid settings: ports, exit codes, one broker per directory."""

import os
import signal
import subprocess
import sys
import time

import pulsar
import pytest

from magnetar.broker.shutdown import EXIT_NO_MEMORY
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.clients import quiet_client
from tests.blackbox.raw import RawPeer, send
from tests.waiting import wait_for

TOPIC = "persistent://public/default/start"


def run_standalone(data_dir, *settings, config=None, timeout=60):
    """A broker that is expected to refuse to start."""
    arguments = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(data_dir)]
    arguments += ["--config", str(config)] if config else []
    for each in ("brokerServicePort=0", "webServicePort=0", *settings):
        arguments += ["--set", each]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, check=False)


def test_from_nothing_to_the_first_durable_receipt(new_broker, record_property):
    began = time.monotonic()
    broker = new_broker()
    ready = time.monotonic() - began
    peer = RawPeer(broker.url)
    peer.producer(TOPIC)
    peer.write(send(1, 1))
    assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT
    receipt = time.monotonic() - began
    peer.close()
    record_property("ready_s", round(ready, 3))
    record_property("first_receipt_s", round(receipt, 3))
    print(f"ready after {ready * 1000:.0f} ms, first durable receipt after {receipt * 1000:.0f} ms")


@pytest.mark.parametrize("error", ["MemoryError()", 'RuntimeError("can\'t start new thread")'])
def test_a_start_without_memory_or_threads_gives_one_line(tmp_path, error):
    program = f"""
import sys
from magnetar.broker import cli
from magnetar.broker.broker import Broker

async def fails(*_arguments): raise {error}

Broker.start = fails
sys.exit(cli.main(["standalone", "--data-dir", {str(tmp_path)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_NO_MEMORY
    assert "Traceback" not in done.stderr
    assert "error: the system refuses memory or threads; raise the limits" in done.stderr


def test_a_second_broker_on_the_same_data_is_refused_without_harm(new_broker):
    broker = new_broker()
    client = quiet_client(broker.url)
    producer = client.create_producer(TOPIC)
    producer.send(b"before")
    second = run_standalone(broker.data_dir)
    assert second.returncode == 75
    assert str(broker.process.pid) in second.stderr
    assert str(broker.data_dir) in second.stderr
    assert "Traceback" not in second.stderr
    producer.send(b"after")
    client.close()
    broker.kill()
    broker.start()  # the lock of a killed broker has no owner
    assert broker.stop() == 0


def test_a_port_in_use_is_one_line(new_broker, tmp_path):
    broker = new_broker()
    port = broker.url.rpartition(":")[2]
    second = run_standalone(tmp_path / "other", f"brokerServicePort={port}")
    assert second.returncode == 71
    assert f"brokerServicePort: cannot listen on 127.0.0.1 port {port}: Address already in use" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_web_port_in_use_is_reported_and_clients_are_served(new_broker, tmp_path):
    port = new_broker().http.rpartition(":")[2]
    arguments = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(tmp_path / "other")]
    arguments += ["--set", "brokerServicePort=0", "--set", f"webServicePort={port}"]
    with open(tmp_path / "log", "wb") as log:
        second = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)
    ready = second.stdout.readline().split()
    RawPeer(ready[2]).close()
    assert ready[3] == "-"
    second.terminate()
    assert second.wait(20) == 0
    second.stdout.close()
    assert (
        f"webServicePort: cannot listen on 127.0.0.1 port {port}: Address already in use"
        in (tmp_path / "log").read_text()
    )


@pytest.mark.parametrize(("address", "words"), [("203.0.113.1", "an address of this machine"), ("no.invalid", "")])
def test_an_address_of_another_machine_is_reported_with_its_setting(tmp_path, address, words):
    refused = run_standalone(tmp_path / "data", f"bindAddress={address}")
    assert refused.returncode == 71
    assert f"cannot listen on {address} port 0: " in refused.stderr
    assert "bindAddress" in refused.stderr
    assert words in refused.stderr


def test_an_ipv6_address_in_brackets_is_reported_with_the_remedy(tmp_path):
    refused = run_standalone(tmp_path / "data", "bindAddress=[::1]")
    assert refused.returncode == 71
    assert "write an IPv6 address without brackets" in refused.stderr


@pytest.mark.parametrize(("output", "reason"), [("/dev/full", "No space left on device"), (None, "Broken pipe")])
def test_a_ready_line_that_cannot_be_printed_is_named(tmp_path, output, reason):
    arguments = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(tmp_path / "data")]
    arguments += ["--set", "brokerServicePort=0", "--set", "webServicePort=0"]
    if output is None:
        end, descriptor = os.pipe()
        os.close(end)
    else:
        descriptor = os.open(output, os.O_WRONLY)
    with os.fdopen(descriptor, "wb") as stdout:
        ended = subprocess.run(arguments, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert ended.returncode == 71
    assert f"magnetar: error: standard output, for the line `magnetar ready`: {reason}\n" in ended.stderr


def test_sigterm_tells_everyone_and_exits_0(new_broker):
    broker = new_broker()
    peer = RawPeer(broker.url)
    peer.producer(TOPIC, producer_id=1)
    peer.subscribe(TOPIC, consumer_id=2, permits=10)
    peer.write(send(1, 1))
    kinds = {peer.receive().type, peer.receive().type}
    assert kinds == {pb.BaseCommand.SEND_RECEIPT, pb.BaseCommand.MESSAGE}
    assert broker.stop() == 0
    said = []
    while (found := peer.receive()) is not None:
        said.append(found)
    assert {f.type for f in said} == {pb.BaseCommand.CLOSE_PRODUCER, pb.BaseCommand.CLOSE_CONSUMER}
    assert {f.close_producer.producer_id for f in said if f.HasField("close_producer")} == {1}
    assert {f.close_consumer.consumer_id for f in said if f.HasField("close_consumer")} == {2}
    peer.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_ends_it_at_once_and_without_a_traceback(tmp_path, number):
    (tmp_path / "slow.py").write_text(
        "import sys, time\n\nclass Slow:\n    def __init__(self):\n"
        "        print('waiting', flush=True)\n        time.sleep(60)\n"
    )
    arguments = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(tmp_path / "data")]
    arguments += ["--set", "brokerServicePort=0", "--set", "brokerEntryMetadataInterceptors=slow.Slow"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=45)
    assert process.returncode == -number
    assert "Traceback" not in said


def test_a_terminal_that_closes_stops_the_broker_in_order(new_broker):
    broker = new_broker()
    broker.process.send_signal(signal.SIGHUP)
    assert broker.wait_exit() == 0
    assert "broker.stopped" in broker.log_text()


def test_a_broker_without_a_terminal_stays(tmp_path):
    command = ["nohup", sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(tmp_path / "data")]
    command += ["--set", "brokerServicePort=0", "--set", "webServicePort=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        url = process.stdout.readline().split()[2]
        process.send_signal(signal.SIGHUP)
        client = quiet_client(url)
        client.create_producer(TOPIC).send(b"still here")
        client.close()
        process.terminate()
        assert process.wait(45) == 0


def test_a_broker_with_closed_standard_streams_gives_no_file_their_descriptors(tmp_path):
    command = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(tmp_path / "data")]
    command += ["--set", "brokerServicePort=0", "--set", "webServicePort=0"]
    ready = tmp_path / "data" / "journal"
    with subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]) as process:
        wait_for(lambda: process.poll() is not None or (ready.is_dir() and any(ready.iterdir())), 45, "the journal")
        held = [os.readlink(f"/proc/{process.pid}/fd/{each}") for each in range(3)]
        process.terminate()
        assert process.wait(45) in {0, -signal.SIGTERM}, "SIGTERM before the start is complete ends the process"
    assert held == ["/dev/null"] * 3


def test_a_second_interrupt_does_not_wait_for_the_stop(new_broker):
    broker = new_broker()
    peer = RawPeer(broker.url, receive_buffer=4096)  # never reads, so the stop waits for it
    peer.producer(TOPIC, producer_id=1)
    peer.subscribe(TOPIC, consumer_id=2)
    for number in range(50):
        peer.write(send(1, number, bytes(100_000)))
        assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT
    peer.flow(1000, consumer_id=2)
    broker.process.send_signal(signal.SIGINT)
    wait_for(lambda: "broker.stopping" in broker.log_text(), subject="the begin of the stop")
    broker.process.send_signal(signal.SIGINT)
    assert broker.wait_exit() == -signal.SIGINT
    broker.start()
    assert broker.stop() == 0
    peer.close()


def test_sigterm_in_the_middle_of_production_loses_nothing(new_broker):
    broker = new_broker()
    client = quiet_client(broker.url)
    consumer = client.subscribe(TOPIC, "sub")
    receipted = []
    producer = client.create_producer(TOPIC, block_if_queue_full=True, max_pending_messages=500)
    for number in range(5000):
        producer.send_async(
            b"%d" % number, lambda result, _, n=number: receipted.append(n) if result == pulsar.Result.Ok else None
        )
    assert broker.stop() == 0
    broker.start()
    producer.flush()
    assert len(receipted) == 5000
    got = [int(consumer.receive(10_000).data()) for _ in range(5000)]
    assert list(dict.fromkeys(got)) == sorted(set(got))
    client.close()


def test_a_stop_under_a_consumer_that_never_reads_still_ends(new_broker):
    broker = new_broker(brokerShutdownTimeoutMs=3000)
    peer = RawPeer(broker.url, receive_buffer=4096)
    peer.producer(TOPIC, producer_id=1)
    peer.subscribe(TOPIC, consumer_id=2)
    for number in range(50):
        peer.write(send(1, number, bytes(100_000)))
        assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT
    peer.flow(1000, consumer_id=2)
    time.sleep(0.3)
    began = time.monotonic()
    assert broker.stop() == 0
    print(f"stopped after {time.monotonic() - began:.2f} s")
    peer.close()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("maxMessageSize=12", ["maxMessageSize", "12", "1024"]),
        ("maxMessageSize=big", ["maxMessageSize", "'big'", "1024"]),
        ("brokerServicePort=70000", ["brokerServicePort", "70000", "65535"]),
        ("allowAutoTopicCreation=perhaps", ["allowAutoTopicCreation", "'perhaps'", "true", "false"]),
        ("allowAutoTopicCreationType=round", ["allowAutoTopicCreationType", "'round'", "partitioned"]),
        ("nonsense", ["key=value", "nonsense"]),
    ],
)
def test_a_value_that_cannot_be_used_names_key_value_and_range(tmp_path, setting, words):
    refused = run_standalone(tmp_path / "data", setting)
    assert refused.returncode == 78
    for word in words:
        assert word in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "data").exists()


def test_all_wrong_settings_are_reported_at_once_with_their_place(tmp_path):
    config = tmp_path / "broker.conf"
    config.write_text("# comment\nmaxMessageSize=12\nkeepAliveIntervalSeconds=0\n")
    refused = run_standalone(tmp_path / "data", config=config)
    assert refused.returncode == 78
    assert "line 2" in refused.stderr
    assert "line 3" in refused.stderr


def test_an_unknown_key_stops_the_start_with_the_nearest_name(tmp_path):
    refused = run_standalone(tmp_path / "data", "maxMesageSize=2048")
    assert refused.returncode == 78
    assert "unknown setting maxMesageSize; did you mean maxMessageSize?" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "data").exists()


def test_the_environment_is_below_the_command_line(new_broker):
    broker = new_broker(
        env={"PULSAR_PREFIX_maxMessageSize": "4096", "PULSAR_PREFIX_clusterName": "env"}, clusterName="line"
    )
    assert "line" in broker.admin("GET", "/admin/v2/clusters")
    client = quiet_client(broker.url)
    producer = client.create_producer(TOPIC, batching_enabled=False)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(bytes(5000))
    client.close()


def test_a_data_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    refused = run_standalone(tmp_path / "file" / "data")
    assert refused.returncode == 74
    assert f"magnetar: error: {tmp_path / 'file' / 'data'}: Not a directory\n" in refused.stderr
    assert "Traceback" not in refused.stderr
