"""Requests of many connections on a running event loop."""

import asyncio

from magnetar.broker.admin.http_turns import LINES_A_TURN, REQUESTS_IN_ONE_ROUND, HttpTurns, turns_of_head


async def test_a_round_of_the_loop_begins_few_requests():
    """With 200 connections full of GETs a message waited for 0.23 s of processor time."""
    begun = []

    async def app(scope, receive, send):
        begun.append(scope["number"])

    turns = HttpTurns(app)
    tasks = [asyncio.ensure_future(turns({"number": number}, None, None)) for number in range(50)]
    tasks[20].cancel()
    most = before = 0
    while len(begun) < 50 - 1:
        await asyncio.sleep(0)
        most, before = max(most, len(begun) - before), len(begun)
    assert most == REQUESTS_IN_ONE_ROUND
    assert begun == [number for number in range(50) if number != 20]


async def test_addresses_begin_their_requests_in_turn():
    begun = []

    async def app(scope, receive, send):
        begun.append(scope["client"][1])

    turns = HttpTurns(app)
    clients = [*(("10.0.0.1", port) for port in range(50)), ("10.0.0.2", 50)]
    tasks = [asyncio.ensure_future(turns({"client": client}, None, None)) for client in clients]
    for _ in range(4):
        await asyncio.sleep(0)
    assert begun[:3] == [0, 50, 1]
    await asyncio.gather(*tasks)


def test_a_head_counts_by_its_lines():
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    assert turns_of_head(head) == 0, "incomplete"
    assert turns_of_head(head + b"\r\n") == turns_of_head(head.replace(b"\r", b"") + b"\n" + b"\n" * 9999) == 1
    assert turns_of_head(head + b"a:\r\n" * 10 * LINES_A_TURN + b"\r\n") == 11
