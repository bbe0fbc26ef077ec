"""The console as an ASGI application, over a REST API that answers nothing."""

import asyncio
import time
from urllib.parse import parse_qsl

import pytest
from starlette.requests import ClientDisconnect

from magnetar.console.application import Console, _form


async def no_rest(scope, receive, send):
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def status_of(console, method, receive, path="/ui/login", client="127.0.0.1"):
    answers = []

    async def send(message):
        answers.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/x-www-form-urlencoded")],
        "client": (client, 20),
        "server": ("127.0.0.1", 8080),
    }
    await console(scope, receive, send)
    return answers[0]["status"]


async def nothing_more():
    return {"type": "http.request", "body": b"", "more_body": False}


def test_forms_that_never_end_hold_no_other_visitor_up():
    async def run():
        console = Console(no_rest, authentication_enabled=True)

        async def never():
            await asyncio.Event().wait()

        slow = [asyncio.ensure_future(status_of(console, "POST", never)) for _ in range(100)]
        await asyncio.sleep(0)
        try:
            assert await asyncio.wait_for(status_of(console, "GET", nothing_more), 20) == 200
            assert await asyncio.wait_for(status_of(console, "POST", nothing_more), 20) == 401
        finally:
            for each in slow:
                each.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(run())


def test_files_that_do_not_exist_are_not_found():
    for path in ("/ui/static/none.css", "/ui/static/../application.py", "/ui/static/%00", "/ui/static/" + "a" * 5000):
        assert asyncio.run(status_of(Console(no_rest, authentication_enabled=False), "GET", nothing_more, path)) == 404


def test_slow_pages_of_an_address_hold_no_other_visitor_up():
    """One address took the places of all: its slow pages waited before those of other addresses, which got 503."""

    async def run():
        ends = asyncio.Event()

        async def slow_rest(scope, receive, send):
            if scope["client"][0] == "10.0.0.9":
                await ends.wait()
            await no_rest(scope, receive, send)

        console = Console(slow_rest, authentication_enabled=True)
        slow = [asyncio.ensure_future(status_of(console, "POST", nothing_more, client="10.0.0.9")) for _ in range(100)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert await asyncio.wait_for(status_of(console, "POST", nothing_more), 20) == 401
        ends.set()
        statuses = await asyncio.gather(*slow)
        assert (statuses.count(401), statuses.count(503)) == (67, 33)

    asyncio.run(run())


def test_no_page_is_made_for_a_visitor_that_left_during_the_wait():
    """The pages of visitors that had left were made first: an address got 503 meanwhile."""

    async def run():
        ends, calls, is_gone, are_full = asyncio.Event(), [], asyncio.Event(), asyncio.Event()

        async def slow_rest(scope, receive, send):
            calls.append(scope["path"])
            if len(calls) == 3:
                are_full.set()
            await ends.wait()
            await no_rest(scope, receive, send)

        async def leaves():
            return {"type": "http.disconnect"} if is_gone.is_set() else await nothing_more()

        console = Console(slow_rest, authentication_enabled=True)
        visits = [asyncio.ensure_future(status_of(console, "POST", leaves)) for _ in range(60)]
        await are_full.wait()
        is_gone.set()
        stayed = asyncio.ensure_future(status_of(console, "POST", nothing_more))
        await asyncio.sleep(0)
        ends.set()
        outcomes = await asyncio.gather(*visits, return_exceptions=True)
        assert await stayed == 401
        assert len(calls) == 4
        assert [type(each) for each in outcomes[3:]] == [ClientDisconnect] * 57

    asyncio.run(run())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"a=1&b=&c&=d&&a=2",
        b"a=%41+%c3%a9%zz%4&%62=%",
        b"a=" + b"%c3%a9" * 9000,
        b"a=" + b"x" * 8189 + b"%41%42" * 4000 + b"%",
        b"&".join(b"f%d=1" % i for i in range(50)),
    ],
)
def test_a_form_in_slices_is_read_like_a_whole_form(body):
    expected = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    assert asyncio.run(_form(body)) == expected


@pytest.mark.parametrize(
    "body",
    [b"token=" + b"%41" * 349_000, b"&".join(b"f%d=" % i + b"%" * 8000 for i in range(50))],
    ids=["a large field", "many fields below a slice"],
)
def test_a_large_form_is_decoded_in_many_turns(body):
    """A login form of a MiB of escapes, from a visitor without credentials, took a turn of 0.2 s."""

    async def run():
        decoding = asyncio.ensure_future(_form(body))
        turns = []
        while not decoding.done():
            start = time.thread_time()
            await asyncio.sleep(0)
            turns.append(time.thread_time() - start)
        assert len("".join(decoding.result().values())) > 300_000
        assert max(turns) < sum(turns) / 10

    asyncio.run(run())
