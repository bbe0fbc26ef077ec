"""Calls of the REST API by the console."""

import asyncio

from starlette.responses import Response, StreamingResponse

from magnetar.console import inner_calls
from magnetar.console.inner_calls import InnerCalls


async def called(answer):
    return await InnerCalls(answer, {"client": ("127.0.0.1", 1)}, None).get("/admin/v2/broker-stats/topics?a=b")


async def test_a_long_stream_arrives_whole():
    """The first page listed no topic of a broker with more than a hundred: a stream ends with its connection."""

    async def parts():
        for _ in range(100):
            yield b"x" * 1000
            await asyncio.sleep(0)

    answer = await called(StreamingResponse(parts()))
    assert (answer.status, len(answer.body)) == (200, 100_000)


async def test_an_answer_too_large_for_a_page_is_an_error(monkeypatch):
    monkeypatch.setattr(inner_calls, "MOST_ANSWER_BYTES", 10)
    answer = await called(Response(b"x" * 11))
    assert (answer.status, answer.reason) == (507, "the answer is too large for a page")
