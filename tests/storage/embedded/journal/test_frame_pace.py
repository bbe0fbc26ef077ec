"""The pace of small frames: the appends that wait for it, and the connections that are held as long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.storage.embedded.journal.held_writer import HeldWriter, first_segment, opened, push
from tests.storage.engine_for_tests import World, settle

if TYPE_CHECKING:
    from magnetar.storage.embedded.engine import EmbeddedStorage
    from magnetar.storage.embedded.ledger_store import EmbeddedLedgerWriter

PACE_S = 600.0


@dataclass
class Paced:
    """A store whose frames keep a pace. ``ledger`` has one frame under way, and an unanswered append after that frame."""

    storage: EmbeddedStorage
    writer: HeldWriter
    world: World
    ledger: EmbeddedLedgerWriter
    other: EmbeddedLedgerWriter
    answers: list[object] = field(default_factory=list)

    @classmethod
    async def began(cls, frames: int = 20, behind: bytes = b"x") -> Paced:
        """Open the store and write ``frames`` frames, each right after the previous frame."""
        storage, writer, world = await opened(PACE_S)
        paced = cls(storage, writer, world, await storage.ledgers.create(), await storage.ledgers.create())
        await first_segment(paced.ledger)
        for _ in range(frames):
            push(paced.ledger, [], "before")
            await settle()
            writer.release()
        writer.frames.clear()
        push(paced.ledger, paced.answers, 0)
        await settle()
        assert len(writer.frames) == 1, "no other append is unanswered: it does not wait"
        push(paced.ledger, paced.answers, 1, behind)
        writer.release()
        assert paced.answers == [0]
        return paced

    async def end(self, answers: list[object]) -> None:
        assert len(self.writer.frames) == 2
        self.writer.release()
        assert self.answers == answers
        await self.storage.close()


async def test_appends_of_a_producer_that_does_not_wait_share_a_frame():
    paced = await Paced.began()
    push(paced.ledger, paced.answers, 2)
    assert len(paced.writer.frames) == 1, "appends that came meanwhile wait for their time"
    assert paced.writer.delay_s == PACE_S
    paced.writer.ring()
    await settle()
    await paced.end([0, 1, 2])


async def test_connections_are_held_until_the_next_frame_and_their_appends_belong_to_the_frame():
    paced = await Paced.began()
    turns = paced.world.turns
    assert turns.is_held
    turns.wait(lambda: asyncio.get_running_loop().call_soon(push, paced.ledger, paced.answers, 2))
    await settle()
    assert len(paced.writer.frames) == 1
    paced.world.clock.time_s += PACE_S
    paced.writer.ring()
    assert not turns.is_held
    assert len(paced.writer.frames) == 1, "the loop reads the held connections before the frame begins"
    await settle()
    await paced.end([0, 1, 2])


async def test_connections_are_held_during_the_frame_that_their_append_begins():
    paced = await Paced.began()
    paced.writer.ring()
    await settle()
    paced.writer.release()
    paced.world.clock.time_s += PACE_S
    push(paced.ledger, paced.answers, 2)
    push(paced.ledger, paced.answers, 3)
    assert paced.world.turns.is_held, "the frame begins in this turn, and the next frame a pace later"
    assert paced.writer.delay_s == PACE_S
    await settle()
    assert len(paced.writer.frames) == 3
    paced.writer.release()
    assert paced.answers == [0, 1, 2, 3]
    assert paced.writer.on_time is not None, "the lane owes a turn to the held connections"
    await paced.storage.close()


async def test_an_append_that_does_not_wait_holds_no_connection():
    paced = await Paced.began()
    assert paced.world.turns.is_held
    push(paced.other, paced.answers, 2)
    assert not paced.world.turns.is_held
    await settle()
    await paced.end([0, 1, 2])


async def test_the_log_is_idle_while_no_append_waits_and_no_frame_is_under_way():
    storage, writer, world = await opened()
    ledger = await storage.ledgers.create()
    await first_segment(ledger)
    assert world.turns.is_idle
    push(ledger, [], "first")
    assert not world.turns.is_idle, "the frame begins at the end of this turn"
    await settle()
    push(ledger, [], "second")
    writer.release()
    assert not world.turns.is_idle, "the next frame is under way"
    while writer.done is not None:
        writer.release()
    assert world.turns.is_idle
    await storage.close()


async def test_a_store_without_a_pace_holds_no_connection():
    storage, writer, world = await opened()
    ledger = await storage.ledgers.create()
    await first_segment(ledger)
    for _ in range(20):
        push(ledger, [], "first")
        push(ledger, [], "second")
        assert not world.turns.is_held
        await settle()
        writer.release()
        while writer.done is not None:
            writer.release()
    assert writer.on_time is None
    await storage.close()


async def test_the_first_append_after_the_pace_takes_waiting_appends_with_it():
    paced = await Paced.began()
    paced.world.clock.time_s += PACE_S / 2
    push(paced.ledger, paced.answers, 2)
    await settle()
    assert len(paced.writer.frames) == 1
    paced.world.clock.time_s += PACE_S / 2
    push(paced.ledger, paced.answers, 3)
    await settle()
    await paced.end([0, 1, 2, 3])


async def test_an_append_of_a_producer_that_waits_for_its_receipt_takes_waiting_appends_with_it():
    paced = await Paced.began()
    push(paced.other, paced.answers, 2)
    await settle()
    await paced.end([0, 1, 2])


async def test_a_large_frame_does_not_wait():
    paced = await Paced.began(behind=b"b" * 33_000)
    await paced.end([0, 1])


async def test_the_next_append_of_the_producer_of_a_large_frame_does_not_wait():
    paced = await Paced.began(behind=b"b" * 33_000)
    push(paced.ledger, paced.answers, 2)
    paced.writer.release()
    assert len(paced.writer.frames) == 3, "a window of the same producer: its first append must not hold up the rest"
    push(paced.ledger, paced.answers, 3)
    assert paced.world.turns.is_held, "the frame under way is small: small frames keep their pace"
    paced.writer.release()
    assert len(paced.writer.frames) == 3
    paced.writer.ring()
    await settle()
    paced.writer.release()
    assert paced.answers == [0, 1, 2, 3]
    await paced.storage.close()


async def test_the_next_append_of_the_producer_of_a_large_frame_does_not_wait_on_an_idle_log():
    paced = await Paced.began(behind=b"b" * 33_000)
    paced.writer.release()
    assert paced.answers == [0, 1]
    assert paced.world.turns.is_idle
    push(paced.ledger, paced.answers, 2)
    assert not paced.world.turns.is_held
    await settle()
    assert len(paced.writer.frames) == 3
    paced.writer.release()
    assert paced.answers == [0, 1, 2]
    await paced.storage.close()


async def test_appends_of_other_producers_behind_a_large_frame_keep_their_pace():
    paced = await Paced.began(behind=b"b" * 33_000)
    push(paced.other, paced.answers, 2)
    push(paced.other, paced.answers, 3)  # does not wait for a receipt
    paced.writer.release()
    paced.writer.release()
    push(paced.ledger, paced.answers, 4, b"b" * 33_000)
    await settle()
    push(paced.other, paced.answers, 5)
    assert paced.world.turns.is_held
    paced.writer.release()
    assert len(paced.writer.frames) == 4, "the large frame was of another producer"
    paced.writer.ring()
    await settle()
    paced.writer.release()
    assert paced.answers == [0, 1, 2, 3, 4, 5]
    await paced.storage.close()


async def test_frames_that_begin_seldom_have_no_pace():
    paced = await Paced.began(frames=0)
    await paced.end([0, 1])
