"""The lane of the journal over a frame writer of the test: the writer of each frame, and the order."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.storage.embedded.engine_settings import EngineSettings
from magnetar.storage.embedded.journal.busy_poll import DISK_S, REST_S, Polled
from magnetar.storage.embedded.journal.writer import CONFIRM
from magnetar.storage.errors import StorageFailedError, StorageFullError
from tests.storage.embedded.journal.held_writer import HeldWriter, first_segment, opened, push
from tests.storage.engine_for_tests import World, append, read_all, settle
from tests.storage.records_for_tests import slab_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.engine import EmbeddedStorage
    from magnetar.storage.embedded.journal.frame_writer import Frame
    from magnetar.storage.embedded.ledger_store import EmbeddedLedgerWriter


async def test_appends_of_a_turn_share_a_frame_and_later_appends_wait_for_the_next():
    storage, writer, _ = await opened()
    ledgers = [await storage.ledgers.create() for _ in range(3)]
    await first_segment(ledgers[0])
    assert writer.frames == [], "a new segment is nothing the loop waits for"
    answers: list[object] = []
    for number, ledger in enumerate(ledgers):
        push(ledger, answers, number)
    await settle()
    assert len(writer.frames) == 1
    for number, ledger in enumerate(ledgers):
        push(ledger, answers, 3 + number)
    await settle()
    assert len(writer.frames) == 1
    assert answers == [], "no answer before the sync"
    writer.release()
    assert len(writer.frames) == 2, "the disk works on before the answers are given"
    assert answers == [0, 1, 2]
    writer.release()
    assert answers == [0, 1, 2, 3, 4, 5]
    assert writer.frames[1].sequence == writer.frames[0].sequence + 1
    assert await read_all(storage.ledgers, ledgers[0].ledger_id, 2) == [b"first", b"x", b"x"]
    await storage.close()
    assert writer.closed


async def test_a_frame_that_ended_during_a_large_read_is_reported_at_the_end_of_the_turn():
    storage, writer, _ = await opened(journal_max_frame_bytes=64 << 10)
    ledger = await storage.ledgers.create()
    await first_segment(ledger)
    answers: list[object] = []
    push(ledger, answers, "a")
    await settle()
    push(ledger, answers, "b")
    await settle()
    assert writer.waits == [], "a small read is over before a frame ends"
    push(ledger, answers, "large", b"x" * (32 << 10))
    await settle()
    assert (writer.waits, answers, len(writer.frames)) == ([0.0], [], 1), "the frame has not ended"
    writer.ends_in_wait = True
    push(ledger, answers, "c")
    push(ledger, answers, "d")
    await settle()
    assert (writer.waits, answers, len(writer.frames)) == ([0.0, 0.0], ["a"], 2), "one look a turn"
    writer.release()
    await settle()
    assert answers == ["a", "b", "large", "c", "d"]
    await storage.close()


async def test_a_frame_takes_no_more_than_its_most():
    storage, writer, _ = await opened(journal_max_frame_bytes=4096)
    ledger = await storage.ledgers.create()
    await first_segment(ledger)
    answers: list[object] = []
    for number in range(5):
        push(ledger, answers, number, b"b" * 1500)
    for expected in ([0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]):
        await settle()
        writer.release()
        assert answers == expected
    await storage.close()


async def test_an_append_behind_a_refused_append_fails_also_where_it_is_alone():
    storage, writer, _ = await opened(journal_max_frame_bytes=4096)
    ledger = await storage.ledgers.create()
    await first_segment(ledger)
    answers: list[object] = []
    push(ledger, answers, "large", bytes(65 << 10))
    push(ledger, answers, "behind")
    await settle()
    assert answers == [("large", "EntryTooLargeError"), ("behind", "EntryTooLargeError")]
    assert writer.frames == [], "a frame would have an entry without the entry before"
    push(ledger, answers, "again")
    await settle()
    writer.release()
    assert answers[2:] == ["again"]
    assert await read_all(storage.ledgers, ledger.ledger_id, 1) == [b"first", b"x"]
    await storage.close()


async def test_control_items_and_new_segments_go_to_the_thread_in_turn():
    storage, writer, _ = await opened()
    ledger = await storage.ledgers.create()
    await first_segment(ledger)
    lane = storage._parts.appends._lane
    answers: list[object] = []
    push(ledger, answers, 0)
    lane.submit(CONFIRM)
    push(ledger, answers, 1)
    await settle()
    assert len(writer.frames) == 1
    writer.release()
    await settle()
    assert answers == [0]
    assert len(writer.frames) == 2, "behind the confirmation"
    writer.release()
    assert answers == [0, 1]
    assert writer.frames[1].sequence == writer.frames[0].sequence + 2, "the confirmation is a frame of its own"
    await storage.close()


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOSPC, StorageFullError), (errno.EIO, StorageFailedError)], ids=["full", "failed"]
)
async def test_a_failed_frame_fails_its_appends_and_those_behind(number: int, expected: type[Exception]):
    storage, writer, world = await opened()
    ledger, other = await storage.ledgers.create(), await storage.ledgers.create()
    await first_segment(ledger)
    answers: list[object] = []
    push(ledger, answers, 0)
    await settle()
    push(ledger, answers, 1)
    push(other, answers, 2)
    writer.release(OSError(number, "as the test says"))
    await settle()
    name = expected.__name__
    assert answers == [(0, name), (1, name), (2, name)]
    assert ledger.last_add_pushed == ledger.last_add_confirmed == 0
    assert (storage.health.full is not None) == (expected is StorageFullError)
    assert (storage.health.failed is not None) == (expected is StorageFailedError)
    if expected is StorageFullError:
        world.scheduler.advance(10)
        await settle()
        waiting = asyncio.ensure_future(append(ledger, [b"again"]))
        await settle()
        while writer.done is not None:
            writer.release()
            await settle()
        await waiting
        assert await read_all(storage.ledgers, ledger.ledger_id, 1) == [b"first", b"again"]
    await storage.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EMFILE, "Too many open files"), StorageFullError),
        (MemoryError(), StorageFailedError),
        (RuntimeError("no thread for the journal"), StorageFailedError),
    ],
    ids=["descriptors", "memory", "threads"],
)
async def test_a_frame_whose_write_cannot_begin_fails_its_appends_alone(
    error: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
):
    storage, writer, _ = await opened()
    ledger, other = await storage.ledgers.create(), await storage.ledgers.create()
    await first_segment(ledger)
    answers: list[object] = []
    push(ledger, answers, 0)
    await settle()
    push(other, answers, 1)

    def refuse(frame: Frame, done: Callable[[OSError | None, float], None], *, is_awaited: bool = False) -> None:
        raise error

    monkeypatch.setattr(writer, "write", refuse)
    writer.release()
    await settle()
    assert answers == [0, (1, expected.__name__)]
    assert ledger.last_add_confirmed == 1
    assert (storage.health.full is not None, storage.health.failed is not None) == (
        expected is StorageFullError,
        expected is StorageFailedError,
    )
    monkeypatch.undo()
    await storage.close()


async def test_a_callback_that_raises_costs_no_other_its_answer():
    storage, writer, _ = await opened()
    ledger = await storage.ledgers.create()
    await first_segment(ledger)
    answers: list[object] = []
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context["exception"]))

    def raises(_error: object) -> None:
        raise ValueError("a bug")

    ledger.append(slab_of(ledger.ledger_id, ledger.last_add_pushed + 1, [b"a"], ledger.record_proof), raises)
    push(ledger, answers, 1)
    await settle()
    writer.release()
    assert answers == [1]
    assert len(problems) == 1
    await storage.close()


LAP_S = 0.0001
"""A short rest between two messages of a producer that waits for each receipt."""


@dataclass
class Polling:
    """A store with a poll of the test, and a producer that waits for each receipt."""

    storage: EmbeddedStorage
    writer: HeldWriter
    world: World
    ledger: EmbeddedLedgerWriter
    during: list[str]
    """For each poll: whether a frame was under way."""
    outcome: Polled = Polled.EVENT

    @classmethod
    async def opened(cls, **changes: Any) -> Polling:
        during: list[str] = []
        found: list[Polling] = []

        def poll(seconds: float) -> Polled:
            assert seconds == (REST_S if writer.done is None else DISK_S)
            during.append("rest" if writer.done is None else "frame")
            return found[0].outcome

        storage, writer, world = await opened(poll=poll, **{"busy_polling": True, **changes})
        ledger = await storage.ledgers.create()
        await first_segment(ledger)
        found.append(cls(storage, writer, world, ledger, during))
        return found[0]

    async def lap(self, rest_s: float = LAP_S, body: bytes = b"x") -> None:
        self.world.clock.time_s += rest_s
        push(self.ledger, [], "lap", body)
        await settle()
        self.writer.release()
        await settle()

    async def laps(self, count: int) -> list[str]:
        """The polls of so many laps."""
        self.during.clear()
        for _ in range(count):
            await self.lap()
        return self.during


async def test_the_loop_polls_for_the_disk_and_for_the_next_append_of_quick_laps():
    polling = await Polling.opened()
    assert await polling.laps(7) == []
    assert await polling.laps(3) == ["frame", "rest"] * 3
    await polling.storage.close()


async def test_the_loop_does_not_poll_behind_a_long_rest():
    polling = await Polling.opened()
    await polling.laps(10)
    polling.during.clear()
    await polling.lap(rest_s=1.0)
    assert polling.during == []
    await polling.storage.close()


async def test_a_failed_poll_of_a_wait_pauses_the_polls_of_this_wait():
    polling = await Polling.opened()
    await polling.laps(10)
    polling.outcome = Polled.NOTHING
    assert await polling.laps(5) == ["frame", "rest"]
    polling.outcome = Polled.EVENT
    assert await polling.laps(1) == ["frame", "rest"], "the pause takes four laps"
    await polling.storage.close()


async def test_the_loop_does_not_poll_for_large_frames():
    polling = await Polling.opened()
    await polling.laps(10)
    polling.during.clear()
    await polling.lap(body=bytes(33 << 10))
    assert polling.during == []
    await polling.storage.close()


async def test_the_loop_does_not_poll_where_the_next_append_is_there():
    polling = await Polling.opened()
    await polling.laps(10)
    polling.during.clear()
    polling.world.clock.time_s += LAP_S
    push(polling.ledger, [], "lap")
    await settle()
    push(polling.ledger, [], "the producer does not wait")
    polling.writer.release()
    await settle()
    assert polling.during == ["frame"], "neither behind the first frame nor for the second"
    polling.writer.release()
    await settle()
    assert polling.during == ["frame"]
    await polling.storage.close()


async def test_polling_is_off_by_default():
    polling = await Polling.opened(busy_polling=EngineSettings().busy_polling)
    assert await polling.laps(12) == []
    await polling.storage.close()
