"""Appends of a managed ledger: runs, pieces, stamps, indexes."""

from __future__ import annotations

import dataclasses
from collections import deque

import pytest

from magnetar.protocol.runs import EntryRun
from magnetar.storage.errors import (
    EntryTooLargeError,
)
from magnetar.storage.managed import appender, roll_policy
from magnetar.storage.managed.append_result import PendingAppend
from magnetar.storage.managed.entry_index import broker_index
from magnetar.storage.managed.managed_ledger import AppendPiece, AppendState
from magnetar.storage.managed.position_search import entry_timestamp
from magnetar.storage.position import EARLIEST, Position
from tests.storage.managed_for_tests import (
    KEEP,
    append,
    everything,
    indexes,
    message,
    opened,
    payload,
    run_of,
    settle,
)


async def test_opening_and_idling_creates_no_ledger():
    ground, ledger = await opened()
    assert await ground.ledgers.list_ledgers() == []
    assert (ledger.last_confirmed, ledger.entries, ledger.size_bytes) == (EARLIEST, 0, 0)
    assert (ledger.first_position, await ledger.read_last_entry()) == (None, None)
    await ground.restart()
    assert await ground.ledgers.list_ledgers() == []
    assert ground.scheduler.timers == []


async def test_done_is_called_later_in_order_with_the_pieces():
    _, ledger = await opened()
    results = []
    runs = [run_of([b"a"] * count) for count in (3, 4, 5)]
    for run in runs:
        ledger.append(run, results.append)
    assert results == []
    assert ledger.pending_appends == 3
    await settle()
    assert [result.run for result in results] == runs
    assert [result.pieces for result in results] == [
        [AppendPiece(0, 0, 0, 3)],
        [AppendPiece(0, 3, 0, 4)],
        [AppendPiece(0, 7, 0, 3), AppendPiece(1, 0, 3, 5)],
    ]
    assert ledger.last_confirmed == Position(1, 1)
    assert (ledger.pending_appends, ledger.entries_added, ledger.entries) == (0, 12, 12)


async def test_a_run_larger_than_several_ledgers():
    _, ledger = await opened()
    positions = await append(ledger, [b"%d" % k for k in range(35)])
    assert [position.ledger_id for position in positions] == [0] * 10 + [1] * 10 + [2] * 10 + [3] * 5
    assert [body for _, body, _ in await everything(ledger)] == [b"%d" % k for k in range(35)]


async def test_listeners_hear_of_a_burst_once():
    _, ledger = await opened(dataclasses.replace(KEEP, max_entries_per_ledger=1000))
    await append(ledger, [b"first"])
    calls = []
    remove = ledger.add_listener(lambda: calls.append(ledger.entries))
    for _ in range(50):
        ledger.append(run_of([b"x"] * 3), lambda _result: None)
    await settle()
    assert calls == [151]
    remove()
    remove()
    await append(ledger, [b"more"])
    assert calls == [151]


async def test_stamping_follows_the_configuration():
    _, ledger = await opened(dataclasses.replace(KEEP, entry_timestamp=True, max_entries_per_ledger=1000))
    await append(ledger, [message(publish_time=5)], [3])
    ledger.set_config(dataclasses.replace(ledger.config, entry_index=False))
    await append(ledger, [message(publish_time=6)])
    ledger.set_config(dataclasses.replace(ledger.config, entry_timestamp=False))
    await append(ledger, [message(publish_time=7)])
    ledger.set_config(dataclasses.replace(ledger.config, entry_index=True))
    await append(ledger, [message(publish_time=8)], [2])
    now_ms = ledger._env.clock.now_ms()
    spans = [await ledger.read_entry(ledger._ledgers.at(k)) for k in range(4)]
    assert [broker_index(span.body(0)) for span in spans] == [2, -1, -1, 4]
    assert [entry_timestamp(span.slab, span.start) for span in spans] == [now_ms, now_ms, 7, 8]
    assert payload(spans[2], 0) == bytes(spans[2].body(0)) == message(publish_time=7)


async def test_the_index_counts_messages_over_ledgers_and_restarts():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 12, [1, 3, 2] * 4)
    ground = await ground.restart()
    ledger = await ground.open()
    await append(ledger, [b"y"] * 2, [5, 1])
    assert indexes(await everything(ledger)) == [0, 3, 5, 6, 9, 11, 12, 15, 17, 18, 21, 23, 28, 29]
    assert ledger.stats().last_index == 29


async def test_counts_a_peer_made_up_do_not_disturb_the_index():
    ground, ledger = await opened(dataclasses.replace(KEEP, max_entries_per_ledger=100))
    await append(ledger, [b"x"] * 4, [5, -2, 0, 1])
    await append(ledger, [b"x"] * 2)
    assert indexes(await everything(ledger)) == [4, -1, -1, 5, 6, 7]
    assert (await ground.after_crash().open()).stats().last_index == 7


async def test_entries_of_the_broker_itself():
    _, ledger = await opened()
    results = []
    ledger.append(EntryRun.single(b"mine", num_messages=4), results.append)
    await settle()
    assert results[0].error is None
    span = await ledger.read_last_entry()
    assert (payload(span, 0), broker_index(span.body(0))) == (b"mine", 3)


async def test_an_entry_the_store_cannot_take_harms_no_other():
    _, ledger = await opened(max_record_bytes=1000)
    await append(ledger, [b"before"])
    results = []
    ledger.append(run_of([b"x"]), results.append)
    ledger.append(run_of([b"small", b"x" * 990]), results.append)
    ledger.append(run_of([b"y" * 300] * 4), results.append)
    await settle()
    assert [type(result.error) for result in results] == [type(None), EntryTooLargeError, type(None)]
    assert ledger.state is AppendState.OPEN
    assert indexes(await everything(ledger)) == list(range(6))


@pytest.mark.parametrize("limits", [{"max_entries_per_ledger": 10}, {"max_size_per_ledger_bytes": 300}])
async def test_a_young_ledger_above_its_limits_takes_runs_whole(limits):
    config = dataclasses.replace(KEEP, max_entries_per_ledger=1000, min_rollover_ms=60_000)
    ground, ledger = await opened(dataclasses.replace(config, **limits))
    results = []
    for age_s in (0, 47, 12.9, 0.2):
        ground.clock.time_s += age_s
        ledger.append(run_of([b"x" * 40] * 12), results.append)
        await settle()
    assert [[piece[:1] + piece[2:] for piece in result.pieces] for result in results[:3]] == [[(0, 0, 12)]] * 3
    assert results[3].pieces[-1].ledger_id == 1


async def test_an_open_ledger_has_a_largest_number_of_entries_at_any_age(monkeypatch):
    monkeypatch.setattr(appender, "HARD_MAX_ENTRIES", 30)
    monkeypatch.setattr(roll_policy, "HARD_MAX_ENTRIES", 30)
    _, ledger = await opened(dataclasses.replace(KEEP, max_entries_per_ledger=10, min_rollover_ms=60_000))
    positions = await append(ledger, [b"x"] * 20) + await append(ledger, [b"y"] * 20)
    assert [position.ledger_id for position in positions] == [0] * 30 + [1] * 10


async def test_early_notice_is_for_a_whole_run_behind_no_other_run():
    _, ledger = await opened(dataclasses.replace(KEEP, max_entries_per_ledger=4))
    await append(ledger, [b"first"])
    seen = []

    def push(count: int) -> None:
        run = run_of([b"x"] * count)

        def notice(noticed: EntryRun, piece: AppendPiece):
            assert noticed is run
            assert ledger.last_confirmed < Position(piece.ledger_id, piece.first_entry_id)
            return lambda: seen.append(("notice", piece))

        ledger.append(run, lambda result: seen.append(("done", result.pieces)), notice)

    push(2)
    await settle()
    piece = AppendPiece(0, 1, 0, 2)
    assert seen == [("notice", piece), ("done", [piece])]
    seen.clear()
    push(3)
    await settle()
    assert [kind for kind, _ in seen] == ["done"], "the run is in two ledgers"


async def test_a_run_behind_another_run_gets_no_early_notice():
    _, ledger = await opened()
    await append(ledger, [b"first"])
    first = PendingAppend(ledger._appender, run_of([b"a"]), print, lambda *_: print)
    second = PendingAppend(ledger._appender, run_of([b"b"]), print, lambda *_: print)
    for op in (first, second):
        op.pieces, op.next = [AppendPiece(0, 1, 0, 1)], 1
    ledger._appender.pending = deque([first, second])
    assert first.notice() is print
    assert second.notice() is None
    ledger._appender.pending.clear()
