"""A producer of the sink at a broker that fails."""

import asyncio

import pyarrow as pa
import pytest

from magnetar.client.errors import RetryError
from magnetar.pipeline.sink.options import SinkOptions
from magnetar.pipeline.sink.task import Place, send_rows
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.importing.scripted_broker import KIND, ScriptedBroker, answer

TOPIC = "persistent://public/default/t"
NAMED = Place(0, "s-0", 0)


async def send(broker, rows, **others):
    given = {"service.url": broker.url, "topic": TOPIC, "guarantee": "exactly-once", "sinkId": "s"}
    options = SinkOptions.parse(given | {"checkDeduplication": "false"} | others, streaming=False)
    batch = pa.RecordBatch.from_pydict({"value": [b"%d" % n for n in range(rows)]})
    (report,) = await asyncio.to_thread(send_rows, [batch], options, NAMED)
    return report.stored, report.known


class Broker(ScriptedBroker):
    """The broker accepted sequence ids of an earlier attempt up to `accepted`, and fails to store them if `fails`.

    opened: number of producers. sent: first sequence id of each SEND.
    """

    def __init__(self, accepted=-1, *, fails=False, stores=True):
        super().__init__()
        self.highest["s-0"], self._fails, self._stores = accepted, fails, stores
        self.opened, self.sent, self.kept = 0, [], []

    def producer(self, command):
        self.opened += 1
        return super().producer(command)

    def send(self, send, entry):
        self.sent.append(send.sequence_id)
        if self._fails or not self._stores:
            if self._fails:
                self.highest["s-0"], self._fails = -1, False
            failed = pb.CommandSendError(
                producer_id=send.producer_id,
                sequence_id=send.sequence_id,
                error=pb.PersistenceError,
                message="not stored",
            )
            return answer(KIND.SEND_ERROR, send_error=failed)
        before = len(self.stored)
        reply = super().send(send, entry)
        self.kept += [send.sequence_id] * (len(self.stored) - before)
        return reply


async def test_a_broker_that_stores_nothing_ends_the_task():
    async with Broker(stores=False) as broker:
        with pytest.raises(RetryError, match="not stored; gave up after"):
            await send(broker, 3, sendTimeoutMs="2000")
        assert 2 <= broker.opened <= 8


@pytest.mark.parametrize("size", [1, 2])
async def test_entries_that_were_accepted_and_not_stored_are_sent_again(size):
    async with Broker(accepted=3, fails=True) as broker:
        assert await send(broker, 6, batchingMaxMessages=str(size)) == (6, 0)
        assert broker.kept == list(range(0, 6, size))


async def test_entries_further_back_than_the_pending_bytes_are_not_sent_again():
    async with Broker(accepted=99) as broker:
        assert await send(broker, 101, batchingMaxMessages="1", maxPendingBytes="200") == (1, 100)
        assert broker.kept == [100]
        assert broker.sent == list(range(broker.sent[0], 101))
        assert 2 <= len(broker.sent) <= 10
