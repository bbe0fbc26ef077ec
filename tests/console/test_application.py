"""The console as an ASGI application, over a REST API that answers nothing."""

import asyncio

from magnetar.console.application import Console


async def no_rest(scope, receive, send):
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def status_of(console, method, receive, path="/ui/login"):
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
        "client": ("127.0.0.1", 20),
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
