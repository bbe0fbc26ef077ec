"""Bugs for ``planted.py`` that the parts of histories from seed 620,000 on must find."""

from __future__ import annotations

from typing import Any
from unittest import mock

from magnetar.broker.compaction.survivors import Findings
from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.consumers.draining_hashes import DrainingHashes
from magnetar.broker.dispatchers.chunks import ChunkOwners
from magnetar.broker.dispatchers.key_ranges import StickySelector
from magnetar.broker.dispatchers.key_shared import KeySharedDispatcher
from magnetar.broker.policies.stored_records import MissingError, Records
from magnetar.broker.topics import deduplication, expiry
from magnetar.broker.topics.log_facts import TopicProperties
from magnetar.broker.topics.topic import Topic
from magnetar.delayed.bucket_index import BucketDelayIndex
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.embedded.journal.commit_lane import CommitLane
from magnetar.storage.embedded.verify.command import _Verification
from magnetar.storage.interfaces import MUST_NOT_EXIST
from magnetar.storage.managed import trimmer
from magnetar.storage.managed.cursors.ack_state import AckState
from magnetar.storage.managed.cursors.cursor import ManagedCursor
from magnetar.storage.managed.cursors.saver import CursorSaver
from magnetar.storage.managed.managed_ledger import ManagedLedger
from magnetar.storage.managed.position_search import PositionSearch
from magnetar.storage.managed.stored_layout import USER_PROPERTY
from magnetar.storage.position import Position
from tests.simulation.plan import (
    FIRST_WITH_ACKS,
    FIRST_WITH_BRIM,
    FIRST_WITH_CANCELS,
    FIRST_WITH_CHUNKS,
    FIRST_WITH_DECAY,
    FIRST_WITH_EARLY_READS,
    FIRST_WITH_ENDS,
    FIRST_WITH_FIELDS,
    FIRST_WITH_IDLE,
    FIRST_WITH_KEYS,
    FIRST_WITH_LONE,
    FIRST_WITH_REMOVALS,
    FIRST_WITH_TIMES,
)


def chunks_that_go_in_turns(patch: Any) -> None:
    patch.setattr(ChunkOwners, "_owner", lambda _self, _chunk, turn: turn)


def acks_of_every_second_entry(patch: Any) -> None:
    ack, ack_entries = AckState.ack, AckState.ack_entries
    patch.setattr(AckState, "ack", lambda self, place: place.entry_id % 2 == 0 and ack(self, place))
    patch.setattr(
        AckState,
        "ack_entries",
        lambda self, ledger_id, ids: ack_entries(self, ledger_id, [each for each in ids if each % 2 == 0]),
    )


def a_compaction_that_keeps_the_last_chunk(patch: Any) -> None:
    def alone(self: Any, place: int, examined: Any, _message: bytes, _number: int, is_last: bool) -> None:
        if is_last:
            self.table.put(examined.keyed[0].digest, place)

    patch.setattr(Findings, "_add_chunk", alone)


def a_deduplication_that_counts_every_chunk(patch: Any) -> None:
    patch.setattr(deduplication, "_is_judged", lambda flags: not flags & EntryFlag.MARKER)


def keys_that_do_not_wait_for_their_former_owner(patch: Any) -> None:
    patch.setattr(DrainingHashes, "drain", lambda *_: None)


def keys_that_overtake_waiting_entries(patch: Any) -> None:
    patch.setattr(KeySharedDispatcher, "_is_first", lambda *_: True)
    patch.setattr(KeySharedDispatcher, "waits_behind", lambda *_: False)


def ranges_without_effect(patch: Any) -> None:
    patch.setattr(StickySelector, "select", lambda self, _hash: self._ranges[0][3] if self._ranges else None)


def an_end_that_is_not_stored(patch: Any) -> None:
    async def in_memory(self: Any) -> None:
        save = self._list.save

        async def nothing() -> None:
            return None

        self._list.save = nothing
        try:
            await terminate(self)
        finally:
            self._list.save = save

    terminate = ManagedLedger._terminate
    patch.setattr(ManagedLedger, "_terminate", in_memory)


def an_end_before_the_last_message(patch: Any) -> None:
    terminate = ManagedLedger._terminate

    async def earlier(self: Any) -> None:
        await terminate(self)
        ledger_id, entry_id = self._list.terminated
        self._list.terminated = Position(ledger_id, entry_id - 1)

    patch.setattr(ManagedLedger, "_terminate", earlier)


def an_end_that_is_not_reported(patch: Any) -> None:
    patch.setattr(Consumer, "tell_end_of_topic", lambda _self: None)


def a_seek_that_is_not_stored(patch: Any) -> None:
    reset = ManagedCursor.reset

    async def in_memory(self: Any, position: Any, ack_set: Any = None) -> None:
        saver, self._saver = self._saver, None
        try:
            await reset(self, position, ack_set)
        finally:
            self._saver = saver

    patch.setattr(ManagedCursor, "reset", in_memory)


def a_search_by_time_that_ends_behind(patch: Any) -> None:
    search = PositionSearch.first_at_or_after

    async def behind(self: Any, timestamp_ms: int, after: Any = None) -> Any:
        return (await search(self, timestamp_ms, after)).next()

    patch.setattr(PositionSearch, "first_at_or_after", behind)


def a_search_by_time_that_ends_before(patch: Any) -> None:
    search = PositionSearch.first_at_or_after

    async def before(self: Any, timestamp_ms: int, after: Any = None) -> Any:
        return await search(self, timestamp_ms - 1000, after)

    patch.setattr(PositionSearch, "first_at_or_after", before)


def a_verify_that_reports_no_checkpoint(patch: Any) -> None:
    add = _Verification._add

    def others(self: Any, severity: str, kind: str, *rest: Any) -> None:
        if kind != "checkpoint":
            add(self, severity, kind, *rest)

    patch.setattr(_Verification, "_add", others)


def acks_that_are_saved_late(patch: Any) -> None:
    def arm(self: Any) -> None:
        self._timer = self._scheduler.call_later(8, self._start)

    patch.setattr(CursorSaver, "_arm", arm)


def a_stop_that_saves_no_ack(patch: Any) -> None:
    close = CursorSaver.close

    async def without(self: Any, *, save: bool = True) -> None:
        await close(self, save=False)

    patch.setattr(CursorSaver, "close", without)


def a_last_message_of_before(patch: Any) -> None:
    last = Topic.last_message_id

    async def before(self: Any, **how: Any) -> Any:
        place, index = await last(self, **how)
        return place._replace(entry_id=place.entry_id - 1), index

    patch.setattr(Topic, "last_message_id", before)


def a_last_sequence_id_of_before(patch: Any) -> None:
    last = deduplication.SequenceTable.last_sequence_id
    patch.setattr(deduplication.SequenceTable, "last_sequence_id", lambda self, name: last(self, name) - 1)


def books_that_an_early_read_leaves_out(patch: Any) -> None:
    def without(self: Any, plan: Any, batch: Any, *rest: Any) -> None:
        report = self._done
        self._done = lambda *answer: self._plan is None and report(*answer)
        late(self, plan, batch, *rest)
        self._done = report

    late = CommitLane._report_late
    patch.setattr(CommitLane, "_report_late", without)


def changes_that_overwrite_each_other(patch: Any) -> None:
    async def update(self: Any, name: str, change: Any, default: Any = None) -> Any:
        current = self._values.get(name, default)
        if current is None:
            raise MissingError(name)
        value = change(current)
        async with self._lock(name):
            await self._store(name, value, self._version_of(name, MUST_NOT_EXIST))
        return value

    patch.setattr(Records, "update", update)


def properties_of_topics_that_are_not_stored(patch: Any) -> None:
    async def in_memory(self: Any, change: Any) -> None:
        before, properties = self.of_users(), self._ledger.properties
        after = change(before)
        for key in before.keys() - after.keys():
            del properties[USER_PROPERTY + key]
        properties.update({USER_PROPERTY + key: value for key, value in after.items()})

    patch.setattr(TopicProperties, "change", in_memory)


def a_refusal_that_cancels(patch: Any) -> None:
    cancel = BucketDelayIndex.cancel

    async def refused(self: Any, position: Any) -> bool:
        await cancel(self, position)
        return False

    patch.setattr(BucketDelayIndex, "cancel", refused)


def inactive_topics_whose_backlog_does_not_count(patch: Any) -> None:
    patch.setattr(expiry, "_is_in_use", lambda topic, _mode: bool(len(topic.producers)))


def inactive_topics_whose_producers_do_not_count(patch: Any) -> None:
    in_use = expiry._is_in_use

    def without(topic: Any, mode: str) -> bool:
        producers, topic.producers = topic.producers, ()
        try:
            return in_use(topic, mode)
        finally:
            topic.producers = producers

    patch.setattr(expiry, "_is_in_use", without)


def a_refused_save_that_is_not_repeated(patch: Any) -> None:
    failed = CursorSaver._failed

    def forget(self: Any, waiters: Any, error: Any) -> None:
        self._unsaved = 0
        failed(self, waiters, error)

    patch.setattr(CursorSaver, "_failed", forget)


def a_time_to_live_of_half(patch: Any) -> None:
    older_than = expiry.expire_older_than
    patch.setattr(expiry, "expire_older_than", lambda topic, own, seconds: older_than(topic, own, seconds // 2))


def a_retention_of_half_the_size(patch: Any) -> None:
    def half(slots: Any, marks: Any, kept_ms: int, kept_bytes: int, *rest: Any, **how: Any) -> Any:
        return to_drop(slots, marks, kept_ms, kept_bytes // 2 if kept_bytes > 0 else kept_bytes, *rest, **how)

    to_drop = trimmer.ledgers_to_drop
    patch.setattr(trimmer, "ledgers_to_drop", half)


def a_retention_of_half_the_time(patch: Any) -> None:
    def half(slots: Any, marks: Any, kept_ms: int, *rest: Any, **how: Any) -> Any:
        return to_drop(slots, marks, kept_ms // 2 if kept_ms > 0 else kept_ms, *rest, **how)

    to_drop = trimmer.ledgers_to_drop
    patch.setattr(trimmer, "ledgers_to_drop", half)


def a_truncation_that_saves_no_cursor(patch: Any) -> None:
    async def in_memory(self: Any) -> None:
        with mock.patch.object(ManagedCursor, "flush", _nothing):
            await truncate(self)

    truncate = ManagedLedger.truncate
    patch.setattr(ManagedLedger, "truncate", in_memory)


async def _nothing(_self: Any) -> None:
    return None


def readers_that_go_too_far_behind_a_drop(patch: Any) -> None:
    def further(self: Any, up_to: Position) -> None:
        following = self._ledgers.next_ledger(up_to.ledger_id) if self._saver is None else None
        gone(self, up_to if following is None else Position(following.ledger_id, 0))

    gone = ManagedCursor.entries_gone
    patch.setattr(ManagedCursor, "entries_gone", further)


FIRST_SEEDS = {
    **dict.fromkeys(
        [
            "a_time_to_live_of_half",
            "a_retention_of_half_the_size",
            "a_retention_of_half_the_time",
            "a_truncation_that_saves_no_cursor",
            "readers_that_go_too_far_behind_a_drop",
        ],
        FIRST_WITH_REMOVALS,
    ),
    "a_refused_save_that_is_not_repeated": FIRST_WITH_BRIM,
    **dict.fromkeys(
        ["inactive_topics_whose_backlog_does_not_count", "inactive_topics_whose_producers_do_not_count"],
        FIRST_WITH_IDLE,
    ),
    "a_refusal_that_cancels": FIRST_WITH_CANCELS,
    **dict.fromkeys(
        ["changes_that_overwrite_each_other", "properties_of_topics_that_are_not_stored"], FIRST_WITH_FIELDS
    ),
    "books_that_an_early_read_leaves_out": FIRST_WITH_EARLY_READS,
    **dict.fromkeys(["a_last_message_of_before", "a_last_sequence_id_of_before"], FIRST_WITH_LONE),
    **dict.fromkeys(["acks_that_are_saved_late", "a_stop_that_saves_no_ack"], FIRST_WITH_ACKS),
    "a_verify_that_reports_no_checkpoint": FIRST_WITH_DECAY,
    **dict.fromkeys(
        [
            "chunks_that_go_in_turns",
            "acks_of_every_second_entry",
            "a_compaction_that_keeps_the_last_chunk",
            "a_deduplication_that_counts_every_chunk",
        ],
        FIRST_WITH_CHUNKS,
    ),
    **dict.fromkeys(
        ["keys_that_do_not_wait_for_their_former_owner", "keys_that_overtake_waiting_entries", "ranges_without_effect"],
        FIRST_WITH_KEYS,
    ),
    **dict.fromkeys(
        ["an_end_that_is_not_stored", "an_end_before_the_last_message", "an_end_that_is_not_reported"], FIRST_WITH_ENDS
    ),
    **dict.fromkeys(
        ["a_seek_that_is_not_stored", "a_search_by_time_that_ends_behind", "a_search_by_time_that_ends_before"],
        FIRST_WITH_TIMES,
    ),
}
"""The first seeds of the parts that find the bugs."""
LAST_SHOWN_BY = {
    "a_retention_of_half_the_size": (FIRST_WITH_REMOVALS + 48,),
    "a_retention_of_half_the_time": (FIRST_WITH_REMOVALS + 13,),
    "a_truncation_that_saves_no_cursor": (FIRST_WITH_REMOVALS + 3,),
    "a_refused_save_that_is_not_repeated": (FIRST_WITH_BRIM + 10,),
    "inactive_topics_whose_backlog_does_not_count": (FIRST_WITH_IDLE + 6,),
    "inactive_topics_whose_producers_do_not_count": (FIRST_WITH_IDLE + 10,),
    "acks_of_every_second_entry": (FIRST_WITH_CHUNKS + 2,),
    "a_compaction_that_keeps_the_last_chunk": (FIRST_WITH_CHUNKS + 2,),
    "a_deduplication_that_counts_every_chunk": (FIRST_WITH_CHUNKS + 2,),
    "a_seek_that_is_not_stored": (FIRST_WITH_TIMES,),
    "acks_that_are_saved_late": (FIRST_WITH_ACKS + 9,),
    "a_stop_that_saves_no_ack": (FIRST_WITH_ACKS + 10,),
    "changes_that_overwrite_each_other": (FIRST_WITH_FIELDS + 4,),
    "properties_of_topics_that_are_not_stored": (FIRST_WITH_FIELDS + 1,),
    "a_verify_that_reports_no_checkpoint": (FIRST_WITH_DECAY + 3,),
    "a_search_by_time_that_ends_before": (FIRST_WITH_TIMES + 4,),
    "a_last_message_of_before": (FIRST_WITH_LONE + 1,),
    "a_last_sequence_id_of_before": (FIRST_WITH_LONE + 3,),
    "books_that_an_early_read_leaves_out": (FIRST_WITH_EARLY_READS + 6,),
}
