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
