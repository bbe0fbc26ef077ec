"""Requests of all connections in a round of the event loop."""

import asyncio

from magnetar.broker.handlers.request_turns import (
    COMMANDS_OF_A_REQUEST,
    FEW_REQUESTS,
    LARGE_COMMAND_BYTES,
    REQUESTS_IN_ONE_ROUND,
    RequestTurns,
    cost_of,
)

TURNS = REQUESTS_IN_ONE_ROUND // FEW_REQUESTS


class Loop:
    """The callbacks of the next round."""

    def __init__(self):
        self.due = []

    def call_soon(self, callback, *args):
        self.due.append((callback, args))

    def run_round(self):
        due, self.due = self.due, []
        for callback, args in due:
            callback(*args)


def test_a_round_has_a_bounded_number_of_requests_and_the_next_round_as_many():
    loop, turns = Loop(), RequestTurns()
    for _ in range(2):
        number = turns.round
        assert [turns.count(loop) for _ in range(REQUESTS_IN_ONE_ROUND + 1)][-3:] == [False, True, True]
        loop.run_round()
        assert turns.round != number


def test_cheap_commands_count_less_than_requests():
    loop, turns = Loop(), RequestTurns()
    most = REQUESTS_IN_ONE_ROUND * COMMANDS_OF_A_REQUEST
    assert not turns.count(loop, most - COMMANDS_OF_A_REQUEST - 1)
    assert not turns.count(loop)
    assert turns.count(loop, 1)
    loop.run_round()
    assert not turns.count(loop, most - 1)


def test_large_commands_count_by_their_bytes_and_those_that_wait_find_room_in_their_turn():
    loop, turns, found = Loop(), RequestTurns(), []
    assert turns.takes(loop, LARGE_COMMAND_BYTES)
    assert turns.takes(loop, 1 << 20), "there was room when it began"
    assert not turns.takes(loop, LARGE_COMMAND_BYTES)
    for _ in range(2):
        turns.wait(lambda: found.append(turns.takes(loop, 1 << 20)), 1)
    loop.run_round()
    assert found == [True]
    loop.run_round()
    assert found == [True, True]


def test_connections_that_wait_go_on_in_their_order_a_few_in_each_round():
    loop, turns, went = Loop(), RequestTurns(), []
    turns.count(loop)
    for number in range(2 * TURNS + 1):
        turns.wait(lambda number=number: went.append(number))
    loop.run_round()
    assert went == list(range(TURNS))
    loop.run_round()
    loop.run_round()
    assert went == list(range(2 * TURNS + 1))
    assert not loop.due


def test_connections_with_few_commands_go_on_together():
    loop, turns, went = Loop(), RequestTurns(), []
    turns.count(loop)
    for number in range(100):
        turns.wait(lambda number=number: went.append(number), 20)
    loop.run_round()
    assert went == [*range(52)], "the commands of 52 connections fill a round"
    loop.run_round()
    assert went == [*range(100)]


def test_few_commands_wait_for_the_turns_of_few_connections():
    """An acknowledgement of a thousand ids waited behind the turns of all hostile connections, of 256 commands each."""
    loop, turns, went = Loop(), RequestTurns(), []

    def flood(number):
        went.append(number)
        turns.count(loop)
        turns.wait(lambda: flood(number), 256, number)

    turns.count(loop)
    for number in range(400):
        turns.wait(lambda number=number: flood(number), 256, number)
    for times in range(1, 4):
        loop.run_round()
        turns.wait(lambda: went.append("few"), 48, "other")
        loop.run_round()
        assert went.count("few") == times, "not behind 400 turns"
        for _ in range(70 * times):
            loop.run_round()
    times = [went.count(number) for number in range(400)]
    assert min(times) + 1 >= max(times) >= 4, "each connection has its turns"
    assert len(turns._ends) <= 2 * 400, "few ends that have passed"


def test_a_connection_with_little_work_does_not_keep_out_one_with_much():
    loop, turns, went = Loop(), RequestTurns(), []

    def often(number):
        went.append(number)
        turns.count(loop)
        turns.wait(lambda: often(number), 8, number)

    turns.count(loop)
    turns.wait(lambda: went.append("much"), 1024, "much")
    for number in range(4):
        turns.wait(lambda number=number: often(number), 8, number)
    for _ in range(130):
        loop.run_round()
    assert "much" in went
    assert went.index("much") >= 4 * 100, "its share is a fifth of the work"


def test_connections_that_come_anew_in_every_round_keep_out_no_other():
    loop, turns, went = Loop(), RequestTurns(), []
    turns.count(loop)
    turns.wait(lambda: went.append("much"), 1024, "much")
    for number in range(100):
        for each in range(11):
            turns.wait(lambda: turns.count(loop), 100, (number, each))
        loop.run_round()
    assert went == ["much"]


def test_the_cost_of_a_turn_counts_large_commands_by_their_bytes():
    small, large = (6, b"x"), (6, bytes(4096))
    assert cost_of([]) == 0
    assert cost_of([small, (1, 2, 3)]) == 2
    assert cost_of([large, small]) == 17
    assert cost_of([large] * 1000) == 1024, "as many as a round has"


def test_requests_that_begin_in_a_turn_count_in_its_round():
    loop, turns, went = Loop(), RequestTurns(), []

    def go_on():
        went.append([turns.count(loop) for _ in range(20)])

    turns.count(loop)
    for _ in range(10):
        turns.wait(go_on, 20)
    loop.run_round()
    assert len(went) == 4, "four times twenty requests fill a round"
    loop.run_round()
    assert len(went) == 8


def test_a_connection_that_waits_again_goes_behind_the_others():
    loop, turns, went = Loop(), RequestTurns(), []

    def busy():
        went.append("busy")
        turns.count(loop)
        turns.wait(busy)

    turns.count(loop)
    turns.wait(busy)
    turns.wait(lambda: went.append("other"))
    loop.run_round()
    assert went == ["busy", "other"]
    loop.run_round()
    assert went == ["busy", "other", "busy"]


def test_a_request_that_fails_holds_no_other_connection():
    loop, turns, went = Loop(), RequestTurns(), []

    def fails():
        raise RuntimeError("a bug")

    turns.count(loop)
    turns.wait(fails)
    turns.wait(lambda: went.append("other"))
    loop.run_round()
    assert went == ["other"]


async def test_work_of_an_unknown_cost_waits_for_a_round_with_room():
    loop, turns, went = asyncio.get_running_loop(), RequestTurns(), []

    async def work(number):
        await turns.room(loop, REQUESTS_IN_ONE_ROUND * COMMANDS_OF_A_REQUEST)
        went.append((number, turns.round))
        turns.count(loop, REQUESTS_IN_ONE_ROUND * COMMANDS_OF_A_REQUEST)

    await asyncio.gather(*map(work, range(4)))
    assert [number for number, _ in went] == list(range(4))
    assert len({place for _, place in went}) == 4
