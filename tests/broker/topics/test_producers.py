"""Producers whose topic ends before they are connected: their clients get an error, for a topic that has ended answers
no SEND. And the way of receipts.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from types import SimpleNamespace

import pytest

from magnetar.broker.errors import ProducerBusyError, ProducerFencedError, ServiceNotReadyError, TopicTerminatedError
from magnetar.broker.handlers.publish import on_producer
from magnetar.broker.meters.rates import RateMeter
from magnetar.broker.network.publish_gate import PublishBudget, PublishGate
from magnetar.broker.topics.news import News
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.producer import Producer, ProducerRequest
from magnetar.broker.topics.producers import TopicProducers
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.protocol.speed import encode_receipts
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageFullError
from magnetar.storage.managed.append_result import AppendPiece, AppendResult
from tests.broker.topic_for_tests import NAME, TopicBench
from tests.calls import calls_of
from tests.storage.managed_for_tests import run_of, settle
from tests.twins.fake_connection import FakeConnection

COMMAND = pb.CommandProducer(
    topic=str(NAME),
    producer_id=1,
    request_id=2,
    producer_name="p",
    schema=pb.Schema(name="", schema_data=b"", type=pb.Schema.String),
)


class _Topics:
    """The registry, with one topic."""

    def __init__(self, topic) -> None:
        self._topic = topic
        self.loaded = {} if topic is None else {str(topic.name): topic}

    async def get(self, _name, *, create):
        assert create
        return self._topic


class _Schemas:
    """Any schema is compatible."""

    async def for_producer(self, _topic, _schema) -> bytes:
        return b""


class Client(FakeConnection):
    """A client of producers; `answers` ends the broker's wait for its PONG."""

    def __init__(self, topic=None, *, answers: bool = True) -> None:
        super().__init__()
        self.services = SimpleNamespace(
            topics=_Topics(topic),
            schemas=_Schemas(),
            news=News(None, None, None, None),
            namespaces=SimpleNamespace(is_foreign=lambda _namespace: False),
        )
        self.loop = asyncio.get_running_loop()
        self.producers: dict = {}
        self.recently_closed_producers: dict = {}
        self.probed, self.pong = asyncio.Event(), asyncio.Event()
        if answers:
            self.pong.set()

    def authorize(self, _command_type: int, _name: TopicName) -> None:
        """Every role has every right."""

    def may(self, _command_type: int, _name: TopicName) -> bool:
        return True

    async def check_alive(self) -> bool:
        self.probed.set()
        await self.pong.wait()
        return False


def request(access_mode: int = pb.Shared, name: str = "p", topic_epoch: int | None = None) -> ProducerRequest:
    return ProducerRequest(
        1, name, user_provided_name=True, epoch=0, access_mode=access_mode, topic_epoch=topic_epoch, encrypted=False
    )


def non_persistent(bench: TopicBench) -> NonPersistentTopic:
    return NonPersistentTopic(TopicName.parse("non-persistent://public/default/t"), bench.context)


@pytest.mark.parametrize("persistent", [True, False])
async def test_a_topic_that_closes_while_the_holder_of_the_name_is_probed_refuses_the_producer(persistent):
    bench = TopicBench()
    topic = await bench.open() if persistent else non_persistent(bench)
    old = Client(answers=False)
    await topic.add_producer(topic.new_producer(old, request()), lambda: None)
    new = topic.new_producer(Client(), request())
    joining = asyncio.ensure_future(topic.add_producer(new, lambda: None))
    await old.probed.wait()
    await topic.close()
    old.pong.set()
    with pytest.raises(ServiceNotReadyError):
        await joining
    assert not len(topic.producers)
    assert topic.producers.exclusive is None
    await bench.tasks.close()


async def test_a_topic_that_closes_while_the_epoch_is_stored_refuses_the_producer(monkeypatch):
    bench = TopicBench()
    topic = await bench.open()
    go_on = asyncio.Event()

    async def slow(*_):
        await go_on.wait()

    monkeypatch.setattr(topic.producers, "_save_epoch", slow)
    joining = asyncio.ensure_future(topic.add_producer(topic.new_producer(Client(), request(pb.Exclusive)), print))
    await settle()
    assert topic.producers.exclusive is not None
    await topic.close()
    go_on.set()
    with pytest.raises(ServiceNotReadyError):
        await joining
    assert topic.producers.exclusive is None
    assert not len(topic.producers)
    await bench.tasks.close()


async def test_a_topic_that_is_terminated_while_the_holder_of_the_name_is_probed_refuses_the_producer():
    bench = TopicBench()
    topic = await bench.open()
    old = Client(answers=False)
    await topic.add_producer(topic.new_producer(old, request()), lambda: None)
    joining = asyncio.ensure_future(topic.add_producer(topic.new_producer(Client(), request()), lambda: None))
    await old.probed.wait()
    await topic.terminate()
    old.pong.set()
    with pytest.raises(TopicTerminatedError):
        await joining
    assert not len(topic.producers)
    await bench.close()


async def test_a_topic_that_closes_between_the_admission_and_its_answer_refuses_the_producer(monkeypatch):
    bench = TopicBench()
    topic = await bench.open()
    client = Client(topic)

    def close() -> None:
        for producer in topic.producers:
            producer.close_from_broker()

    monkeypatch.setattr(topic.deduplication, "producer_joined", lambda _: client.loop.call_soon(close))
    with pytest.raises(ServiceNotReadyError):
        await on_producer(client, COMMAND)
    assert client.producers == {}
    assert "PRODUCER_SUCCESS" not in client.names()
    await bench.close()


def fenced(text):
    """A pattern of the whole text: Apache Pulsar puts the class of its exception in front."""
    return (
        "^"
        + re.escape(f"org.apache.pulsar.broker.service.BrokerServiceException$ProducerFencedException: {text}")
        + "$"
    )


@pytest.mark.parametrize(
    ("access_mode", "text"),
    [
        (pb.Exclusive, "Topic has an existing exclusive producer: first"),
        (pb.Shared, "Topic has existing shared producers"),
    ],
)
async def test_a_refusal_of_exclusive_access_names_the_producers_that_have_the_topic(access_mode, text):
    bench = TopicBench()
    topic = await bench.open()
    await topic.add_producer(topic.new_producer(Client(), request(access_mode, "first")), lambda: None)
    with pytest.raises(ProducerFencedError, match=fenced(text)):
        await topic.add_producer(topic.new_producer(Client(), request(pb.Exclusive, "second")), lambda: None)
    await bench.close()


async def test_a_refusal_of_an_old_topic_epoch_names_both_epochs():
    bench = TopicBench()
    topic = await bench.open()
    for epoch in range(2):
        producer = topic.new_producer(Client(), request(pb.Exclusive))
        await topic.add_producer(producer, lambda: None)
        assert producer.topic_epoch == epoch
        topic.producers.remove(producer)
    old = topic.new_producer(Client(), request(pb.Exclusive, topic_epoch=0))
    with pytest.raises(
        ProducerFencedError, match=fenced("Topic epoch has already moved. Current epoch: 1, Producer epoch: 0")
    ):
        await topic.add_producer(old, lambda: None)
    await bench.close()


async def test_a_producer_with_an_old_topic_epoch_learns_first_that_others_have_the_topic():
    bench = TopicBench()
    topic = await bench.open()
    for epoch in range(2):
        producer = topic.new_producer(Client(), request(pb.Exclusive))
        await topic.add_producer(producer, lambda: None)
        assert producer.topic_epoch == epoch
        if not epoch:
            topic.producers.remove(producer)
    old = topic.new_producer(Client(), request(pb.Exclusive, topic_epoch=0))
    with pytest.raises(ProducerFencedError, match=fenced(f"Topic has an existing exclusive producer: {producer.name}")):
        await topic.add_producer(old, lambda: None)
    await bench.close()


async def test_a_refusal_for_the_address_of_a_client_names_the_topic():
    bench = TopicBench(max_same_address_producers_per_topic=1)
    topic = await bench.open()
    await topic.add_producer(topic.new_producer(Client(), request(name="first")), lambda: None)
    text = f"$ProducerBusyException: Topic '{NAME}' reached max same address producers limit"
    with pytest.raises(ProducerBusyError, match=re.escape(text) + "$"):
        await topic.add_producer(topic.new_producer(Client(), request(name="second")), lambda: None)
    await bench.close()


async def test_the_limit_of_an_address_looks_at_no_other_producers():
    """Each PRODUCER walked through all producers of the topic: 20,000 of them took some 10 ms."""
    calls = []
    for others in (10, 1000):
        bench = TopicBench(max_same_address_producers_per_topic=others + 1)
        topic = await bench.open()
        joined = [topic.new_producer(Client(), request(name=f"p{i}")) for i in range(others)]
        for each in joined:
            await topic.add_producer(each, lambda: None)
        new = topic.new_producer(Client(), request(name="new"))
        calls.append(calls_of(partial(topic.producers.check_same_address, new, others + 1)))
        await topic.add_producer(new, lambda: None)
        for gone in (joined[0], joined[1]):
            with pytest.raises(ProducerBusyError):
                topic.producers.check_same_address(new, others + 1)
            topic.remove_producer(gone)
            topic.producers.check_same_address(new, others + 1)
            gone.closed = False
            await topic.add_producer(gone, lambda: None)
        topic.producers.by_name.clear()
        await bench.close()
    assert calls[0] == calls[1], calls


class _Output:
    """An output that takes answers at once, or none."""

    def __init__(self, *, takes: bool) -> None:
        self.takes = takes
        self.sent: list[bytes] = []

    def write_now(self, data: bytes) -> bool:
        if self.takes:
            self.sent.append(data)
        return self.takes


@pytest.mark.parametrize(("count", "takes", "is_sent"), [(64, True, True), (63, True, False), (64, False, False)])
async def test_many_receipts_go_out_before_the_books_of_their_run(count, takes, is_sent):
    class Connection(Client):
        output = _Output(takes=takes)

        @property
        def gate(self):
            return SimpleNamespace(finished=lambda *_: None)

    connection, books = Connection(), []

    def stored(*_) -> None:
        books.append((len(connection.output.sent), connection.writes))

    publishing = SimpleNamespace(receipt_step=1, stored=stored)
    producer = Producer(connection, SimpleNamespace(publishing=publishing), request(), 1)
    run = run_of([b"x"] * count)
    producer._appended(AppendResult(run, [AppendPiece(3, 0, 0, count)], None))
    assert books == [(1, 0) if is_sent else (0, 1)]
    assert len(connection.frames) == (0 if is_sent else count)


async def test_answers_that_wait_for_an_append_count_as_publishes_in_flight():
    connection, budget, appends = Client(), PublishBudget(1 << 20), []
    connection.gate = gate = PublishGate(connection, budget, max_entries=10)
    publishing = SimpleNamespace(receipt_step=1, append=lambda *given: appends.append(given), stored=lambda *_: None)
    producer = Producer(connection, SimpleNamespace(publishing=publishing), request(), 1)
    producer._append(run := run_of([b"x"]))
    refusals = [replies.send_error(1, number, pb.ChecksumError, "damaged") for number in range(10)]
    for refusal in refusals:
        assert not connection.held
        producer.answer(refusal)
    assert connection.held == {"publish-entries"}
    assert budget.in_flight_bytes == run.size_bytes + sum(map(len, refusals))
    _, ended, _ = appends[0]
    ended(AppendResult(run, [AppendPiece(3, 0, 0, 1)], None))
    assert connection.names() == ["SEND_RECEIPT"] + ["SEND_ERROR"] * 10
    assert (connection.held, gate.pending_entries, budget.in_flight_bytes) == (set(), 0, 0)


async def test_the_error_of_an_append_comes_before_the_answers_to_later_sends():
    """A client took the receipt of a duplicate, the last chunk of a message, for that of the first chunk, which was not
    stored: both have one sequence id.
    """
    connection, appends = Client(), []
    connection.gate = PublishGate(connection, PublishBudget(1 << 20), max_entries=10)
    refused = replies.send_error(1, 0, pb.PersistenceError, "full")
    publishing = SimpleNamespace(receipt_step=1, append=lambda *given: appends.append(given), stored=lambda *_: None)
    publishing.append_failed = lambda to, *_: to.answer_append(refused)
    producer = Producer(connection, SimpleNamespace(publishing=publishing), request(), 1)
    producer._append(run_of([b"first chunk"]))
    producer.answer(encode_receipts(1, bytes(8), bytes(8), 0, 1, 3, 7, 0))
    producer._append(run_of([b"next"]))
    for run, ended, _ in appends:
        ended(AppendResult(run, [], StorageFullError("full")))
    assert connection.names() == ["SEND_ERROR", "SEND_RECEIPT", "SEND_ERROR"]


async def test_a_topic_with_chunks_has_them_from_the_end_of_the_period_on():
    producer = SimpleNamespace(name="p", rate_in=RateMeter(), chunk_rate=RateMeter())
    producers = TopicProducers(None, None)
    producers.by_name["p"] = producer
    producers.roll_rates(60)
    producer.chunk_rate.add(1, 0)
    assert not producers.have_sent_chunks
    for _ in range(2):
        producers.roll_rates(60)
        assert producers.have_sent_chunks
