"""A client whose process was suspended finds its deadlines passed before it reads the answers that came meanwhile."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from magnetar.bookkeeper.errors import AddTimeoutError, BookieUnreachableError, NotEnoughBookiesError
from magnetar.bookkeeper.options import ClientOptions, LedgerOptions
from magnetar.bookkeeper.wire.frames import RECOVERY_ADD, BatchAnswer, Code, ReadAnswer
from tests.bookkeeper.bookies.test_connection import LEDGER, connected
from tests.bookkeeper.sim_cluster import SimCluster, simulated
from tests.twins.sim_bookies import ADD
from tests.waiting import until

TIMEOUT_S = ClientOptions().read_timeout_s
E3 = LedgerOptions(ensemble_size=3, write_quorum=3, ack_quorum=2)


async def suspended(seconds):
    """On return the deadlines that passed meanwhile have come, and have had their effect."""
    asyncio.get_running_loop().now_s += seconds
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("gave_up", [False, True])
@pytest.mark.parametrize(
    "answer", [ReadAnswer(LEDGER, 1, Code.NO_ENTRY, b""), BatchAnswer(LEDGER, 1, Code.NO_ENTRY, 1, b"")]
)
@simulated
async def test_answers_that_came_meanwhile_count(answer, gave_up):
    connection, transport = connected()
    is_read = isinstance(answer, ReadAnswer)
    reading = asyncio.ensure_future(connection.read(LEDGER, 1) if is_read else connection.read_batch(LEDGER, 1, 9, 99))
    await asyncio.sleep(1)
    if gave_up:
        reading.cancel()
    await suspended(10 * TIMEOUT_S)
    assert connection.is_open
    connection.data_received([answer])
    if not gave_up:
        assert await reading == answer
    await asyncio.sleep(10 * TIMEOUT_S)
    assert not transport.aborted


@simulated
async def test_a_silent_connection_ends_although_the_client_was_suspended():
    connection, transport = connected()
    reading = asyncio.ensure_future(connection.read(LEDGER, 1))
    await asyncio.sleep(1)
    await suspended(10 * TIMEOUT_S)
    with pytest.raises(BookieUnreachableError, match="no answer"):
        await reading
    assert transport.aborted


@simulated
async def test_a_loop_that_is_always_late_ends_a_silent_connection():
    connection, transport = connected()
    reading = asyncio.ensure_future(connection.read(LEDGER, 1))
    for _ in range(3):
        await suspended(2 * TIMEOUT_S)
    with pytest.raises(BookieUnreachableError, match="no answer"):
        await reading
    assert transport.aborted


@pytest.mark.parametrize("seconds", [6, 100])
@simulated
async def test_a_writer_keeps_its_bookies_and_adds(seconds):
    cluster = SimCluster(4)
    one = cluster.join()
    writer = await one.client.create(E3)
    await writer.append(b"first")
    one.party.pause()
    adding = asyncio.ensure_future(writer.append(b"second"))
    await asyncio.sleep(0.1)
    await suspended(seconds)
    one.party.resume()
    assert await adding == 1
    await asyncio.sleep(10)
    assert len(writer.metadata.segments) == 1
    assert not any(one.client._context.pool.is_quarantined(each.bookie_id) for each in cluster.bookies)
    await cluster.close()


@pytest.mark.parametrize("late_s", [2, 25])
@simulated
async def test_adds_outlast_a_stop_of_all_processes_with_bookies_that_need_time(late_s):
    """Behind a stop of 152 s a busy broker failed its ledgers after 1.25 s."""
    cluster = SimCluster(3)
    one = cluster.join()
    writer = await one.client.create(E3)
    await writer.append(b"first")
    for bookie in cluster.bookies:
        bookie.suspend()
    adding = asyncio.ensure_future(writer.append(b"second"))
    await asyncio.sleep(0.1)
    await suspended(152)
    await asyncio.sleep(late_s)
    quarantined = [one.client._context.pool.is_quarantined(each.bookie_id) for each in cluster.bookies]
    assert quarantined == [late_s > TIMEOUT_S] * 3
    new = await one.client.create(E3)  # bookies in quarantine serve where no others are
    for bookie in cluster.bookies:
        bookie.go_on()
    assert await adding == 1
    assert await new.append(b"third") == 0
    await cluster.close()


@simulated
async def test_a_writer_replaces_a_silent_bookie_although_it_was_suspended():
    cluster = SimCluster(4)
    writer = await cluster.join().client.create(E3)
    await writer.append(b"first")
    silent = writer.metadata.last_segment.bookies[0]
    cluster.network.bookies[silent].suspend()
    await writer.append(b"second")
    for _ in range(3):
        await suspended(6)
    await asyncio.sleep(5)
    assert silent not in writer.metadata.last_segment.bookies
    await cluster.close()


@simulated
async def test_short_standstills_again_and_again_do_not_keep_a_ledger_without_quorum():
    cluster = SimCluster(3)
    writer = await cluster.join().client.create(E3)
    await writer.append(b"first")
    for bookie in cluster.bookies:
        bookie.suspend()
    adding = asyncio.ensure_future(writer.append(b"second"))
    for _ in range(6):
        await asyncio.sleep(20)
        await suspended(2)
    with pytest.raises((AddTimeoutError, NotEnoughBookiesError)):
        await asyncio.wait_for(adding, 1)
    await cluster.close()


@simulated
async def test_standstills_again_and_again_do_not_keep_a_silent_bookie():
    cluster = SimCluster(4)
    writer = await cluster.join().client.create(E3)
    await writer.append(b"first")
    silent = writer.metadata.last_segment.bookies[0]
    cluster.network.bookies[silent].suspend()
    await writer.append(b"second")
    for _ in range(20):
        await asyncio.sleep(3)
        await suspended(4)
    assert silent not in writer.metadata.last_segment.bookies
    await cluster.close()


async def add_of_recovery(cluster):
    """Wait until some bookie has got an add of a recovery."""

    def came():
        requests = itertools.chain.from_iterable(bookie.requests for bookie in cluster.bookies)
        return any(opcode == ADD and flags & RECOVERY_ADD for opcode, flags, *_ in requests)

    await until(came, every=0.0001)


@pytest.mark.parametrize("seconds", [6, 100])
@simulated
async def test_a_recovery_keeps_its_bookies(seconds):
    cluster = SimCluster(4)
    writer = await cluster.join().client.create(E3)
    await writer.append_many([b"first", b"second"])
    one = cluster.join()
    recovering = asyncio.ensure_future(one.client.recover(writer.ledger_id))
    await add_of_recovery(cluster)
    one.party.pause()
    await asyncio.sleep(0.1)
    await suspended(seconds)
    one.party.resume()
    closed = (await recovering).metadata
    assert closed.last_entry_id == 1
    assert closed.segments == writer.metadata.segments
    await cluster.close()


@simulated
async def test_a_recovery_replaces_a_silent_bookie_although_it_was_suspended():
    cluster = SimCluster(4)
    writer = await cluster.join().client.create(LedgerOptions(3, 3, 3))
    await writer.append(b"first")
    silent = writer.metadata.last_segment.bookies[0]
    cluster.network.bookies[silent].suspend()
    recovering = asyncio.ensure_future(cluster.join().client.recover(writer.ledger_id))
    await add_of_recovery(cluster)
    for _ in range(3):
        await suspended(6)
    closed = (await recovering).metadata
    assert closed.last_entry_id == 0
    assert silent not in closed.last_segment.bookies
    await cluster.close()


@simulated
async def test_a_connection_opens_although_the_client_was_suspended():
    cluster = SimCluster(1)
    one = cluster.join()
    one.party.pause()
    opening = asyncio.ensure_future(one.client._context.pool.get(cluster.bookies[0].bookie_id))
    await asyncio.sleep(0.1)
    await suspended(10 * ClientOptions().connect_timeout_s)
    one.party.resume()
    assert (await opening).is_open
    await cluster.close()
