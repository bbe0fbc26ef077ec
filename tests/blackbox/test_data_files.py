"""The files of the broker's process, and the files that it accepts."""

import os
import pathlib
import stat

import pulsar
import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.clients import quiet_client
from tests.blackbox.raw import RawPeer, send


def test_every_file_is_for_the_user_of_the_broker_alone(magnetar_broker_factory):
    before = os.umask(0)  # the most open mask that a service manager can set
    try:
        broker = magnetar_broker_factory()
    finally:
        os.umask(before)
    client = quiet_client(broker.url)
    consumer = client.subscribe("private", "sub", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer("private")
    for number in range(100):
        producer.send(b"%d" % number)
    consumer.acknowledge(consumer.receive(20_000))
    client.close()
    files = [broker.data_dir, *broker.data_dir.rglob("*")]
    broker.stop()
    files += broker.data_dir.rglob("*")
    assert any(file.name.startswith("metadata") for file in files)
    for file in filter(pathlib.Path.exists, files):
        assert not stat.S_IMODE(file.stat().st_mode) & 0o077, file


def test_publishes_stop_above_the_disk_usage_threshold_and_consumers_go_on(magnetar_broker_factory):
    broker = magnetar_broker_factory(brokerDeleteInactiveTopicsEnabled=False)
    client = quiet_client(broker.url)
    client.subscribe("nearly-full", "sub").close()
    client.create_producer("nearly-full").send(b"kept")
    client.close()
    broker.stop()
    used = os.statvfs(broker.data_dir)
    if used.f_bfree / used.f_blocks > 0.98:
        pytest.skip("a disk that is nearly empty is above no threshold")
    broker._settings["diskUsageThreshold"] = 0.01
    broker.start()
    consumer = quiet_client(broker.url).subscribe("nearly-full", "sub")
    assert consumer.receive(20_000).data() == b"kept"
    peer = RawPeer(broker.url)
    peer.producer("nearly-full")
    peer.write(send(1, 0))
    refused = peer.receive()
    assert refused.type == pb.BaseCommand.SEND_ERROR
    assert refused.send_error.error == pb.PersistenceError
    assert "diskUsageThreshold" in refused.send_error.message
    broker.stop()
    del broker._settings["diskUsageThreshold"]
    broker.start()
    peer = RawPeer(broker.url)
    peer.producer("nearly-full")
    peer.write(send(1, 0))
    assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT
    broker.stop()
