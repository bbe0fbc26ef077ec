"""Early notice of appends that are on the disk, and frames that begin in the call of their append."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.storage.embedded.journal.busy_poll import END_S, REST_S, SLOW_S, TURN_S, Polled
from magnetar.storage.interfaces import PromptDone
from tests.storage.embedded.journal.held_writer import opened, push
from tests.storage.engine_for_tests import append, settle
from tests.storage.records_for_tests import slab_of

if TYPE_CHECKING:
    from magnetar.storage.embedded.engine import EmbeddedStorage
    from magnetar.storage.embedded.journal.busy_poll import Poll
    from magnetar.storage.embedded.ledger_store import EmbeddedLedgerWriter
    from magnetar.storage.interfaces import EarlyAnswer, NextMessage
    from tests.storage.embedded.journal.held_writer import HeldWriter
    from tests.storage.engine_for_tests import World


class Noticed(PromptDone):
    """The ``done`` of an append that notes its early notice and its answer."""

    def __init__(
        self, log: list[str], name: str, next_message: NextMessage | None = None, *, is_broken: bool = False
    ) -> None:
        self.log, self.name, self.next_message, self.is_broken = log, name, next_message, is_broken

    def notice(self) -> EarlyAnswer:
        self.log.append(f"{self.name} asked")
        return self.on_disk

    def on_disk(self) -> NextMessage | None:
        self.log.append(f"{self.name} on disk")
        if self.is_broken:
            raise ValueError(self.name)
        return self.next_message

    def __call__(self, error: Exception | None) -> None:
        self.log.append(f"{self.name} {'failed' if error else 'done'}")


def push_noticed(ledger: EmbeddedLedgerWriter, done: Noticed, body: bytes = b"x", count: int = 1) -> None:
    ledger.append(slab_of(ledger.ledger_id, ledger.last_add_pushed + 1, [body] * count, ledger.record_proof), done)


async def append_on(ledger: EmbeddedLedgerWriter, writer: HeldWriter) -> None:
    """Append to a ledger; the first append of a store needs a segment, which is the thread's work."""
    waiting = asyncio.ensure_future(append(ledger, [b"first"]))
    await settle()
    if writer.done is not None:
        writer.release()
    await waiting


@dataclass
class Lone:
    """A store whose journal has seen a single producer that waits for each receipt."""

    storage: EmbeddedStorage
    writer: HeldWriter
    world: World
    ledger: EmbeddedLedgerWriter
    other: EmbeddedLedgerWriter

    @classmethod
    async def opened(cls, laps: int = 8, poll: Poll | None = None, **settings: Any) -> Lone:
        storage, writer, world = await opened(poll=poll, **settings)
        lone = cls(storage, writer, world, await storage.ledgers.create(), await storage.ledgers.create())
        await append_on(lone.ledger, writer)
        await append_on(lone.other, writer)
        for _ in range(laps - 1):
            await lone.lap(lone.ledger)
        return lone

    async def lap(self, *ledgers: EmbeddedLedgerWriter, body: bytes = b"x", rest_s: float = 1) -> bool:
        """Append to each ledger in one turn; return whether the first append began a frame in its call."""
        self.world.clock.time_s += rest_s
        began = []
        for each in ledgers:
            push(each, [], "x", body)
            began.append(self.writer.done is not None)
        while True:
            await settle()
            if self.writer.done is None:
                return began[0]
            self.writer.release()


async def test_the_append_of_a_lone_producer_gets_early_notice():
    lone = await Lone.opened()
    log: list[str] = []
    lone.world.clock.time_s += 1
    push_noticed(lone.ledger, Noticed(log, "a"))
    assert log == ["a asked"], "the frame began in the call"
    lone.writer.release()
    assert log[1:] == ["a on disk", "a done"]
    await lone.storage.close()


async def test_there_is_no_early_notice_where_another_append_waits_for_its_frame():
    lone = await Lone.opened()
    log: list[str] = []
    lone.world.clock.time_s += 1
    push_noticed(lone.ledger, Noticed(log, "a"))
    push_noticed(lone.other, Noticed(log, "b"))
    lone.writer.release()
    assert log == ["a asked", "a done"], "the frame of b begins first"
    lone.writer.release()
    assert log[2:] == ["b done"], "the journal has two producers"
    await lone.storage.close()


@pytest.mark.parametrize("body", [b"x", bytes(33 << 10)], ids=["failed", "large"])
async def test_there_is_no_early_notice_of_a_failed_or_large_frame(body: bytes):
    lone = await Lone.opened()
    log: list[str] = []
    lone.world.clock.time_s += 1
    push_noticed(lone.ledger, Noticed(log, "a"), body)
    await settle()
    lone.writer.release(OSError(errno.EIO, "as the test says") if body == b"x" else None)
    assert log == (["a asked", "a failed"] if body == b"x" else ["a done"])
    await lone.storage.close()


async def test_a_run_of_many_entries_gets_early_notice_behind_the_begin_of_the_next_frame():
    lone = await Lone.opened(laps=1)
    log: list[str] = []
    push_noticed(lone.ledger, Noticed(log, "a"), count=64)
    await settle()
    assert log == ["a asked"], "the disk works"
    push_noticed(lone.ledger, Noticed(log, "b"), count=64)
    lone.writer.release()
    assert lone.writer.done is not None, "the frame of b has begun"
    assert log[1:] == ["a on disk", "a done", "b asked"], "the notice of b encodes what the report of a may change"
    lone.writer.release()
    assert log[4:] == ["b on disk", "b done"]
    await lone.storage.close()


async def test_runs_get_no_early_notice_where_they_share_a_frame_have_few_entries_or_fail():
    lone = await Lone.opened(laps=1, journal_max_frame_bytes=16 << 10)
    log: list[str] = []
    push_noticed(lone.ledger, Noticed(log, "few"), count=63)
    await settle()
    lone.writer.release()
    push_noticed(lone.ledger, Noticed(log, "one"), count=64)
    push_noticed(lone.other, Noticed(log, "two"), count=64)
    await settle()
    lone.writer.release()
    assert log == ["few done", "one done", "two done"]
    push_noticed(lone.ledger, Noticed(log, "last"), count=64)
    await settle()
    lone.writer.release(OSError(errno.EIO, "as the test says"))
    assert log[3:] == ["last asked", "last failed"]
    await lone.storage.close()


async def test_a_broken_notice_costs_the_append_no_answer():
    lone = await Lone.opened()
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    log: list[str] = []
    lone.world.clock.time_s += 1
    push_noticed(lone.ledger, Noticed(log, "a", is_broken=True))
    lone.writer.release()
    assert log == ["a asked", "a on disk", "a done"]
    assert [type(context["exception"]) for context in reported] == [ValueError]
    await lone.storage.close()


async def test_the_frame_of_a_lone_producer_begins_in_the_call_of_its_append():
    lone = await Lone.opened(laps=1)
    assert [await lone.lap(lone.ledger) for _ in range(10)] == [False] * 6 + [True] * 4
    assert await lone.lap(lone.ledger, lone.other), "the second append waits for the next frame"
    assert [await lone.lap(lone.ledger) for _ in range(10)] == [False] * 7 + [True] * 3
    await lone.lap(lone.ledger, body=bytes(33 << 10))
    assert [await lone.lap(lone.ledger) for _ in range(10)] == [False] * 8 + [True] * 2
    await lone.storage.close()


async def test_a_run_of_several_entries_shows_that_its_producer_does_not_wait():
    lone = await Lone.opened()
    lone.world.clock.time_s += 1
    ledger = lone.ledger
    ledger.append(slab_of(ledger.ledger_id, ledger.last_add_pushed + 1, [b"x"] * 2, ledger.record_proof), print)
    await settle()
    lone.writer.release()
    assert [await lone.lap(ledger) for _ in range(9)] == [False] * 8 + [True]
    await lone.storage.close()


async def quick(poll: Poll | None = lambda _seconds: 0, **settings: Any) -> Lone:
    """A store with a producer whose next message comes within microseconds."""
    lone = await Lone.opened(laps=1, poll=poll, **settings)
    lone.writer.seconds = 0.0001
    for _ in range(10):
        await lone.lap(lone.ledger, rest_s=0.0001)
    lone.world.clock.time_s += 0.0001
    return lone


async def test_the_frame_of_the_next_message_begins_before_the_report_of_the_last():
    lone = await quick()
    log: list[str] = []

    def send(name: str, next_message: NextMessage | None) -> None:
        lone.world.clock.time_s += 0.00001
        push_noticed(lone.ledger, Noticed(log, name, next_message))
        log.append(f"{name} {'is written' if lone.writer.done is not None else 'waits'}")

    def second(wait_s: float) -> bool:
        assert wait_s == TURN_S
        send("b", third)
        return True

    def third(_wait_s: float) -> bool:
        send("c", None)
        return True

    send("a", second)
    lone.writer.release()
    assert log == ["a asked", "a is written", "a on disk", "b is written", "a done", "b asked"]
    del log[:]
    lone.writer.release()
    assert log == ["b on disk", "c is written", "b done", "c asked"], "the second lap is a lap like the first"
    del log[:]
    lone.writer.release()
    assert log == ["c on disk", "c done"]
    assert lone.ledger.last_add_confirmed == lone.ledger.last_add_pushed == 1 + 10 + 3 - 1
    assert await lone.lap(lone.ledger, rest_s=0.0001), "the producer waits for its receipts as before"
    await lone.storage.close()


async def test_the_writer_knows_of_a_frame_that_a_quick_producer_awaits():
    lone = await quick()
    assert lone.writer.awaited[-1]
    assert not any(lone.writer.awaited[:6]), "a few frames do not show that a producer waits"
    await lone.lap(lone.ledger, rest_s=0.0001)
    assert lone.writer.awaited[-1]
    await lone.lap(lone.ledger, rest_s=REST_S + 0.0001)
    assert not lone.writer.awaited[-1], "between two such messages other clients compute"
    for _ in range(10):
        await lone.lap(lone.ledger, rest_s=0.0001)
    assert lone.writer.awaited[-1]
    await lone.lap(lone.ledger, lone.other, rest_s=0.0001)
    await lone.lap(lone.ledger, rest_s=0.0001)
    assert lone.writer.awaited[-2:] == [False, False], "the second frame of the lap, and the next: two producers"
    await lone.storage.close()


async def test_behind_a_slow_awaited_frame_the_thread_writes_some_frames():
    lone = await quick()
    lone.writer.seconds = SLOW_S
    assert await laps_until_awaited(lone) == 0
    lone.writer.seconds = SLOW_S * 1.01
    await lone.lap(lone.ledger, rest_s=0.0001)
    lone.writer.seconds = SLOW_S
    assert await laps_until_awaited(lone) == 16, "the next attempt"
    lone.writer.seconds = SLOW_S * 1.01
    await lone.lap(lone.ledger, rest_s=0.0001)
    lone.writer.seconds = SLOW_S
    assert await laps_until_awaited(lone) == 32, "soon after the last pause"
    await lone.storage.close()


async def laps_until_awaited(lone: Lone) -> int:
    """The laps without an awaited frame before the next such frame."""
    for laps in range(100):
        await lone.lap(lone.ledger, rest_s=0.0001)
        if lone.writer.awaited[-1]:
            return laps
    raise AssertionError("no awaited frame")


async def test_a_failed_next_frame_fails_its_own_append_alone():
    lone = await quick()
    log: list[str] = []

    def second(_wait_s: float) -> bool:
        push_noticed(lone.ledger, Noticed(log, "b"))
        return True

    push_noticed(lone.ledger, Noticed(log, "a", second))
    lone.writer.release()
    lone.writer.release(OSError(errno.ENOSPC, "as the test says"))
    assert log == ["a asked", "a on disk", "a done", "b asked", "b failed"]
    await lone.storage.close()


async def test_a_next_message_that_fails_costs_the_append_no_answer():
    lone = await quick()
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    log: list[str] = []

    def broken(_wait_s: float) -> bool:
        raise ValueError

    push_noticed(lone.ledger, Noticed(log, "a", broken))
    lone.writer.release()
    assert log == ["a asked", "a on disk", "a done"]
    assert [type(context["exception"]) for context in reported] == [ValueError]
    await lone.storage.close()


async def test_next_messages_that_do_not_come_are_awaited_less_often():
    lone = await quick()
    waits: list[float] = []

    def nothing(wait_s: float) -> bool:
        waits.append(wait_s)
        return False

    for _ in range(30):
        lone.world.clock.time_s += 0.0001
        push_noticed(lone.ledger, Noticed([], "a", nothing))
        lone.writer.release()
        await settle()
    assert waits == [TURN_S] * 5, "with pauses of 1, 2, 4, 8 and 16 laps"
    await lone.storage.close()


@pytest.mark.parametrize("has_come", [True, False])
async def test_the_loop_polls_for_the_next_append_where_its_message_has_not_come(has_come: bool):
    """With busy polling the rest of such a lap had no poll, so that the broker slept."""
    polled: list[float] = []

    def poll(seconds: float) -> Polled:
        polled.append(seconds)
        return Polled.EVENT

    lone = await quick(poll, busy_polling=True)
    del polled[:]

    def second(_wait_s: float) -> bool:
        if has_come:
            push_noticed(lone.ledger, Noticed([], "b"))
        return has_come

    push_noticed(lone.ledger, Noticed([], "a", second))
    lone.writer.release()
    await settle()
    assert (REST_S in polled) is not has_come
    while lone.writer.done is not None:
        lone.writer.release()
        await settle()
    await lone.storage.close()


@pytest.mark.parametrize("reason", ["slow", "one processor"])
async def test_no_next_message_is_awaited_where_the_wait_would_be_in_vain(reason: str):
    lone = await Lone.opened() if reason == "slow" else await quick(poll=None)
    log: list[str] = []

    def unexpected(_wait_s: float) -> bool:
        raise AssertionError

    push_noticed(lone.ledger, Noticed(log, "a", unexpected))
    lone.writer.release()
    assert log == ["a asked", "a on disk", "a done"]
    await lone.storage.close()


async def push_next(lone: Lone, log: list[str]) -> None:
    """Two messages of a quick producer; the frame of the second begins before the report of the first."""

    def second(_wait_s: float) -> bool:
        push_noticed(lone.ledger, Noticed(log, "b"))
        return True

    lone.world.clock.time_s += 0.0001
    push_noticed(lone.ledger, Noticed(log, "a", second))
    lone.writer.release()


async def test_the_loop_waits_for_the_end_of_a_frame_behind_the_books_and_behind_other_work():
    lone = await quick()
    log: list[str] = []
    lone.writer.ends_in_wait = True
    await push_next(lone, log)
    asyncio.get_running_loop().call_soon(log.append, "others")
    await settle()
    assert log == ["a asked", "a on disk", "a done", "b asked", "others", "b on disk", "b done"]
    assert lone.writer.waits == [END_S]
    await lone.storage.close()


async def test_the_loop_does_not_wait_for_a_frame_that_has_ended():
    lone = await quick()
    await push_next(lone, [])
    lone.writer.release()
    push(lone.ledger, [], "c")
    await settle()
    assert lone.writer.done is not None, "the wait was for the frame before"
    assert lone.writer.waits == []
    lone.writer.release()
    await lone.storage.close()


async def test_frames_that_do_not_end_within_the_wait_are_awaited_less_often():
    lone = await quick()
    for _ in range(30):
        await push_next(lone, [])
        await settle()
        lone.writer.release()
        await settle()
    assert lone.writer.waits == [END_S] * 3, "with pauses of 4, 8 and 16 laps"
    await lone.storage.close()


async def test_a_frame_that_no_early_receipt_precedes_has_no_wait():
    lone = await quick()
    push_noticed(lone.ledger, Noticed([], "a"))
    await settle()
    lone.writer.release()
    await settle()
    assert lone.writer.waits == []
    await lone.storage.close()
