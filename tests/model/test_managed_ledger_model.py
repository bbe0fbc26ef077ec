"""A managed ledger against lists and sets, under random appends, acks, seeks, failures, rolls, trims and restarts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.protocol.message_id import bits_to_words, words_to_bits
from magnetar.storage.errors import StorageFullError
from magnetar.storage.managed.managed_ledger import AppendState, ManagedLedgerConfig
from magnetar.storage.position import EARLIEST, LATEST, Position
from tests.storage.managed_for_tests import Ground, append, entries_of, given, read_all, run_of, settle
from tests.twins.memory_ledgers import MemoryLedgerStore

BATCH = 4  # messages in each batch that is acknowledged by index


@dataclass
class CursorModel:
    """The acknowledgements of a cursor, and those that were certainly saved."""

    acked: set[Position] = field(default_factory=set)
    partial: dict[Position, int] = field(default_factory=dict)
    saved: set[Position] = field(default_factory=set)
    saved_partial: dict[Position, int] = field(default_factory=dict)

    def ack(self, position: Position) -> None:
        self.acked.add(position)
        self.partial.pop(position, None)

    def flushed(self) -> None:
        self.saved, self.saved_partial = set(self.acked), dict(self.partial)


class ManagedLedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.entries: dict[Position, tuple[bytes, int]] = {}
        """Every entry on disk that was not trimmed: bytes and broker index."""
        self.models: dict[str, CursorModel] = {}
        self.messages = 0
        self.number = 0

    def teardown(self) -> None:
        if hasattr(self, "ground"):
            self.do(self.ground.factory.close())
        self.loop.close()

    def do(self, work: Any) -> Any:
        async def and_settle() -> Any:
            result = await work
            await settle()
            return result

        return self.loop.run_until_complete(and_settle())

    def call(self, function: Any, *arguments: Any) -> Any:
        """A plain call, made on the loop."""

        async def work() -> Any:
            return function(*arguments)

        return self.do(work())

    @initialize(
        cached=st.booleans(),
        per_ledger=st.integers(1, 12),
        keep=st.booleans(),
        inline=st.sampled_from([0, 1 << 14]),
        chunk=st.sampled_from([16, 1 << 16]),
        roll=st.integers(2, 8),
    )
    def start(self, *, cached: bool, per_ledger: int, keep: bool, inline: int, chunk: int, roll: int) -> None:
        self.config = ManagedLedgerConfig(
            max_entries_per_ledger=per_ledger,
            min_rollover_ms=0,
            retention_time_ms=-1 if keep else 0,
            retention_size_bytes=-1 if keep else 0,
            cursor_save_acks=7,
            cursor_max_entries_per_ledger=roll,
            cursor_inline_bytes=inline,
            cursor_chunk_bytes=chunk,
        )
        self.ground = Ground(MemoryLedgerStore(cached=cached))
        self.ledger = self.do(self.ground.open(self.config))

    # -- helpers

    def name_of(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.models)), label="cursor")

    def some_position(self, data: st.DataObject) -> Position:
        known = sorted(self.entries)
        near = [EARLIEST, LATEST, self.ledger.last_confirmed, self.ledger.last_confirmed.next()]
        return data.draw(st.sampled_from(known + near), label="position")

    def bodies(self, count: int) -> list[bytes]:
        first, self.number = self.number, self.number + count
        return [b"e%d" % k for k in range(first, first + count)]

    def stored(self, positions: list[Position], bodies: list[bytes], counts: list[int]) -> None:
        for position, body, count in zip(positions, bodies, counts, strict=True):
            assert not self.entries or position > max(self.entries), "order"
            self.messages += count
            self.entries[position] = (body, self.messages - 1)

    def unacked(self, name: str) -> list[Position]:
        return [position for position in sorted(self.entries) if position not in self.models[name].acked]

    def forget_trimmed(self) -> None:
        """Entries may only vanish when every cursor has acknowledged them."""
        held = {slot.ledger_id for slot in self.ledger.ledgers}
        for position in [position for position in self.entries if position.ledger_id not in held]:
            assert all(position in model.acked for model in self.models.values()), f"{position} trimmed"
            del self.entries[position]

    # -- rules

    @rule(counts=st.lists(st.integers(1, BATCH), min_size=1, max_size=15))
    def append(self, counts: list[int]) -> None:
        bodies = self.bodies(len(counts))
        self.stored(self.do(append(self.ledger, bodies, counts)), bodies, counts)

    @rule(first=st.integers(1, 9), second=st.integers(1, 9), keep=st.booleans())
    def append_that_fails(self, first: int, second: int, keep: bool) -> None:
        """Two runs are in flight when the disk is full; the store may have kept a part of the first run."""
        results: list[Any] = []

        async def work() -> None:
            self.ground.ledgers.hold()
            self.ledger.append(run_of(bodies[:first]), results.append)
            self.ledger.append(run_of(bodies[first:]), results.append)
            await settle()
            if keep:
                self.ground.ledgers.release()
                await asyncio.sleep(0)
            self.ground.ledgers.fail_appends = StorageFullError("full")
            self.ground.ledgers.release()
            await settle()
            self.ground.ledgers.fail_appends = None

        bodies = self.bodies(first + second)
        self.do(work())
        assert len(results) == 2
        position = [
            Position(piece.ledger_id, piece.first_entry_id + k)
            for result in results
            for piece in result.pieces
            for k in range(piece.end - piece.start)
        ]
        assert len(results[0].pieces) == 0 or results[0].pieces[0].start == 0
        if results[0].error is not None:
            assert not results[1].pieces, "an entry behind a failed one was stored"
        self.stored(position, bodies[: len(position)], [1] * len(position))
        if self.ledger.state is AppendState.WRITE_FAILED:
            self.ledger.ready_to_create_new_ledger()
        assert self.ledger.state is AppendState.OPEN

    @rule(name=st.sampled_from("abc"), initial=st.sampled_from(["earliest", "latest"]))
    def open_cursor(self, name: str, initial: Any) -> None:
        self.do(self.ledger.open_cursor(name, initial))
        if name not in self.models:
            model = CursorModel(set(self.entries) if initial == "latest" else set())
            model.flushed()
            self.models[name] = model

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def delete_cursor(self, data: st.DataObject) -> None:
        name = self.name_of(data)
        del self.models[name]
        self.do(self.ledger.delete_cursor(name))
        self.forget_trimmed()

    @precondition(lambda self: self.models and self.entries)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        name = self.name_of(data)
        positions = data.draw(st.lists(st.sampled_from(sorted(self.entries)), max_size=12))
        self.call(self.ledger.cursors[name].ack_many, positions)
        for position in positions:
            self.models[name].ack(position)

    @precondition(lambda self: self.models and self.entries)
    @rule(data=st.data(), remaining=st.integers(0, (1 << BATCH) - 1))
    def ack_partly(self, data: st.DataObject, remaining: int) -> None:
        name = self.name_of(data)
        position = data.draw(st.sampled_from(sorted(self.entries)))
        model = self.models[name]
        self.call(self.ledger.cursors[name].ack, position, bits_to_words(remaining) or [0])
        if position not in model.acked:
            left = model.partial.get(position, -1) & remaining
            if left:
                model.partial[position] = left
            else:
                model.ack(position)

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def ack_cumulative(self, data: st.DataObject) -> None:
        name, position = self.name_of(data), self.some_position(data)
        self.call(self.ledger.cursors[name].ack_cumulative, position)
        for known in self.entries:
            if known <= position:
                self.models[name].ack(known)

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def flush(self, data: st.DataObject) -> None:
        name = self.name_of(data)
        self.do(self.ledger.cursors[name].flush())
        self.models[name].flushed()

    @precondition(lambda self: self.models)
    @rule(data=st.data(), remaining=st.integers(0, (1 << BATCH) - 1))
    def seek(self, data: st.DataObject, remaining: int) -> None:
        name, position = self.name_of(data), self.some_position(data)
        self.do(self.ledger.cursors[name].reset(position, bits_to_words(remaining)))
        model = self.models[name]
        model.acked = {known for known in self.entries if known < position}
        model.partial = {position: remaining} if remaining and position in self.entries else {}
        model.flushed()

    @precondition(lambda self: self.models)
    @rule(data=st.data(), count=st.integers(0, 20))
    def skip(self, data: st.DataObject, count: int) -> None:
        name = self.name_of(data)
        backlog = self.unacked(name)
        assert self.call(self.ledger.cursors[name].skip, count) == min(count, len(backlog))
        if count and backlog:
            last = backlog[min(count, len(backlog)) - 1]
            for known in self.entries:
                if known <= last:
                    self.models[name].ack(known)

    @precondition(lambda self: self.models)
    @rule(data=st.data(), max_entries=st.integers(1, 8), max_bytes=st.sampled_from([1, 200, 1 << 20]))
    def read(self, data: st.DataObject, max_entries: int, max_bytes: int) -> None:
        name = self.name_of(data)
        cursor = self.ledger.cursors[name]
        cursor.rewind()
        found = self.do(read_all(cursor, max_entries, max_bytes))
        assert found == [(position, *self.entries[position]) for position in self.unacked(name)]
        assert not cursor.has_more

    @precondition(lambda self: self.models and self.entries)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        name = self.name_of(data)
        positions = sorted(data.draw(st.sets(st.sampled_from(sorted(self.entries)))))
        spans = self.do(given(self.ledger.cursors[name].read_positions([*positions, Position(1 << 40, 0)])))
        expected = [position for position in positions if position not in self.models[name].acked]
        assert [position for position, _, _ in entries_of(spans)] == expected

    @rule(seconds=st.sampled_from([1, 20_000]))
    def time_passes(self, seconds: int) -> None:
        self.call(self.ground.scheduler.advance, seconds)
        self.forget_trimmed()

    @rule()
    def roll(self) -> None:
        self.do(self.ledger.roll())
        self.forget_trimmed()

    @rule()
    def trim(self) -> None:
        self.do(self.ledger.trim(self.ground.clock.now_ms()))
        self.forget_trimmed()

    @rule()
    def restart(self) -> None:
        self.ground = self.do(self.ground.restart())
        for model in self.models.values():
            model.flushed()
        self.reopen()

    @rule(pending=st.integers(0, 5))
    def crash(self, pending: int) -> None:
        async def work() -> Ground:
            self.ground.ledgers.hold()
            for _ in range(pending):
                self.ledger.append(run_of([b"lost"]), lambda _result: None)
            await asyncio.sleep(0)
            ground = self.ground.after_crash()
            self.ground.ledgers.release()
            return ground

        old = self.ground
        self.ground = self.do(work())
        self.do(old.factory.close())
        self.reopen()

    def reopen(self) -> None:
        """No entry is lost or skipped; flushed acknowledgements stay."""
        self.ledger = self.do(self.ground.open(self.config))
        assert set(self.ledger.cursors) == set(self.models)
        self.forget_trimmed()
        for name, model in self.models.items():
            cursor = self.ledger.cursors[name]
            found = {position for position in self.entries if cursor.is_deleted(position)}
            known = set(self.entries)
            assert model.saved & known <= found <= model.acked & known
            for position, left in model.saved_partial.items():
                if position in known and position not in found:
                    assert words_to_bits(cursor.ack_set(position) or ()) & ~left == 0
            model.acked = found
            model.partial = {
                position: words_to_bits(words)
                for position in self.entries
                if (words := cursor.ack_set(position)) is not None
            }
            model.flushed()

    # -- invariants

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "ledger"):
            return
        self.forget_trimmed()
        assert self.ledger.entries == len(self.entries)
        assert self.ledger.stats().last_index == self.messages - 1
        for name, model in self.models.items():
            cursor = self.ledger.cursors[name]
            unacked = self.unacked(name)
            assert cursor.backlog_entries == len(unacked)
            assert not unacked or cursor.mark_delete < unacked[0]
            after = self.ledger.next_valid(cursor.mark_delete)
            assert after == (unacked[0] if unacked else None), "mark-delete jumps over all it can"
            for position, left in model.partial.items():
                if position in self.entries:
                    assert cursor.ack_set(position) == bits_to_words(left)


ManagedLedgerMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestManagedLedger = ManagedLedgerMachine.TestCase
