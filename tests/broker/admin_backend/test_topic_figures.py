"""Figures of a long log are gathered in slices."""

from __future__ import annotations

import asyncio

from magnetar.broker.admin_backend.topic_figures import (
    PRODUCERS_IN_ONE_TURN,
    client_count,
    gathered_in_slices,
    internal_info,
    internal_stats,
    topic_stats,
)
from magnetar.storage.managed.ledger_map import LedgerSlot
from magnetar.storage.managed.managed_ledger import ManagedLedger
from tests.broker.topic_for_tests import TopicBench

LEDGERS = 20_000


async def turns_of(work):
    turns, task = 0, asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns, task.result()


async def test_the_ledgers_of_a_long_log_are_shown_in_turns(monkeypatch):
    bench = TopicBench()
    topic = await bench.open()
    slots = [LedgerSlot(number, 1, 10, 1) for number in range(LEDGERS)]
    monkeypatch.setattr(ManagedLedger, "ledgers", property(lambda _: slots))
    for figures in (internal_stats, internal_info):
        turns, found = await turns_of(figures(topic))
        assert [each["ledgerId"] for each in found["ledgers"]] == list(range(LEDGERS))
        assert turns >= LEDGERS // 4096
    monkeypatch.undo()
    await topic.close()


class Counted:
    """A producer of whose statistics the turns are counted."""

    def __init__(self, name, made):
        self.producer_name, self._made = name, made

    def stats(self):
        self._made[-1] += 1
        return self.producer_name


async def test_the_producers_of_a_topic_are_gathered_in_turns(monkeypatch):
    """12,000 producers were gathered in one turn of some 50 ms, for each of the requests at the same time."""
    bench = TopicBench()
    topic = await bench.open()
    made = [0]
    names = [f"p{number}" for number in range(4 * PRODUCERS_IN_ONE_TURN)]
    monkeypatch.setattr(topic.producers, "by_name", {name: Counted(name, made) for name in names})
    task = asyncio.ensure_future(gathered_in_slices(topic))
    while not task.done():
        await asyncio.sleep(0)
        made.append(0)
    assert max(made) == PRODUCERS_IN_ONE_TURN
    assert topic_stats(topic, {}, task.result()).publishers == names
    assert sum(made) == len(names)
    assert client_count(topic) == len(names) + len(topic.subscriptions)
    monkeypatch.undo()
    await topic.close()
