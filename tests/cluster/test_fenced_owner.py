"""A fenced writer notices the fence at once, and a broker gives up a topic that another owner has opened."""

from __future__ import annotations

import asyncio
import uuid

import pytest
import requests

from magnetar.bookkeeper.client import BookKeeper
from magnetar.bookkeeper.errors import LedgerFencedError
from magnetar.bookkeeper.options import LedgerOptions
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions
from tests.cluster.broker_processes import Member, connect, initialize
from tests.waiting import until, wait_for

pytestmark = pytest.mark.timeout(180)


def uri(cluster):
    return f"zk+hierarchical://{cluster.zookeeper}/ledgers"


async def test_a_writer_with_nothing_to_add_learns_of_a_recovery(cluster):
    async with await BookKeeper.connect(uri(cluster)) as old, await BookKeeper.connect(uri(cluster)) as new:
        writer = await old.create(LedgerOptions(3, 3, 2))
        await writer.append(b"a")
        untouched = await old.create(LedgerOptions(3, 3, 2))
        await new.recover(writer.ledger_id)
        await until(lambda: isinstance(writer.failure, LedgerFencedError), 30, "the end of the writer")
        assert untouched.failure is None


async def take_over(cluster, topic, ledger_id=None):
    """The first steps of another owner: recover the last ledger if it is open, then change the list of ledgers."""
    if ledger_id is not None:
        async with await BookKeeper.connect(uri(cluster)) as client:
            await client.recover(ledger_id)
    session = await ZooKeeperSession.connect(ZooKeeperOptions(cluster.zookeeper))
    namespace, _, local = topic.removeprefix("persistent://").rpartition("/")
    path = f"/managed-ledgers/{namespace}/persistent/{local}"
    await session.set(path, (await session.get(path)).value)
    await session.close()


def test_a_broker_gives_up_a_topic_that_it_does_not_publish_to(cluster, tmp_path):
    initialize(cluster)
    member = Member(tmp_path, "g1", cluster.zookeeper)
    topic = f"persistent://public/default/{uuid.uuid4().hex}"
    try:
        client = connect(member.start())
        producer = client.create_producer(topic)
        producer.send(b"before")
        url = f"{member.http}/admin/v2/{topic.replace('://', '/')}/internalStats"
        ledger_id = requests.get(url, timeout=30).json()["ledgers"][-1]["ledgerId"]
        asyncio.run(take_over(cluster, topic, ledger_id))
        log = tmp_path / "g1.log"
        wait_for(lambda: "topic.taken_over" in log.read_text(), 30, "the end of the topic")
        producer.send(b"after")  # the broker still owns the bundle: the topic is loaded again
        client.close()
    finally:
        member.end()


def test_a_broker_gives_up_a_topic_whose_acknowledgements_it_cannot_save(cluster, tmp_path):
    """A topic without an open ledger notices no fence: its consumers stayed, and their acknowledgements were lost."""
    initialize(cluster)
    member = Member(tmp_path, "g2", cluster.zookeeper)
    topic = f"persistent://public/default/{uuid.uuid4().hex}"
    try:
        client = connect(member.start())
        client.subscribe(topic, "s").close()
        producer = client.create_producer(topic)
        for number in range(3):
            producer.send(b"%d" % number)
        client.close()
        unload = f"{member.http}/admin/v2/{topic.replace('://', '/')}/unload"
        assert requests.put(unload, timeout=30).status_code == 204
        client = connect(member)
        consumer = client.subscribe(topic, "s")
        message = consumer.receive(30_000)
        asyncio.run(take_over(cluster, topic))
        consumer.acknowledge(message)
        log = tmp_path / "g2.log"
        wait_for(lambda: "topic.taken_over" in log.read_text(), 30, "the end of the topic")
        wait_for(lambda: consumer.receive(30_000).data() == b"0", 60, "the message without a stored acknowledgement")
        client.close()
    finally:
        member.end()
