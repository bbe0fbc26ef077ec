"""A user's interceptor in a broker process: the example of the documentation, and the effects of a bad interceptor."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.clients import quiet_client, read_all
from tests.blackbox.raw import RawPeer, command, frame

PULSAR = "org.apache.pulsar.common.intercept."
BOTH = f"{PULSAR}AppendBrokerTimestampMetadataInterceptor,{PULSAR}AppendIndexMetadataInterceptor"
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/features/entry-metadata.md"
TOPIC = "persistent://public/default/stamped"


@pytest.fixture
def modules(tmp_path):
    """The environment in which rack.py (from the page) and sour.py are found."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "rack.py").write_text(re.search(r'```python\n(""".*?)```', PAGE.read_text(), re.DOTALL).group(1))
    (folder / "sour.py").write_text(
        "class Sour:\n"
        "    calls = 0\n"
        "    def intercept(self, topic, entries):\n"
        "        Sour.calls += 1\n"
        "        if Sour.calls % 2:\n"
        "            raise KeyError(topic)\n"
        "        entries[0].add(3000, Sour.calls)\n"
    )
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def metadata_of(url, count):
    """The broker entry metadata of each entry, for a client that requests them."""
    peer = RawPeer(url, handshake=False)
    flags = pb.FeatureFlags(supports_broker_entry_metadata=True)
    peer.write(frame(command("CONNECT", "connect", client_version="raw", protocol_version=21, feature_flags=flags)))
    assert peer.receive().type == pb.BaseCommand.CONNECTED
    peer.subscribe(TOPIC, permits=10 * count)
    found = []
    while len(found) < count:
        data = peer._frame()
        after_command = 4 + int.from_bytes(data[:4], "big")
        if pb.BaseCommand.FromString(data[4:after_command]).type == pb.BaseCommand.MESSAGE:
            entry = data[after_command:]
            assert entry[:2] == b"\x0e\x02"
            found.append(pb.BrokerEntryMetadata.FromString(entry[6 : 6 + int.from_bytes(entry[2:6], "big")]))
    peer.close()
    return found


def publish(url, payloads, **options):
    client = quiet_client(url)
    producer = client.create_producer(TOPIC, **({"batching_enabled": False} | options))
    for payload in payloads:
        producer.send_async(payload, lambda *_: None)
    producer.flush()
    client.close()


def test_the_example_of_the_page(new_broker, modules):
    settings = {
        "brokerEntryMetadataInterceptors": f"{BOTH},rack.Rack",
        "exposingBrokerEntryMetadataToClientEnabled": "true",
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
    }
    broker = new_broker(env=modules, **settings)
    payloads = [b"m%d" % i for i in range(50)]
    publish(broker.url, payloads)
    publish(broker.url, [b"b%d" % i for i in range(10)], batching_enabled=True, batching_max_messages=10)
    broker.kill()
    broker.start()
    publish(broker.url, [b"last"])
    assert [data for _, data, _ in read_all(broker.url, TOPIC)] == [
        *payloads,
        *(b"b%d" % i for i in range(10)),
        b"last",
    ]
    found = metadata_of(broker.url, 52)
    assert [each.index for each in found] == [*range(50), 59, 60]
    assert all(each.broker_timestamp > 0 for each in found)
    host = os.uname().nodename.encode()
    assert all(host in each.SerializeToString() for each in found)
    assert broker.stop() == 0


def test_one_that_fails_loses_nothing(new_broker, modules):
    broker = new_broker(
        env=modules,
        brokerEntryMetadataInterceptors=f"sour.Sour,{BOTH}",
        defaultRetentionTimeInMinutes=-1,
        defaultRetentionSizeInMB=-1,
    )
    payloads = [b"m%d" % i for i in range(300)]
    publish(broker.url, payloads)
    assert [data for _, data, _ in read_all(broker.url, TOPIC)] == payloads
    assert broker.stop() == 0
    assert "interceptor.failed" in broker.log_text()


@pytest.mark.parametrize("name", ["rack.Missing", "nothing.here.Thing", "org.apache.pulsar.common.intercept.Other"])
def test_one_that_cannot_be_used_stops_the_start(tmp_path, modules, name):
    arguments = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(tmp_path / "data")]
    arguments += ["--set", f"brokerEntryMetadataInterceptors={name}", "--set", "brokerServicePort=0"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False, env=os.environ | modules)
    assert done.returncode == 78
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()
