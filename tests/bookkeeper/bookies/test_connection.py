"""A bookie that answers requests of a connection, but not all of them."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.bookies.connection import BookieConnection
from magnetar.bookkeeper.errors import BookieUnreachableError
from magnetar.bookkeeper.options import ClientOptions
from magnetar.bookkeeper.wire.frames import AuthAnswer, BatchAnswer, Code, ReadAnswer
from tests.bookkeeper.sim_cluster import simulated

OPTIONS = ClientOptions(read_timeout_s=5, unanswered_timeout_s=60, max_reads_per_bookie=2)
LEDGER = 7


class Transport:
    def __init__(self):
        self.aborted = False

    def set_write_buffer_limits(self, high):
        pass

    def write(self, data):
        pass

    def abort(self):
        self.aborted = True


class Answers:
    """Frames in the form of the answers that they hold."""

    def feed(self, answers):
        return answers


def connected():
    connection = BookieConnection("b", OPTIONS, lambda _: None)
    connection._decoder = Answers()
    transport = Transport()
    connection.connection_made(transport)
    return connection, transport


async def answered_reads(connection, seconds):
    """Reads of entries that the bookie answers at once, one a second."""
    for entry_id in range(seconds):
        reading = asyncio.ensure_future(connection.read(LEDGER, 100 + entry_id))
        await asyncio.sleep(1)
        connection.data_received([ReadAnswer(LEDGER, 100 + entry_id, Code.NO_ENTRY, b"")])
        await reading


@pytest.mark.parametrize("read", ["read", "read_batch"])
@simulated
async def test_a_read_without_an_answer_ends_the_connection_that_answers_others(read):
    connection, transport = connected()
    arguments = (LEDGER, 1) if read == "read" else (LEDGER, 1, 10, 1000)
    lost = asyncio.ensure_future(getattr(connection, read)(*arguments))
    await answered_reads(connection, 30)
    with pytest.raises(BookieUnreachableError, match="no answer within 5 s"):
        await lost
    assert connection.is_open
    with pytest.raises(BookieUnreachableError, match="a read has had no answer for 60 s"):
        await answered_reads(connection, 120)
    assert transport.aborted


@simulated
async def test_a_caller_that_gave_up_does_not_keep_the_connection():
    connection, transport = connected()
    lost = asyncio.ensure_future(connection.read(LEDGER, 1))
    await asyncio.sleep(0)
    lost.cancel()
    with pytest.raises(BookieUnreachableError, match="a read has had no answer"):
        await answered_reads(connection, 130)
    assert transport.aborted


@simulated
async def test_late_answers_keep_the_connection():
    connection, transport = connected()
    for entry_id in range(10):
        late = asyncio.ensure_future(connection.read(LEDGER, entry_id))
        await answered_reads(connection, 40)
        connection.data_received([ReadAnswer(LEDGER, entry_id, Code.NO_ENTRY, b"")])
        with pytest.raises(BookieUnreachableError):
            await late
    assert connection.is_open
    connection.connection_lost(None)
    await asyncio.sleep(200)
    assert not transport.aborted


@pytest.mark.parametrize("read", ["read", "read_batch"])
@simulated
async def test_a_silent_connection_ends_although_its_callers_gave_up(read):
    connection, transport = connected()
    arguments = (LEDGER, 1) if read == "read" else (LEDGER, 1, 10, 1000)
    lost = asyncio.ensure_future(getattr(connection, read)(*arguments))
    await asyncio.sleep(1)
    lost.cancel()
    await asyncio.sleep(2 * OPTIONS.read_timeout_s)
    assert transport.aborted


@pytest.mark.parametrize(
    "stray",
    [
        ReadAnswer(LEDGER, 2, Code.NO_ENTRY, b""),
        ReadAnswer(LEDGER + 1, 1, Code.NO_ENTRY, b""),
        BatchAnswer(LEDGER, 1, Code.NO_ENTRY, 2, b""),
        BatchAnswer(LEDGER, 2, Code.NO_ENTRY, 1, b""),
        BatchAnswer(LEDGER + 1, 1, Code.NO_ENTRY, 1, b""),
        AuthAnswer(b""),
    ],
)
@simulated
async def test_an_answer_without_a_request_ends_the_connection(stray):
    connection, transport = connected()
    reads = [
        asyncio.ensure_future(each) for each in (connection.read(LEDGER, 1), connection.read_batch(LEDGER, 1, 9, 99))
    ]
    await asyncio.sleep(0)
    connection.data_received([stray, ReadAnswer(LEDGER, 1, Code.NO_ENTRY, b"")])
    assert transport.aborted
    connection.connection_lost(None)
    for read in reads:
        with pytest.raises(BookieUnreachableError, match="without a request"):
            await read


@simulated
async def test_a_late_answer_has_a_request_although_its_caller_gave_up():
    """Cancelled reads, as those of the slower replica; one of them waits behind a read of the same entry."""
    connection, transport = connected()
    calls = [connection.read(LEDGER, 1), connection.read_batch(LEDGER, 1, 9, 99), connection.read(LEDGER, -1)]
    connection._options = ClientOptions(read_timeout_s=5, unanswered_timeout_s=60)
    reads = [asyncio.ensure_future(each) for each in (*calls, connection.read(LEDGER, 1))]
    await asyncio.sleep(1)
    for read in reads:
        read.cancel()
    await asyncio.sleep(3)
    late = [ReadAnswer(LEDGER, -1, Code.NO_ENTRY, b""), BatchAnswer(LEDGER, 1, Code.NO_ENTRY, 1, b"")]
    connection.data_received([*late, ReadAnswer(LEDGER, 1, Code.NO_ENTRY, b"")])
    assert connection.is_open
    read = asyncio.ensure_future(connection.read(LEDGER, 1))
    await asyncio.sleep(0)
    connection.data_received([ReadAnswer(LEDGER, 1, Code.OK, b"entry")])
    assert (await read).entry == b"entry"
    await asyncio.sleep(200)
    assert not transport.aborted
    connection.data_received([ReadAnswer(LEDGER, 1, Code.OK, b"entry")])
    assert transport.aborted, "the read behind the first was never sent"
