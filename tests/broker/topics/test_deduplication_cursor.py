"""Deduplication that is turned on while messages come, and the room for the names of its producers."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from magnetar.broker.errors import ProducerBusyError
from magnetar.broker.topics.deduplication_cursor import TopicDeduplication
from magnetar.broker.topics.names_room import NamesRoom
from magnetar.protocol.metadata import parse_metadata
from magnetar.storage.errors import StorageFullError
from tests.broker.topic_for_tests import TopicBench, publish
from tests.broker.topics.test_producers import Client, request
from tests.storage.managed_for_tests import everything, settle


@pytest.mark.parametrize("beside", ["the new cursor", "an append"])
async def test_a_message_that_comes_while_deduplication_is_turned_on_is_stored_once(monkeypatch, beside):
    """The message is on the disk before deduplication is on, or behind that; its receipt is lost."""
    bench = TopicBench()
    topic = await bench.open()
    await bench.subscribe("keeps")
    gate, open_cursor = asyncio.Event(), topic.ledger.open_cursor

    async def opened_late(*args):
        cursor = await open_cursor(*args)
        await gate.wait()
        return cursor

    monkeypatch.setattr(topic.ledger, "open_cursor", opened_late)
    if beside == "an append":
        gate.set()
        bench.ground.ledgers.hold()
        publish(topic, 0)
    turning_on = asyncio.ensure_future(bench.set_namespace(deduplication_enabled=True))
    await settle()
    if beside == "the new cursor":
        publish(topic, 0)
        await settle()
    gate.set()
    bench.ground.ledgers.release()
    await turning_on
    await settle()
    await published_once(topic, [0])
    await bench.close()


async def test_a_producer_that_leaves_while_deduplication_is_turned_on_counts_as_absent(monkeypatch):
    """Otherwise its sequence id would stay for good."""
    bench = TopicBench()
    topic = await bench.open()
    gate, open_cursor = asyncio.Event(), topic.ledger.open_cursor

    async def opened_late(*args):
        cursor = await open_cursor(*args)
        await gate.wait()
        return cursor

    monkeypatch.setattr(topic.ledger, "open_cursor", opened_late)
    turning_on = asyncio.ensure_future(bench.set_namespace(deduplication_enabled=True))
    await settle()
    publish(topic, 0)
    await settle()
    topic.deduplication.producer_left("p")
    gate.set()
    await turning_on
    table = topic.deduplication.table
    assert table.last_sequence_id("p") == 0
    assert table.purge_inactive(float("inf"))
    assert table.last_sequence_id("p") == -1
    await bench.close()


async def published_once(topic, sequence_ids):
    """The producer sends its messages again; the log has each once."""
    for sequence_id in sequence_ids:
        publish(topic, sequence_id)
    await settle()
    entries = await everything(topic.ledger)
    assert [parse_metadata(entry).sequence_id for _, entry, _ in entries] == sequence_ids


async def test_a_message_that_comes_beside_the_snapshot_of_a_recovery_is_stored_once(monkeypatch):
    """Deduplication is turned on again whose end was not stored, so that its cursor is known."""
    bench = TopicBench(broker_deduplication_enabled=True, broker_deduplication_entries_interval=1)
    topic = await bench.open()
    await bench.subscribe("keeps")
    bench.ground.metadata.fail_writes = StorageFullError("full")
    with pytest.raises(StorageFullError):
        await bench.set_namespace(deduplication_enabled=False)
    bench.ground.metadata.fail_writes = None
    publish(topic, 5)
    await settle()
    gate, snapshot = asyncio.Event(), TopicDeduplication.snapshot

    async def late(self):
        await gate.wait()
        await snapshot(self)

    monkeypatch.setattr(TopicDeduplication, "snapshot", late)
    turning_on = asyncio.ensure_future(bench.set_namespace(deduplication_enabled=True))
    await settle()
    publish(topic, 6)
    await settle()
    gate.set()
    await turning_on
    await published_once(topic, [5, 6])
    await bench.close()


async def test_a_new_producer_beyond_the_room_for_names_is_refused():
    bench = TopicBench(broker_deduplication_enabled=True)
    room = bench.context.names_room = NamesRoom(most=1000, free=0)
    topic, names = await bench.open(), [f"{number:1000}" for number in range(2)]

    async def join(name):
        producer = topic.new_producer(Client(), request(name=name))
        await topic.add_producer(producer, lambda: None)
        topic.deduplication.table.replayed(name, 7)
        return producer

    topic.remove_producer(await join(names[0]))
    with pytest.raises(ProducerBusyError):
        await join(names[1])
    topic.remove_producer(await join(names[0]))
    assert topic.deduplication.table.last_sequence_id(names[0]) == 7
    await bench.set_namespace(deduplication_enabled=False)
    assert room.used == 0
    topic.remove_producer(await join(names[1]))
    await bench.close()


async def test_the_load_of_a_topic_logs_the_producers_for_whose_names_there_is_no_room():
    bench = TopicBench(broker_deduplication_enabled=True)
    room = bench.context.names_room
    topic = await bench.open()
    publish(topic, 5)
    await settle()
    await topic.deduplication.snapshot()
    topic = await bench.reopen()
    assert topic.deduplication.table.last_sequence_id("p") == 5 and room.used > 0
    await topic.close()
    assert room.used == 0
    bench.context.names_room = NamesRoom(most=0, free=0)
    with capture_logs() as logs:
        topic = await bench.open()
    assert topic.deduplication.table.last_sequence_id("p") == -1
    assert [each["producers"] for each in logs if each["event"] == "deduplication.producers_forgotten"] == [1]
    await bench.close()
