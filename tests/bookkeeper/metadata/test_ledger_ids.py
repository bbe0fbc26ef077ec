"""Draws of ledger ids: how many requests they cost, and their failures."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.errors import MetadataUnavailableError, NoSuchNodeError
from magnetar.bookkeeper.metadata import ledger_ids
from magnetar.bookkeeper.metadata.ledger_ids import LedgerIds
from magnetar.bookkeeper.zookeeper.values import Create, Delete


class Session:
    """Counts the writes. ``fails``: the errors of the next writes; ``during``: calls during the next writes."""

    def __init__(self, has_directory=True):
        self.writes, self.fails, self.nodes, self.number = [], [], set(), 0
        self.has_directory, self.during = has_directory, []
        self.looks = 0

    async def exists(self, _path):
        self.looks += 1

    async def create(self, path, *, ephemeral, sequential, make_parents):
        assert (ephemeral, sequential, make_parents) == (True, True, True)
        self.has_directory = True
        return (await self.commit([Create(path, ephemeral=True, sequential=True)]))[0]

    async def delete(self, path):
        await self.commit([Delete(path)])

    async def commit(self, operations):
        await asyncio.sleep(0)
        if self.during:
            self.during.pop(0)()
        self.writes.append(len(operations))
        if self.fails and (error := self.fails.pop(0)) is not None:
            raise error
        if not self.has_directory:
            raise NoSuchNodeError(operations[0].path)
        if any(isinstance(each, Delete) and each.path not in self.nodes for each in operations):
            raise NoSuchNodeError(operations[0].path)
        return [self._carry_out(each) for each in operations]

    def _carry_out(self, operation):
        if isinstance(operation, Delete):
            self.nodes.remove(operation.path)
            return None
        assert operation.ephemeral
        assert operation.sequential
        self.number += 1
        self.nodes.add(f"{operation.path}{self.number:010d}")
        return f"{operation.path}{self.number:010d}"


class World:
    def __init__(self, monkeypatch, **options):
        monkeypatch.setattr(ledger_ids, "_PAUSE_S", 0)
        self.session, self.deletions = Session(**options), []
        self.ids = LedgerIds(self.session, "/ledgers", lambda work, _name: self.deletions.append(work))

    async def draw(self, count):
        return await asyncio.gather(*(self.ids.next() for _ in range(count)), return_exceptions=True)

    async def settle(self):
        """Delete the drawn nodes."""
        deletions, self.deletions = self.deletions, []
        await asyncio.gather(*deletions)


@pytest.fixture
async def world(monkeypatch):
    made = World(monkeypatch)
    yield made
    await made.settle()


async def test_one_id_costs_two_writes(world):
    assert await world.draw(1) == [1]
    await world.settle()
    assert world.session.writes == [1, 1]
    assert world.session.nodes == set()


async def test_the_directory_of_long_ids_is_looked_for_once(world):
    for number in range(1, 4):
        assert await world.draw(1) == [number]
    assert world.session.looks == 1


async def test_ids_that_are_drawn_together_share_their_writes(world):
    assert sorted(await world.draw(200)) == list(range(1, 201))
    await world.settle()
    assert sum(world.session.writes) == 400
    assert len(world.session.writes) < 12
    assert world.session.nodes == set()


async def test_the_first_draws_create_the_directory(monkeypatch):
    world = World(monkeypatch, has_directory=False)
    assert sorted(await world.draw(3)) == [1, 2, 3]
    await world.settle()


async def test_a_failed_draw_fails_the_callers_that_share_it(world):
    drawing = asyncio.ensure_future(world.draw(3))
    world.session.fails = [None, MetadataUnavailableError("/ledgers", "away")]
    found = await drawing
    assert found[0] == 1
    assert [type(each) for each in found[1:]] == [MetadataUnavailableError] * 2
    assert await world.draw(2) == [2, 3]
    await world.settle()


async def test_a_cancelled_draw_harms_no_other(world):
    first, *others = (asyncio.ensure_future(world.ids.next()) for _ in range(4))
    await asyncio.sleep(0)
    first.cancel()
    assert len(set(await asyncio.gather(*others))) == 3
    assert first.cancelled()
    await world.settle()


async def test_a_node_that_is_gone_keeps_no_other_node(world):
    await world.draw(3)
    world.session.nodes.remove("/ledgers/idgen/ID-0000000002")  # with a session that ended
    await world.settle()
    assert world.session.nodes == set()


def start(world, count):
    """Callers that wait at the same time: the first of them draws alone, the others share the next draws."""
    return [asyncio.ensure_future(world.ids.next()) for _ in range(count)]


def cancel(callers):
    for each in callers:
        each.cancel()


async def test_callers_that_are_gone_take_no_place_in_a_draw(world):
    callers = start(world, ledger_ids._TOGETHER + 2)
    world.session.during = [lambda: cancel(callers[1:-1])]
    async with asyncio.timeout(5):
        assert await asyncio.gather(callers[0], callers[-1]) == [1, 2]
    assert world.session.writes == [1, 1]
    await world.settle()


@pytest.mark.parametrize("error", [None, MetadataUnavailableError("/ledgers", "away")])
async def test_callers_that_are_cancelled_during_their_draw_harm_no_other(world, error):
    callers = start(world, 4)
    world.session.fails = [None, error]
    world.session.during = [lambda: None, lambda: cancel(callers[2:])]
    found = await asyncio.gather(*callers, return_exceptions=True)
    assert found[:2] == [1, error or 2]
    assert [type(each) for each in found[2:]] == [asyncio.CancelledError] * 2
    assert await world.draw(1) == [2 if error else 5]
    await world.settle()
