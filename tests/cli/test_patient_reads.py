"""Sources that block: they hold up neither the event loop nor its end."""

import asyncio
import threading

import pytest

from magnetar.cli.errors import FileError
from magnetar.cli.patient_reads import next_of


async def test_items_come_in_order_until_the_end():
    source = iter("ab")
    assert [await next_of(source) for _ in range(4)] == ["a", "b", None, None]


async def test_an_error_of_the_source_is_raised():
    def failing():
        raise FileError("cannot read x")
        yield

    with pytest.raises(FileError, match="cannot read x"):
        await next_of(failing())


def test_a_source_that_blocks_holds_up_no_interrupt():
    """`magnetar produce` with lines of a terminal ended after the third Ctrl-C, with a core dump."""
    go_on = threading.Event()

    def blocked():
        go_on.wait()
        yield "late"

    async def interrupted():
        await asyncio.wait_for(next_of(blocked()), 0.05)

    try:
        ending = threading.Timer(20, go_on.set)
        ending.start()
        with pytest.raises(TimeoutError):
            asyncio.run(interrupted())
        assert not go_on.is_set()
    finally:
        ending.cancel()
        go_on.set()
