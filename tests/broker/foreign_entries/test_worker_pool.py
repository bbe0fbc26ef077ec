import asyncio

import pytest

from magnetar.broker.foreign_entries.frames import DECLINED
from magnetar.broker.foreign_entries.worker_pool import WorkerPool
from magnetar.broker.foreign_entries.worker_process import WorkerError, WorkerTimeoutError
from magnetar.converters.outcome import FailureReason
from tests.broker.foreign_entries.converting_for_tests import rounds


class Worker:
    """Answers when the test lets it answer."""

    made: list = []  # noqa: RUF012 - emptied for each test

    def __init__(self):
        self.made.append(self)
        self.entry = self.done = None
        self.closed = False

    async def convert(self, entry, timeout_s):
        self.entry, self.done = entry, asyncio.get_running_loop().create_future()
        try:
            return await self.done
        finally:
            self.entry = None

    async def close(self):
        self.closed = True


@pytest.fixture
async def new_pool():
    """A pool of so many workers."""
    Worker.made.clear()
    pools = []

    def new(size):
        pools.append(WorkerPool(size, 1.0, Worker))
        return pools[-1]

    yield new
    for pool in pools:
        await pool.close()


def converting():
    return [worker.entry for worker in Worker.made if worker.entry is not None]


async def finish(entry, result=DECLINED):
    [worker] = [each for each in Worker.made if each.entry == entry]
    if isinstance(result, Exception):
        worker.done.set_exception(result)
    else:
        worker.done.set_result(result)
    await rounds()


async def test_workers_are_started_when_needed_and_used_again(new_pool):
    pool = new_pool(8)
    first = pool.submit("a", "c", b"1")
    await rounds()
    assert len(Worker.made) == 1
    await finish(b"1")
    assert first.result() is DECLINED
    pool.submit("a", "c", b"2")
    await rounds()
    assert len(Worker.made) == 1


async def test_a_topic_has_at_most_a_quarter_of_the_workers(new_pool):
    pool = new_pool(8)
    for n in range(5):
        pool.submit("greedy", "c", b"g%d" % n)
    pool.submit("other", "c", b"o")
    await rounds()
    assert converting() == [b"g0", b"g1", b"o"]
    await finish(b"g1")
    assert sorted(converting()) == [b"g0", b"g2", b"o"]


async def test_topics_take_turns(new_pool):
    pool = new_pool(1)
    order = []
    for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
        pool.submit(name[0], "c", name.encode())
    for _ in range(6):
        await rounds()
        [entry] = converting()
        order.append(entry.decode())
        await finish(entry)
    assert order == ["a1", "a2", "b1", "c1", "a3", "b2"]
    assert pool.busy == 0


@pytest.mark.parametrize(
    ("error", "reason", "defect"),
    [
        (WorkerTimeoutError("slow", started=True), FailureReason.TIMEOUT, True),
        (WorkerError("died", started=True), FailureReason.EXCEPTION, True),
        (WorkerError("cannot start", started=False), FailureReason.EXCEPTION, False),
    ],
)
async def test_a_lost_worker_is_a_failure_of_its_entry(new_pool, error, reason, defect):
    pool = new_pool(1)
    first, second = pool.submit("a", "c", b"1"), pool.submit("a", "c", b"2")
    await rounds()
    await finish(b"1", error)
    assert (first.result().reason, first.result().defect) == (reason, defect)
    await finish(b"2")
    assert second.result() is DECLINED
    assert len(Worker.made) == 2


async def test_close_ends_workers_and_waiting_calls(new_pool):
    pool = new_pool(1)
    idle = Worker()
    pool.adopt(idle)
    running, waiting = pool.submit("a", "c", b"1"), pool.submit("a", "c", b"2")
    await rounds()
    await pool.close()
    assert idle.closed or idle.entry is None
    assert running.cancelled()
    assert waiting.cancelled()
    assert pool.busy == 0
