"""The reserve: with one open ledger at most, the next ledger is created before the current ledger is full, and listed by
the save that stores the end of the full ledger.
"""

from __future__ import annotations

import asyncio

import pytest

from magnetar.storage.errors import StorageError, StorageUnavailableError
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.storage.managed_for_tests import KEEP, NAME, Ground, append, run_of, settle
from tests.waiting import until


class Steps:
    """The requests that a roll-over makes, in order, each held until ``let``."""

    def __init__(self, ground, monkeypatch):
        self.ground, self.waiting, self.held = ground, [], False
        for owner, name in ((ground.ledgers, "create"), (ground.ledgers, "delete"), (ground.metadata, "put")):
            monkeypatch.setattr(owner, name, self._stepped(name, getattr(owner, name)))

    def hold_close(self, ledger_id, monkeypatch):
        writer = self.ground.ledgers._ledgers[ledger_id]
        monkeypatch.setattr(writer, "close", self._stepped("close", writer.close))

    def _stepped(self, name, call):
        async def stepped(*arguments):
            if self.held:
                gate = asyncio.get_running_loop().create_future()
                self.waiting.append((name, gate))
                await gate
            return await call(*arguments)

        return stepped

    async def rounds(self, done):
        """Answer all requests that wait at the same time, until ``done()``; the names of each round."""
        found = []
        while not done():
            await settle()
            waiting, self.waiting = self.waiting, []
            if waiting:
                found.append(sorted(name for name, _ in waiting))
            for _, gate in waiting:
                gate.set_result(None)
            await settle()
        return found


@pytest.fixture
async def ground():
    return Ground(layout=PulsarLayout())


async def full(ground, count):
    """A managed ledger whose first ledger has so many of ten entries."""
    ledger = await ground.open(KEEP)
    await append(ledger, [b"x"] * count)
    await settle()
    return ledger


async def stored(ground):
    """(ledger id, closed) of the stored list."""
    value, _ = await ground.metadata.get(ledger_list_path(NAME))
    return [(slot.ledger_id, bool(slot.closed_at_ms)) for slot in PulsarLayout().decode_list(value).ledgers]


@pytest.mark.parametrize(
    ("entries", "more", "expected"),
    [
        pytest.param(9, 3, [["close"], ["put"]], id="reserve"),
        pytest.param(2, 10, [["close", "create"], ["put"], ["put"]], id="none"),
    ],
)
async def test_a_roll_over_makes_these_rounds_of_requests(ground, monkeypatch, entries, more, expected):
    ledger = await full(ground, entries)
    steps = Steps(ground, monkeypatch)
    steps.hold_close(0, monkeypatch)
    steps.held, results = True, []
    ledger.append(run_of([b"y"] * more), results.append)
    assert await steps.rounds(lambda: len(ledger.ledgers) == 2) == expected
    assert await stored(ground) == [(0, True), (1, False)]
    steps.held = False
    await until(lambda: results)
    assert results[0].error is None


async def test_no_list_names_the_reserve(ground):
    ledger = await full(ground, 9)
    assert await ground.ledgers.list_ledgers() == [0, 1]
    assert await stored(ground) == [(0, False)]
    await append(ledger, [b"y"])
    await settle()
    assert await stored(ground) == [(0, True)]  # no append waits
    await append(ledger, [b"z"])
    assert await stored(ground) == [(0, True), (1, False)]
    assert await ground.ledgers.list_ledgers() == [0, 1]


@pytest.mark.parametrize("end", ["close", "delete", "terminate"])
async def test_the_reserve_goes_with_the_log(ground, end):
    ledger = await full(ground, 9)
    await getattr(ledger, end)()
    await settle()
    assert await ground.ledgers.list_ledgers() == ([] if end == "delete" else [0])


async def test_the_reserve_of_a_former_owner_goes(ground):
    ledger = await full(ground, 9)
    taken = Ground(ground.ledgers, ground.metadata, PulsarLayout())
    await taken.open(KEEP)
    with pytest.raises(StorageError):
        await append(ledger, [b"y"] * 3)
    await ledger.close()
    await settle()
    assert await ground.ledgers.list_ledgers() == [0, 2]  # 2: the reserve of the next owner


async def test_a_failed_save_loses_no_ledger(ground):
    ledger = await full(ground, 9)
    ground.metadata.fail_writes = StorageUnavailableError("away")
    with pytest.raises(StorageUnavailableError):
        await append(ledger, [b"y"] * 3)
    await settle()
    ground.metadata.fail_writes = None
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"z"] * 2)
    await settle()
    listed = await stored(ground)
    assert [closed for _, closed in listed] == [True, False]
    assert await ground.ledgers.list_ledgers() == [ledger_id for ledger_id, _ in listed]


async def test_no_reserve_while_no_ledger_can_be_created(ground):
    ground.may_roll = False
    await full(ground, 9)
    assert await ground.ledgers.list_ledgers() == [0]


async def test_a_reserve_that_cannot_be_created_is_created_at_need(ground, monkeypatch):
    create, failures = ground.ledgers.create, [StorageUnavailableError("away")]
    ledger = await full(ground, 2)

    async def failing_once(properties=None):
        if failures:
            raise failures.pop()
        return await create(properties)

    monkeypatch.setattr(ground.ledgers, "create", failing_once)
    await append(ledger, [b"x"] * 7)
    await settle()
    assert (failures, await ground.ledgers.list_ledgers()) == ([], [0])
    await append(ledger, [b"y"] * 3)
    assert await stored(ground) == [(0, True), (1, False)]


async def test_appends_that_come_while_the_reserve_is_created_wait_for_it(ground, monkeypatch):
    ledger = await full(ground, 2)
    steps = Steps(ground, monkeypatch)
    steps.held = True
    await append(ledger, [b"x"] * 7)
    results = []
    ledger.append(run_of([b"y"] * 3), results.append)
    assert await steps.rounds(lambda: results) == [["create", "put"], ["put"]]
    assert results[0].error is None
    assert await ground.ledgers.list_ledgers() == [0, 1]


async def test_a_failed_ledger_is_settled_before_the_reserve_takes_entries(ground):
    ledger = await full(ground, 9)
    ground.ledgers.fail_appends = StorageError("lost")
    with pytest.raises(StorageError):
        await append(ledger, [b"y"])
    ground.ledgers.fail_appends = None
    await settle()
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"z"])
    assert await stored(ground) == [(0, True), (1, False)]
    again = await ground.after_crash().open(KEEP)
    assert [slot.entries for slot in again.ledgers] == [9, 1]


async def test_an_append_that_comes_when_the_seal_ends_finds_the_reserve(ground, monkeypatch):
    ledger = await full(ground, 9)
    steps = Steps(ground, monkeypatch)
    steps.hold_close(0, monkeypatch)
    steps.held, results = True, []
    ledger.append(run_of([b"y"]), results.append)
    await settle()
    [(_, closed)], steps.waiting = steps.waiting, []
    closed.set_result(None)
    ledger.append(run_of([b"z"]), results.append)
    assert await steps.rounds(lambda: len(results) == 2) == [["put"]]
    assert [result.error for result in results] == [None, None]
    assert await stored(ground) == [(0, True), (1, False)]
    assert await ground.ledgers.list_ledgers() == [0, 1]


@pytest.mark.parametrize("first", [1, 2])
async def test_a_reserve_that_another_client_fenced_is_replaced(ground, first):
    ledger = await full(ground, 9)
    await ground.ledgers.open_recover(1)  # as auto-recovery does with ledgers of a lost bookie
    for count in (first, 3):
        await append(ledger, [b"y"] * count)
        await settle()
    assert await stored(ground) == [(0, True), (2, False)]
    assert await ground.ledgers.list_ledgers() == [0, 2]


async def test_a_fenced_reserve_goes_with_the_log(ground):
    ledger = await full(ground, 9)
    await ground.ledgers.open_recover(1)
    await ledger.close()
    await settle()
    assert await ground.ledgers.list_ledgers() == [0]
