"""Planned entries at a broker that refuses some, or closes producers."""

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.client.address import Credentials
from magnetar.client.errors import RetryError
from magnetar.converters.kafka_entry.import_plan import ImportStep
from magnetar.converters.kafka_entry.planning import PlannedEntry
from magnetar.pipeline.jobs.entry_sender import send_entries
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.importing.scripted_broker import KIND, ScriptedBroker, answer, error

NAME = "kafka-import-0"


class Broker(ScriptedBroker):
    """A name has one open producer. `fails` takes the number of a SEND: bytes to answer instead, None to close it."""

    def __init__(self, fails):
        super().__init__(CLOSE_PRODUCER=Broker.close_producer)
        self._fails, self._sends, self._open = fails, 0, {}

    def producer(self, command):
        asked = command.producer
        if asked.producer_name in self._open.values():
            return error(asked.request_id, pb.ProducerBusy, "already connected")
        self._open[asked.producer_id] = asked.producer_name
        return super().producer(command)

    def close_producer(self, command):
        self._open.pop(command.close_producer.producer_id, None)
        return answer(KIND.SUCCESS, success=pb.CommandSuccess(request_id=command.close_producer.request_id))

    def send(self, send, entry):
        if send.producer_id not in self._open:
            return b""
        self._sends += 1
        reply = self._fails(self._sends, send)
        if reply is None:
            del self._open[send.producer_id]
            closing = pb.CommandCloseProducer(producer_id=send.producer_id, request_id=0)
            return answer(KIND.CLOSE_PRODUCER, close_producer=closing)
        return reply or super().send(send, entry)


def refuse_all(_number, send):
    refused = pb.CommandSendError(
        producer_id=send.producer_id, sequence_id=send.sequence_id, error=pb.PersistenceError, message="disk full"
    )
    return answer(KIND.SEND_ERROR, send_error=refused)


def refuse_first_producer(number, send):
    return refuse_all(number, send) if send.producer_id == 1 else b""


def close_every_second(number, _send):
    return b"" if number % 2 else None


async def send(broker, count, timeout_s):
    def steps(resume_after, _confirm):
        for n in range(resume_after + 1, count):
            yield ImportStep(PlannedEntry(b"x", 1, NAME, n, n), n, n + 1)

    connect = SimpleNamespace(service=broker.address, credentials=Credentials())
    topic = "persistent://public/default/t"
    return await asyncio.to_thread(send_entries, connect, topic, NAME, steps, lambda: -1, timeout_s=timeout_s)


async def test_the_name_is_free_for_the_attempt_after_refused_entries():
    async with Broker(refuse_first_producer) as broker:
        assert (await send(broker, 3, 5.0)).stored == 3


async def test_attempts_go_on_as_long_as_they_store_entries():
    async with Broker(close_every_second) as broker:
        await send(broker, 6, 0.05)
        assert len(broker.stored) == 6


async def test_a_broker_that_stores_nothing_ends_the_attempts():
    async with Broker(refuse_all) as broker:
        with pytest.raises(RetryError, match="disk full"):
            await send(broker, 3, 0.3)
