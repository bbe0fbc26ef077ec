"""Acknowledged parts of batches while a bookie is away: the kill of an owner that could create no cursor ledger."""

from __future__ import annotations

import time
import uuid

import pulsar
import pytest
from kazoo.client import KazooClient

from tests.cluster.broker_processes import Member, connect, initialize
from tests.cluster.conftest import LONG
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
BATCHES, OF_BATCH = 5, 10
QUIET_S = 3.0
"""The broker saves acknowledgements without receipts a second after they came."""


def publish(client, topic):
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=OF_BATCH, batching_max_publish_delay_ms=10_000
    )
    for number in range(BATCHES * OF_BATCH):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    producer.close()


def subscribe(client, topic):
    return client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest, batch_index_ack_enabled=True)


def numbers(consumer, count):
    return {int(each.data()): each for each in (consumer.receive(30_000) for _ in range(count))}


def test_parts_survive_the_kill_of_an_owner_that_lacked_a_bookie(cluster, tmp_path):
    initialize(cluster)
    member = Member(tmp_path, "p1", cluster.zookeeper)
    topic = f"persistent://public/default/{uuid.uuid4().hex}"
    registered = KazooClient(cluster.zookeeper)
    registered.start(30)
    try:
        client = connect(member.start())
        subscribe(client, topic).close()
        publish(client, topic)
        client.close()
        cluster.kill("b3")
        wait_for(lambda: len(registered.get_children("/ledgers/available")) == 3, 60, "the end of the bookie's session")
        member.kill()
        client = connect(member.start())
        consumer = subscribe(client, topic)
        for number, message in numbers(consumer, BATCHES * OF_BATCH).items():
            if number % 2:
                consumer.acknowledge(message)
        time.sleep(QUIET_S)
        member.kill()
        member.start()
        client.close()
        client = connect(member)
        again = numbers(subscribe(client, topic), BATCHES * OF_BATCH // 2)
        assert set(again) == set(range(0, BATCHES * OF_BATCH, 2))
        client.close()
    finally:
        member.end()
        registered.stop()
        registered.close()
        cluster.start("b3")
