"""Real processes: started, killed, never left behind."""

import asyncio
import os
import sys

import pytest

from magnetar.broker.foreign_entries.config import ConvertingConfig
from magnetar.broker.foreign_entries.frames import DECLINED
from magnetar.broker.foreign_entries.loading import hello
from magnetar.broker.foreign_entries.worker_process import WorkerError, WorkerProcess, WorkerTimeoutError
from magnetar.converters.entry import Entry
from magnetar.converters.outcome import FailureReason
from tests.blackbox.bad_converters import PATHS
from tests.broker.foreign_entries.converting_for_tests import foreign

TIMEOUT_S = 20.0


@pytest.fixture(scope="module", autouse=True)
def repository_on_the_path():
    """Workers look for foreign classes where their broker does."""
    assert any(os.path.isdir(os.path.join(each or ".", "tests")) for each in (*sys.path, ""))


def worker(*specs, **config):
    return WorkerProcess(hello(ConvertingConfig(specs, **config), [os.getcwd(), *sys.path]))


def alive(pid):
    return os.path.exists(f"/proc/{pid}")


async def test_it_converts_one_entry_after_the_other_and_ends():
    process = worker("bytes")
    first = await process.convert(foreign(b"one"), TIMEOUT_S)
    second = await process.convert(foreign(b"", messages=1), TIMEOUT_S)
    assert Entry(first.entry).payload == b"one"
    assert second.messages == 1
    assert await process.convert(foreign(entry_format="other"), TIMEOUT_S) is DECLINED
    assert [each.name for each in process.welcome.converters] == ["bytes"]
    pid = process.pid
    await process.close()
    assert not alive(pid)


async def test_it_shares_the_session_of_its_broker_so_that_its_niceness_counts():
    process = worker("bytes")
    try:
        await process.start()
        assert os.getsid(process.pid) == os.getsid(0), "the scheduler shares out among sessions first"
        assert os.getpgid(process.pid) == process.pid, "a Ctrl-C is for the broker, and killing takes what it started"
    finally:
        await process.close()


async def test_foreign_code_harms_its_own_process_only():
    process = worker(*PATHS.split(","), worker_memory_bytes=512 << 20)
    try:
        good = await process.convert(foreign(b"a", "upper"), TIMEOUT_S)
        assert Entry(good.entry).payload == b"A"
        for name, reason in (
            ("raises", FailureReason.EXCEPTION),
            ("garbage", FailureReason.INVALID),
            ("wrong-count", FailureReason.INVALID),
            ("gigabyte", FailureReason.EXCEPTION),
        ):
            failure = await process.convert(foreign(b"a", name), TIMEOUT_S)
            assert (failure.reason, failure.defect) == (reason, True), failure
        assert (await process.convert(foreign(b"a", "upper"), TIMEOUT_S)).entry == good.entry
        pid = process.pid
        with pytest.raises(WorkerError, match="ended"):
            await process.convert(foreign(b"a", "exits"), TIMEOUT_S)
        assert not alive(pid)
        await process.start()
        pid = process.pid
        with pytest.raises(WorkerTimeoutError, match="100 ms"):
            await process.convert(foreign(b"a", "sleeps"), 0.1)
        assert not alive(pid)
    finally:
        await process.kill()


async def test_a_refused_chain_converts_nothing():
    process = worker("nonsense")
    with pytest.raises(WorkerError, match="nonsense") as caught:
        await process.convert(foreign(), TIMEOUT_S)
    assert not caught.value.started
    assert process.pid is None


async def test_close_and_kill_of_a_process_that_never_started():
    process = worker("bytes")
    await process.close()
    assert await process.kill() is None
    await process.close()


async def test_a_process_that_is_just_being_started_is_ended_too():
    process = worker("bytes")
    starting = asyncio.ensure_future(process.convert(foreign(b"a"), TIMEOUT_S))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert process.pid is None
    assert Entry((await process.convert(foreign(b"b"), TIMEOUT_S)).entry).payload == b"b", "and may start again"
    await process.close()


async def test_the_loop_goes_on_while_a_megabyte_is_converted():
    process, payload, rounds = worker("bytes"), os.urandom(4 << 20), 0
    await process.start()
    converting = asyncio.ensure_future(process.convert(foreign(payload), TIMEOUT_S))
    while not converting.done():
        rounds += 1
        await asyncio.sleep(0)
    assert Entry(converting.result().entry).payload == payload and rounds > 1
    await process.close()
