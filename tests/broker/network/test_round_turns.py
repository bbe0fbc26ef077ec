"""Turns of connections on a running event loop."""

import asyncio

from magnetar.broker.network.round_turns import RoundTurns


async def test_a_round_of_the_loop_has_few_turns():
    turns, begun = RoundTurns(4), []

    async def handshake(number):
        await turns.wait()
        begun.append(number)

    tasks = [asyncio.ensure_future(handshake(number)) for number in range(50)]
    await asyncio.sleep(0)
    for gone in tasks[10:20]:
        gone.cancel()
    most = before = 0
    while len(begun) < 40:
        await asyncio.sleep(0)
        most, before = max(most, len(begun) - before), len(begun)
    assert most == 4
    assert begun == [*range(10), *range(20, 50)]


async def test_a_turn_that_raises_holds_no_other_connection():
    turns, done = RoundTurns(4), []

    def fails():
        raise ValueError("a bug")

    turns.add(fails)
    for number in range(6):
        turns.add(lambda number=number: done.append(number) is None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == [*range(6)]


async def test_addresses_have_turns_one_after_the_other():
    turns, had = RoundTurns(4), []
    for address, count in (("a", 5), ("b", 2), ("c", 1)):
        for number in range(count):
            turns.add(lambda turn=f"{address}{number}": had.append(turn) is None, address)
    await asyncio.sleep(0)
    assert had == ["a0", "b0", "c0", "a1"]
    turns.add(lambda: had.append("d0") is None, "d")
    await asyncio.sleep(0)
    assert had[4:] == ["b1", "a2", "d0", "a3"]


async def test_work_at_once_shares_a_round_and_never_overtakes_turns_that_wait():
    turns = RoundTurns(4)
    assert [turns.at_once(3), turns.at_once(3), turns.at_once(1)] == [True, True, False]
    await asyncio.sleep(0)
    assert turns.at_once(100)
    await asyncio.sleep(0)
    turns.add(lambda: 1)
    assert not turns.at_once(1)
    await asyncio.sleep(0)
    assert turns.at_once(1)


async def test_a_turn_of_much_work_counts_as_several():
    turns, had = RoundTurns(4), []
    for cost in (1, 2, 50, 1, 1):
        turns.add(lambda cost=cost: had.append(cost) or cost)
    await asyncio.sleep(0)
    assert had == [1, 2, 50]
    await asyncio.sleep(0)
    assert had == [1, 2, 50, 1, 1]
