"""Places of pages: bounds and turns of addresses, also where visitors leave."""

import asyncio
import random

import pytest

from magnetar.console.places import Places, TooManyWaitError

AT_WORK, AT_WORK_OF_ADDRESS, MOST_WAITING_OF_ADDRESS, MOST_WAITING = 4, 3, 64, 100


def four_places():
    return Places(AT_WORK, AT_WORK_OF_ADDRESS, MOST_WAITING_OF_ADDRESS, MOST_WAITING)


@pytest.mark.parametrize("seed", range(5))
async def test_no_place_is_lost_and_no_visitor_waits_for_ever(seed):
    rng, places, at_work = random.Random(seed), four_places(), []

    async def visit(address):
        async with places.place(address):
            at_work.append(address)
            try:
                assert len(at_work) <= AT_WORK
                assert at_work.count(address) <= AT_WORK_OF_ADDRESS
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                at_work.remove(address)

    visits = []
    for _ in range(300):
        visits.append(asyncio.ensure_future(visit(rng.choice("aaab"))))
        if rng.random() < 0.5:
            await asyncio.sleep(0)
        if rng.random() < 0.2:
            rng.choice(visits[-20:]).cancel()
    found = await asyncio.wait_for(asyncio.gather(*visits, return_exceptions=True), 20)
    assert {type(each) for each in found} <= {type(None), asyncio.CancelledError, TooManyWaitError}
    assert not places._held
    assert not places._waiting


async def test_addresses_get_places_in_turn():
    places, order, go_on = four_places(), [], asyncio.Event()

    async def visit(address):
        async with places.place(address):
            await go_on.wait()
            order.append(address)

    visits = [asyncio.ensure_future(visit(address)) for address in "aaaa" + "b" * 4 + "aabb"]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(*visits)
    assert order[:4] == ["a", "a", "a", "b"]
    assert {*order[4:6]} == {*order[6:8]} == {"a", "b"}


async def test_an_address_waits_with_a_bounded_number_of_requests():
    places, go_on = four_places(), asyncio.Event()

    async def visit():
        async with places.place("a"):
            await go_on.wait()

    visits = [asyncio.ensure_future(visit()) for _ in range(AT_WORK_OF_ADDRESS + MOST_WAITING_OF_ADDRESS)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyWaitError):
        await visit()
    go_on.set()
    await asyncio.gather(*visits)


async def test_all_addresses_wait_with_a_bounded_number_of_requests():
    places, go_on = four_places(), asyncio.Event()

    async def visit(address):
        async with places.place(address):
            await go_on.wait()

    visits = [asyncio.ensure_future(visit(f"10.0.0.{k}")) for k in range(AT_WORK + MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyWaitError):
        await visit("10.1.0.1")
    go_on.set()
    await asyncio.gather(*visits)
