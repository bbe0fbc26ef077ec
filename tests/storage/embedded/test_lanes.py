from __future__ import annotations

import asyncio
import threading

import pytest

from magnetar.storage.embedded.lanes import InlineThreads, RealThreads


@pytest.fixture(params=[InlineThreads, RealThreads])
def threads(request):
    return request.param()


async def test_items_are_worked_in_order_and_answered_in_order(threads):
    answered: list[int] = []
    lane = threads.lane("t", lambda batch: [item * 2 for item in batch], lambda _b, result, _e: answered.extend(result))
    for item in range(100):
        lane.submit(item)
    assert answered == []
    await lane.wait_idle()
    assert answered == [item * 2 for item in range(100)]
    await lane.close()
    await lane.close()


async def test_batches_keep_to_their_size(threads):
    sizes: list[int] = []
    gate = threading.Event()

    def work(batch: list[int]) -> int:
        gate.wait(5)
        return len(batch)

    lane = threads.lane("t", work, lambda _b, result, _e: sizes.append(result), max_batch_bytes=10)
    for item in range(9):
        lane.submit(item, 4)
    gate.set()
    await lane.close()
    assert sum(sizes) == 9
    assert max(sizes) <= 3


async def test_an_error_of_the_work_is_raised(threads):
    seen: list[object] = []

    def work(batch: list[int]) -> None:
        raise OSError(5, "gone")

    lane = threads.lane("t", work, lambda batch, result, error: seen.append((batch, result, type(error))))
    lane.submit(1)
    await lane.close()
    assert seen == [([1], None, OSError)]


async def test_close_finishes_submitted_jobs(threads):
    done: list[int] = []
    lane = threads.lane("t", lambda batch: batch, lambda batch, _r, _e: done.extend(batch))
    for item in range(50):
        lane.submit(item)
    await lane.close()
    assert done == list(range(50))


async def test_pool_runs_jobs_and_tells_errors(threads):
    pool = threads.pool("p", 2)
    seen: list[tuple[object, object]] = []

    def fails() -> None:
        raise ValueError("no")

    for number in range(10):
        pool.run(lambda number=number: number, lambda result, error: seen.append((result, error)))
    pool.run(fails, lambda result, error: seen.append((result, type(error))))
    await pool.close()
    assert sorted(str(item) for item in seen) == sorted([*(str((k, None)) for k in range(10)), str((None, ValueError))])


async def test_a_loop_that_is_gone_does_not_keep_the_thread():
    started, gate = threading.Event(), threading.Event()
    running: list[threading.Thread] = []

    async def main() -> None:
        def work(batch: list[int]) -> None:
            running.append(threading.current_thread())
            started.set()
            gate.wait(5)

        lane = RealThreads().lane("t", work, lambda _b, _r, _e: None)
        lane.submit(1)
        started.wait(5)

    await asyncio.to_thread(asyncio.run, main())
    gate.set()
    assert running[0].daemon


def _refuse_threads(patch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    patch.setattr(threading.Thread, "start", start)


async def test_a_lane_without_its_thread_reports_an_error_and_starts_the_thread_later(monkeypatch):
    seen: list[tuple[list[int], object, type]] = []
    lane = RealThreads().lane("t", lambda batch: "done", lambda batch, result, e: seen.append((batch, result, type(e))))
    with monkeypatch.context() as patch:
        _refuse_threads(patch)
        lane.submit(1)
        assert seen == []
        await lane.wait_idle()
    lane.submit(2)
    await lane.close()
    assert seen == [([1], None, RuntimeError), ([2], "done", type(None))]


async def test_a_pool_without_threads_reports_an_error_and_starts_a_thread_later(monkeypatch):
    seen: list[tuple[object, type]] = []
    pool = RealThreads().pool("t", 2)

    def done(result: object, error: BaseException | None) -> None:
        seen.append((result, type(error)))

    with monkeypatch.context() as patch:
        _refuse_threads(patch)
        pool.run(lambda: 1, done)
        assert seen == []
        await pool.close()
    pool.run(lambda: 2, done)
    await pool.close()
    assert seen == [(None, RuntimeError), (2, type(None))]


async def test_a_pool_with_one_thread_works_where_a_second_cannot_start(monkeypatch):
    seen: list[object] = []
    pool, gate = RealThreads().pool("t", 2), threading.Event()
    pool.run(lambda: gate.wait(5), lambda result, _e: seen.append(result))
    with monkeypatch.context() as patch:
        _refuse_threads(patch)
        pool.run(lambda: 2, lambda result, _e: seen.append(result))
    gate.set()
    await pool.close()
    assert seen == [True, 2]


@pytest.mark.parametrize("workers", [1, 4])
def test_jobs_together_are_all_done_or_raise_the_first_error(threads, workers):
    done: list[int] = []
    threads.together(done.append, range(100), workers)
    threads.together(done.append, [], workers)
    assert sorted(done) == list(range(100))

    def fail(item: int) -> None:
        done.append(item)
        if item == 150:
            raise OSError(5, "gone")

    with pytest.raises(OSError, match="gone"):
        threads.together(fail, range(100, 10_000), workers)
    assert 50 <= len(done) - 100 < 9_000, "no further item begins"


def test_jobs_together_wait_for_the_disk_at_the_same_time():
    at_once = threading.Barrier(4, timeout=60)
    RealThreads().together(lambda _item: at_once.wait(), range(8), 4)
    assert not at_once.broken


def test_jobs_together_need_no_further_thread(monkeypatch):
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    RealThreads().together(done.append, range(5), 4)
    assert done == [0, 1, 2, 3, 4]
