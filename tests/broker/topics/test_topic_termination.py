"""SENDs that meet the end of a topic."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace

import pytest

from magnetar.storage.errors import StorageError, StorageUnavailableError
from tests.broker.topic_for_tests import TopicBench
from tests.storage.managed_for_tests import run_of
from tests.waiting import until


class ConnectedProducer:
    """Records in order the answers to its client."""

    producer_id = 1

    def __init__(self, topic) -> None:
        self.heard: list[object] = []
        topic.producers.by_name["p"] = self

    def spend(self, commands: int) -> None: ...

    def answer(self, reply: bytes) -> None:
        self.heard.append(reply)

    answer_append = answer

    def close_from_broker(self) -> None:
        self.heard.append("CLOSE_PRODUCER")


RUN = SimpleNamespace(count=1, high=lambda i: i)


async def test_a_send_while_the_end_is_stored_is_answered_by_close_producer_alone(monkeypatch):
    """The Go client forgets a producer that gets SEND_ERROR TopicTerminatedError: its sends then wait for ever."""
    bench = TopicBench()
    topic = await bench.open()
    producer = ConnectedProducer(topic)
    terminate, stored = topic.ledger.terminate, asyncio.Event()

    async def terminate_slowly():
        last = await terminate()
        await stored.wait()
        return last

    monkeypatch.setattr(topic.ledger, "terminate", terminate_slowly)
    ending = asyncio.ensure_future(topic.terminate())
    await asyncio.sleep(0)
    assert topic.ledger.terminated
    assert not ending.done()
    assert not topic.publishing.takes(producer, RUN)
    topic.publishing._begun = deque([topic.context.monotonic()])
    topic.publishing.append_failed(producer, RUN, 0, StorageError("terminated"))
    assert producer.heard == []
    stored.set()
    await ending
    assert producer.heard == ["CLOSE_PRODUCER"]
    topic.producers.by_name.clear()
    await bench.close()


async def test_producers_are_closed_also_when_the_end_could_not_be_stored(monkeypatch):
    bench = TopicBench()
    topic = await bench.open()
    producer = ConnectedProducer(topic)

    async def fail():
        raise StorageError("no space")

    monkeypatch.setattr(topic.ledger, "terminate", fail)
    with pytest.raises(StorageError):
        await topic.terminate()
    assert producer.heard == ["CLOSE_PRODUCER"]
    topic.producers.by_name.clear()
    await bench.close()


async def closing_with_an_append_under_way():
    """(bench, producer, the close): the store holds the append."""
    bench = TopicBench()
    topic = await bench.open()
    producer = ConnectedProducer(topic)

    def appended(result):
        producer.heard.append("SEND_RECEIPT")
        topic.publishing.stored(producer, result.run, 1, result.pieces)

    bench.ground.ledgers.hold()
    topic.publishing.append(run_of([b"x"]), appended)
    await until(lambda: topic.publishing._begun)
    closing = asyncio.ensure_future(topic.close())
    for _ in range(10):
        await asyncio.sleep(0)
    return bench, producer, closing


async def test_receipts_of_a_topic_that_closes_come_before_close_producer():
    """A client ignores later receipts, sends the messages again, and they are stored twice."""
    bench, producer, closing = await closing_with_an_append_under_way()
    assert producer.heard == []
    bench.ground.ledgers.release()
    await closing
    assert producer.heard == ["SEND_RECEIPT", "CLOSE_PRODUCER"]
    await bench.tasks.close()


async def test_a_producer_does_not_wait_long_for_the_receipts_of_a_topic_that_closes(monkeypatch):
    monkeypatch.setattr("magnetar.broker.topics.topic._RECEIPTS_WITHIN_S", 0.001)
    bench, producer, closing = await closing_with_an_append_under_way()
    await until(lambda: producer.heard)
    assert producer.heard == ["CLOSE_PRODUCER"]
    bench.ground.ledgers.release()
    await closing
    assert producer.heard == ["CLOSE_PRODUCER", "SEND_RECEIPT"]
    await bench.tasks.close()


@pytest.mark.parametrize("end", ["close", "delete"])
async def test_a_topic_that_ends_does_not_wait_for_the_store_of_its_next_ledger(end):
    bench = TopicBench()
    topic = await bench.open()

    async def patient_create(properties=None):
        await bench.ground.given_up.wait()
        raise StorageUnavailableError("not enough bookies")

    bench.ground.ledgers.create = patient_create
    bench.ground.may_roll = False
    results = []
    topic.publishing.append(run_of([b"x"]), results.append)
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(getattr(topic, end)())
    await until(lambda: results)
    assert isinstance(results[0].error, StorageUnavailableError)
    topic.publishing.append_failed(ConnectedProducer(topic), results[0].run, 0, results[0].error)
    topic.producers.by_name.clear()
    await asyncio.wait_for(ending, 30)
    await bench.tasks.close()
