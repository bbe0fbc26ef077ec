"""A subscription closes thousands of consumers: the part that happens at once, and the part that waits for a turn."""

import asyncio

import pytest

from magnetar.broker.consumers.host_counts import HostCounts
from magnetar.broker.subscriptions.closed_consumers import _NOTICES_IN_ONE_TURN, NOTICES_AT_ONCE
from magnetar.storage.position import EARLIEST
from tests.broker.dispatch_fakes import KEY_SHARED, SHARED, Bench

MANY = NOTICES_AT_ONCE + 2 * _NOTICES_IN_ONE_TURN


async def many(sub_type=SHARED):
    bench = Bench()
    bench.subscription.hosts = HostCounts()
    return bench, [await bench.join(sub_type) for _ in range(MANY)]


def told(consumers) -> int:
    return sum("CLOSE_CONSUMER" in consumer.outbox.names() for consumer in consumers)


def seek(bench, _consumers):
    return bench.subscription.seek(EARLIEST)


async def _close(bench):
    await bench.subscription.close()


def unsubscribe(bench, consumers):
    bench.subscription.unsubscribe(consumers[-1], force=True)
    return _close(bench)


def close(bench, _consumers):
    return _close(bench)


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
@pytest.mark.parametrize("command", [seek, unsubscribe, close])
async def test_the_notices_have_turns(command, sub_type):
    """A SEEK that closed 20,000 consumers took a turn of 0.13 s."""
    bench, consumers = await many(sub_type)
    ended = asyncio.ensure_future(command(bench, consumers))
    await asyncio.sleep(0)
    rest = consumers[:-1] if command is unsubscribe else consumers  # the client of the command gets an answer
    assert (told(rest), len(bench.subscription.consumers)) == (NOTICES_AT_ONCE, 0)
    assert not any(consumer.outbox.consumers for consumer in rest), "later commands have an effect"
    assert bench.subscription.hosts.total == len(rest) - NOTICES_AT_ONCE
    bench.subscription.context.turns._round()
    assert told(rest) == NOTICES_AT_ONCE + _NOTICES_IN_ONE_TURN
    await asyncio.sleep(0)
    assert not ended.done()
    bench.clock.run()
    assert (told(rest), bench.subscription.hosts.total) == (len(rest), 0)
    await ended


async def test_messages_of_consumers_that_wait_for_their_notice_count():
    bench, consumers = await many()
    consumers[-1].out.add(3, 300)
    bench.subscription.disconnect_all()
    assert (bench.subscription.gone.total_messages, bench.subscription.gone.total_bytes) == (3, 300)


async def test_consumers_wait_until_a_seek_has_closed_all_others():
    bench, consumers = await many()
    sought = asyncio.ensure_future(bench.subscription.seek(EARLIEST))
    joining = asyncio.ensure_future(bench.join(SHARED))
    await asyncio.sleep(0)
    assert not joining.done()
    bench.clock.run()
    await sought
    assert told(consumers) == MANY
    assert bench.subscription.consumers == [await joining]


async def test_a_client_that_has_used_the_id_again_gets_no_notice():
    bench, consumers = await many()
    bench.subscription.disconnect_all()
    last = consumers[-1]
    last.outbox.consumers[last.consumer_id] = bench.new()
    bench.clock.run()
    assert told(consumers) == MANY - 1


async def test_consumers_that_are_closed_behind_others_get_their_notice_behind_them():
    bench, consumers = await many()
    bench.subscription.disconnect_all()
    later = await bench.join(SHARED)
    bench.subscription.disconnect_all()
    assert told([later]) == 0
    bench.clock.run()
    assert told([*consumers, later]) == MANY + 1


def fail(*_args):
    raise RuntimeError("a bug")


@pytest.mark.parametrize("failing", [NOTICES_AT_ONCE, MANY - 1])
async def test_a_notice_that_fails_costs_the_other_consumers_nothing(failing, monkeypatch):
    """SUCCESS of the SEEK, and a stop of the broker, waited for ever for the notices behind it."""
    bench, consumers = await many()
    monkeypatch.setattr(consumers[failing].outbox, "close_notice", fail)
    sought = asyncio.ensure_future(bench.subscription.seek(EARLIEST))
    await asyncio.sleep(0)
    bench.clock.run()
    await asyncio.wait_for(sought, 10)
    assert (told(consumers), bench.subscription.hosts.total) == (MANY - 1, 0)


async def test_a_first_notice_that_fails_costs_the_other_consumers_nothing(monkeypatch):
    bench, consumers = await many()
    monkeypatch.setattr(consumers[0].outbox, "close_notice", fail)
    with pytest.raises(RuntimeError):
        bench.subscription.disconnect_all()
    bench.clock.run()
    assert (told(consumers), bench.subscription.hosts.total) == (MANY - 1, 0)
