"""A command that waits ends with the reader of its output."""

import asyncio
import contextlib
import io
import os

import pytest

from magnetar.cli.readers import ends_with_reader


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    with contextlib.ExitStack() as files:
        yield files.enter_context(open(reading)), files.enter_context(open(writing, "w"))


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_a_wait_ends_with_the_reader(pipe, when):
    reader, writer = pipe

    async def waits():
        with ends_with_reader(writer):
            await asyncio.Event().wait()

    if when == "before":
        reader.close()
    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    reader.close()
    with pytest.raises(BrokenPipeError):
        await task


async def test_a_wait_goes_on_with_the_reader(pipe):
    _, writer = pipe
    with ends_with_reader(writer):
        await asyncio.sleep(0)
        assert asyncio.get_running_loop().remove_reader(writer.fileno())


async def test_nothing_is_watched_behind_the_wait(pipe):
    reader, writer = pipe
    with ends_with_reader(writer):
        await asyncio.sleep(0)
    reader.close()
    assert not asyncio.get_running_loop().remove_reader(writer.fileno())


async def test_an_interrupt_is_no_closed_pipe(pipe):
    async def waits():
        with ends_with_reader(pipe[1]):
            await asyncio.Event().wait()

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "make", [lambda _: io.StringIO(), lambda folder: open(folder / "f", "w")], ids=["text", "file"]
)
async def test_other_streams_have_no_reader(tmp_path, make):
    with make(tmp_path) as stream, ends_with_reader(stream):
        await asyncio.sleep(0)
