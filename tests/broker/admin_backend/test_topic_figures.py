"""Figures of a long log are gathered in slices."""

from __future__ import annotations

import asyncio

from magnetar.broker.admin_backend.topic_figures import internal_info, internal_stats
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
