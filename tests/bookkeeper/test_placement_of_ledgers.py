"""Racks and groups of simulated bookies, seen through a client: new ledgers, replacements, the order of reads."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.bookies.isolation import POLICY_KEY, isolation_groups, policy_of
from magnetar.bookkeeper.bookies.placement import PlacementRules
from magnetar.bookkeeper.errors import ClientClosedError, NotEnoughBookiesError
from magnetar.bookkeeper.options import LedgerOptions
from tests.bookkeeper.sim_cluster import SimCluster, simulated
from tests.waiting import until

PAIR = LedgerOptions(2, 2, 1)


def bookies(*numbers):
    return {f"bookie-{number}:3181" for number in numbers}


@simulated
async def test_a_ledger_with_groups_of_its_own_stays_within_them_also_when_a_bookie_is_replaced():
    cluster = SimCluster(bookies=6)
    member = cluster.join(add_timeout_s=1)
    member.registry.groups = {"red": frozenset(bookies(0, 1, 2)), "blue": frozenset(bookies(3, 4, 5))}
    custom = {POLICY_KEY: policy_of(isolation_groups("red", None))}
    writer = await member.client.create(PAIR, custom)
    first = set(writer.metadata.last_segment.bookies)
    assert first < bookies(0, 1, 2)
    await writer.append(b"a")
    cluster.network.bookies[min(first)].crash()
    cluster.refresh()
    await writer.append(b"b")
    await until(lambda: min(first) not in writer.metadata.last_segment.bookies, 60, "another bookie")
    assert set(writer.metadata.last_segment.bookies) == bookies(0, 1, 2) - {min(first)}
    await cluster.close()


@simulated
async def test_groups_of_the_client_hold_for_ledgers_without_groups():
    cluster = SimCluster(bookies=4)
    rules = PlacementRules(isolation=isolation_groups("red", "blue"))
    member = cluster.join(placement=rules)
    member.registry.groups = {
        "red": frozenset(bookies(0, 1)),
        "blue": frozenset(bookies(2)),
        "x": frozenset(bookies(3)),
    }
    assert set((await member.client.create(PAIR)).metadata.last_segment.bookies) == bookies(0, 1)
    three = await member.client.create(LedgerOptions(3, 2, 2))
    assert set(three.metadata.last_segment.bookies) == bookies(0, 1, 2)
    with pytest.raises(NotEnoughBookiesError, match="within the groups and racks"):
        await member.client.create(LedgerOptions(4, 2, 2))
    await cluster.close()


@simulated
async def test_too_few_racks_refuse_a_ledger_where_racks_are_enforced():
    racks = dict.fromkeys(bookies(0, 1, 2), "/one")
    cluster = SimCluster(bookies=3, racks=racks)
    member = cluster.join(placement=PlacementRules(enforce_min_racks=True))
    with pytest.raises(NotEnoughBookiesError, match="racks"):
        await member.client.create(PAIR)
    member.registry._racks["bookie-2:3181"] = "/two"  # the node changed
    assert "bookie-2:3181" in (await member.client.create(PAIR)).metadata.last_segment.bookies
    await cluster.close()


@simulated
async def test_reads_go_to_the_replica_of_the_own_rack_first():
    racks = {"bookie-0:3181": "/east/a", "bookie-1:3181": "/west/a", "bookie-2:3181": "/east/b"}
    cluster = SimCluster(bookies=3, racks=racks)
    for number, order in ((0, (0, 2, 1)), (1, (1,)), (2, (2, 0, 1))):
        distance = cluster.join(local_host=f"bookie-{number}").client._context.distances()
        found = sorted(racks, key=distance)
        assert found[: len(order)] == [f"bookie-{n}:3181" for n in order]
    anywhere = cluster.join(local_host="elsewhere").client._context.distances()
    assert {anywhere(bookie) for bookie in racks} == {0}
    await cluster.close()


@simulated
async def test_a_new_ledger_waits_for_enough_bookies():
    cluster = SimCluster(bookies=3)
    client = cluster.join().client
    cluster.bookies[0].crash()
    cluster.refresh()
    waiting = asyncio.ensure_future(client.create(LedgerOptions(3, 3, 2), wait_s=10))
    await asyncio.sleep(9)
    cluster.refresh()  # a change that brings no bookie
    await asyncio.sleep(0)
    assert not waiting.done()
    cluster.bookies[0].start()
    cluster.refresh()
    began_s = asyncio.get_running_loop().time()
    assert len((await waiting).metadata.last_segment.bookies) == 3
    assert asyncio.get_running_loop().time() - began_s < 0.5
    await cluster.close()


@simulated
async def test_the_wait_for_enough_bookies_has_an_end():
    cluster = SimCluster(bookies=2)
    member = cluster.join()
    loop = asyncio.get_running_loop()
    for wait_s in (0, 10):
        began_s = loop.time()
        with pytest.raises(NotEnoughBookiesError, match="an ensemble of 3, but 2"):
            await member.client.create(LedgerOptions(3, 3, 2), wait_s=wait_s)
        assert loop.time() - began_s == pytest.approx(wait_s)
    given_up = loop.create_future()
    waiting = asyncio.ensure_future(member.client.create(LedgerOptions(3, 3, 2), wait_s=10, given_up=given_up))
    await asyncio.sleep(4)
    given_up.set_result(None)
    began_s = loop.time()
    with pytest.raises(NotEnoughBookiesError, match="an ensemble of 3, but 2"):
        await waiting
    assert loop.time() == began_s
    assert member.registry._listeners == []
    waiting = asyncio.ensure_future(member.client.create(LedgerOptions(3, 3, 2), wait_s=10))
    await asyncio.sleep(1)
    await member.client.close()
    cluster.network.add_bookie("bookie-9:3181")
    cluster.refresh()
    with pytest.raises(ClientClosedError):
        await waiting
