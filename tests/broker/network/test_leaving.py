"""Clients of a lost connection leave in turns of the event loop."""

from __future__ import annotations

import asyncio

from magnetar.broker.handlers.request_turns import (
    COMMANDS_OF_A_REQUEST,
    FEW_REQUESTS,
    REQUESTS_IN_ONE_ROUND,
    RequestTurns,
)
from magnetar.broker.network.leaving import Leaving


class Client:
    def __init__(self, held_entries=0, *, fails=False):
        self.held_entries, self.fails, self.gone = held_entries, fails, False

    def connection_lost(self):
        self.gone = True
        if self.fails:
            raise RuntimeError("a bug")


def gone(clients):
    return sum(client.gone for client in clients)


def begin(clients, turns):
    Leaving(clients, turns, asyncio.get_running_loop()).begin()


async def rounds(clients):
    """How many clients left in each further round of the event loop, until all have left."""
    found = []
    while gone(clients) < len(clients):
        before = gone(clients)
        await asyncio.sleep(0)
        found.append(gone(clients) - before)
    return found


async def test_a_few_clients_leave_at_once():
    clients = [Client() for _ in range(FEW_REQUESTS)]
    begin(clients, RequestTurns())
    assert gone(clients) == FEW_REQUESTS


async def test_thousands_of_clients_leave_in_rounds():
    """12,000 consumers of a Key_Shared subscription left in one callback of 4.5 s."""
    clients = [Client() for _ in range(3000)]
    begin(clients, RequestTurns())
    assert gone(clients) == FEW_REQUESTS
    left = await rounds(clients)
    assert max(left) <= REQUESTS_IN_ONE_ROUND
    assert len(left) < 300


async def test_the_ends_of_many_connections_in_one_round_share_its_limit():
    turns, connections = RequestTurns(), [[Client() for _ in range(FEW_REQUESTS)] for _ in range(50)]
    every = [client for clients in connections for client in clients]
    for clients in connections:
        begin(clients, turns)
    assert gone(every) < REQUESTS_IN_ONE_ROUND
    assert max(await rounds(every)) <= REQUESTS_IN_ONE_ROUND


async def test_a_client_that_holds_tens_of_thousands_of_messages_leaves_in_a_round_of_its_own():
    clients = [Client(50_000) for _ in range(5)]
    begin(clients, RequestTurns())
    assert gone(clients) == 0
    assert max(await rounds(clients)) == 1


async def test_a_bug_in_one_client_keeps_no_other():
    clients = [Client(fails=number % 2 == 0) for number in range(100)]
    begin(clients, RequestTurns())
    await rounds(clients)
    assert gone(clients) == 100


async def test_no_client_leaves_in_a_round_that_has_much_work():
    turns, clients = RequestTurns(), [Client()]
    turns.count(asyncio.get_running_loop(), REQUESTS_IN_ONE_ROUND * COMMANDS_OF_A_REQUEST)
    begin(clients, turns)
    assert not clients[0].gone
    assert sum(await rounds(clients)) == 1
