"""Bugs planted into the broker, each of which the simulation must find: ``python -m tests.simulation.planted NAME``.

Names are those of the functions below, and in ``planted_parts.py``. The output is the seed that shows the bug, and the broken promise.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from itertools import chain, islice
from typing import Any
from unittest import mock

import msgspec

from magnetar.broker.admin_backend.admin_subscriptions import AdminSubscriptions
from magnetar.broker.compaction.key_table import KeyTable
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.broker.compat import wire_refusals
from magnetar.broker.consumers.pending_acks import PendingAcks
from magnetar.broker.dispatchers.read_loop import ReadLoop
from magnetar.broker.network.publish_gate import PublishGate
from magnetar.broker.policies.namespace_store import NamespaceStore
from magnetar.broker.policies.stored_topic_records import StoredTopicRecords
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.schemas.schema_store import JsonSchemas
from magnetar.broker.topics import expiry, quotas, subscriptions
from magnetar.broker.topics.backlog import TopicBacklog
from magnetar.broker.topics.catalog import TopicCatalog
from magnetar.broker.topics.lifecycle import TopicLifecycle
from magnetar.broker.topics.producers import TopicProducers
from magnetar.broker.topics.topic import Topic
from magnetar.storage import records
from magnetar.storage.embedded import engine, ledger_store
from magnetar.storage.embedded.journal import scan, uses
from magnetar.storage.embedded.metadata import opening
from magnetar.storage.embedded.verify import command
from magnetar.storage.managed import ledger_recovery, ledger_switch, trimmer
from magnetar.storage.managed.cursors.ack_state import AckState
from magnetar.storage.managed.cursors.cursor import ManagedCursor
from magnetar.storage.managed.cursors.store import CursorStore
from magnetar.storage.read_turns import ReadTurns
from tests.simulation import planted_parts
from tests.simulation.plan import (
    FIRST_WITH_COMPACTED,
    FIRST_WITH_DELETIONS,
    FIRST_WITH_EXPIRY,
    FIRST_WITH_FORCE,
    FIRST_WITH_KILLS,
    FIRST_WITH_OFFLINE,
    FIRST_WITH_OWNERS,
    FIRST_WITH_PACE,
    FIRST_WITH_PORTIONS,
    FIRST_WITH_QUOTAS,
    FIRST_WITH_SHAPES,
    FIRST_WITH_SPACES,
    Plan,
)
from tests.simulation.play import play
from tests.twins.sim_files import _SimFile

SEEDS = [*range(4000), *range(200_000, 200_400)]
FIRST_SEEDS = {
    "a_start_that_trusts_unsynced_metadata": FIRST_WITH_KILLS,
    "turns_that_do_not_begin": FIRST_WITH_PACE,
    "a_compaction_that_keeps_the_first_value": FIRST_WITH_COMPACTED,
    "a_log_that_does_not_wait_for_its_compaction": FIRST_WITH_COMPACTED,
    "an_expiry_of_one_more": FIRST_WITH_EXPIRY,
    "an_eviction_below_the_quota": FIRST_WITH_QUOTAS,
    "a_refusal_below_the_quota": FIRST_WITH_QUOTAS,
    "a_quota_that_does_not_end": FIRST_WITH_QUOTAS,
    "schemas_that_are_not_stored": FIRST_WITH_SHAPES,
    "versions_that_begin_anew": FIRST_WITH_SHAPES,
    "a_growth_without_subscriptions": FIRST_WITH_SHAPES,
    "a_growth_that_is_not_stored": FIRST_WITH_SHAPES,
    "a_deletion_that_keeps_the_log": FIRST_WITH_DELETIONS,
    "a_retention_of_seconds": FIRST_WITH_DELETIONS,
    "an_epoch_that_is_not_stored": FIRST_WITH_OWNERS,
    "a_fence_without_effect": FIRST_WITH_OWNERS,
    "a_torn_frame_that_counts_as_damage": FIRST_WITH_OFFLINE,
    "policies_that_are_not_stored": FIRST_WITH_SPACES,
    "policies_that_outlive_their_topic": FIRST_WITH_SPACES,
    "parts_of_batches_that_are_not_stored": FIRST_WITH_PORTIONS,
    "properties_of_subscriptions_that_are_not_stored": FIRST_WITH_PORTIONS,
    "an_eviction_of_too_much": FIRST_WITH_FORCE,
    "a_forced_deletion_that_keeps_the_schemas": FIRST_WITH_FORCE,
    **planted_parts.FIRST_SEEDS,
}
"""The first seeds of bugs that need a process that is killed while its machine goes on, frames at a pace, readers of
compacted topics, messages that expire, or a part of a history.
"""
MOST_SEEDS = 60
OF_DAMAGE = {
    "damage_that_costs_what_follows": ("flipped_bit", "/ledgers/"),
    "frames_that_are_not_checked": ("flipped_bit", "/journal/"),
    "a_lost_write_that_hides_its_segment": ("lost_write", "/journal/"),
    "records_without_a_proof": ("flipped_header", "/ledgers/"),
}
"""Bug -> the kind of damage and its folder that show the bug: the search skips other seeds."""
LAST_SHOWN_BY = {
    "damage_that_is_not_told": (10,),
    "damage_that_costs_what_follows": (323,),
    "requests_without_an_answer": (3,),
    "requests_that_fail": (4,),
    "frames_that_are_not_checked": (1156,),
    "a_lost_write_that_hides_its_segment": (5212, 5532),
    "a_start_that_trusts_unsynced_metadata": (FIRST_WITH_KILLS + 111, FIRST_WITH_KILLS + 201),
    "turns_that_do_not_begin": (FIRST_WITH_PACE + 1,),
    "a_log_that_does_not_wait_for_its_compaction": (FIRST_WITH_COMPACTED + 79, FIRST_WITH_COMPACTED + 93),
    "an_eviction_below_the_quota": (FIRST_WITH_QUOTAS + 33, FIRST_WITH_QUOTAS + 55),
    "a_refusal_below_the_quota": (FIRST_WITH_QUOTAS + 3,),
    "a_quota_that_does_not_end": (FIRST_WITH_QUOTAS + 5,),
    "an_eviction_of_too_much": (FIRST_WITH_FORCE + 6,),
    "a_retention_of_seconds": (FIRST_WITH_DELETIONS + 6,),
    "a_fence_without_effect": (FIRST_WITH_OWNERS + 1,),
    "an_expiry_of_one_more": (FIRST_WITH_EXPIRY + 1,),
    "versions_that_begin_anew": (FIRST_WITH_SHAPES + 1,),
    "a_growth_without_subscriptions": (FIRST_WITH_SHAPES + 9,),
    "a_torn_frame_that_counts_as_damage": (FIRST_WITH_OFFLINE + 110,),
    "policies_that_are_not_stored": (FIRST_WITH_SPACES + 16,),
    "policies_that_outlive_their_topic": (FIRST_WITH_SPACES + 63, FIRST_WITH_SPACES + 88),
    "parts_of_batches_that_are_not_stored": (FIRST_WITH_PORTIONS + 7,),
    "a_forced_deletion_that_keeps_the_schemas": (FIRST_WITH_FORCE + 6,),
    **planted_parts.LAST_SHOWN_BY,
}
"""Seeds to play first for the bugs with the longest search; where they no longer show the bug, the search follows."""


class Patch:
    """Replaces attributes for the rest of the process."""

    @staticmethod
    def setattr(owner: Any, name: str, value: Any) -> None:
        mock.patch.object(owner, name, value).start()


def lost_syncs(patch: Any) -> None:
    write = _SimFile.write
    patch.setattr(_SimFile, "write", lambda self, buffers, offset, durable=False: write(self, buffers, offset))


def acks_of_one_more(patch: Any) -> None:
    ack = AckState.ack
    patch.setattr(AckState, "ack", lambda self, position: ack(self, position) | ack(self, position.next()))


def acks_answered_before_they_are_saved(patch: Any) -> None:
    async def at_once(self: Any) -> None:
        return None

    patch.setattr(ManagedCursor, "flush", at_once)


def trimming_without_a_look_at_cursors(patch: Any) -> None:
    pure = trimmer.ledgers_to_drop
    patch.setattr(trimmer, "ledgers_to_drop", lambda slots, _marks, *rest, **more: pure(slots, [], *rest, **more))


def index_of_the_last_entry_alone(patch: Any) -> None:
    async def last_alone(ledgers: Any, slots: Any, floor: int) -> int:
        return floor

    for module in (ledger_recovery, ledger_switch):
        patch.setattr(module, "index_after", last_alone)


def a_durable_subscription_without_a_durable_cursor(patch: Any) -> None:
    async def create(self: Any, request: Any) -> Any:
        return await self._create_unsaved(request, None)

    patch.setattr(subscriptions.TopicSubscriptions, "_create_durable", create)


def a_backlog_of_one_more(patch: Any) -> None:
    exact = AckState.backlog_entries.fget
    patch.setattr(AckState, "backlog_entries", property(lambda self: exact(self) + 1))


def held_for_ever(patch: Any) -> None:
    patch.setattr(PendingAcks, "remove", PendingAcks.get)


def turns_that_do_not_begin(patch: Any) -> None:
    patch.setattr(ReadTurns, "begin", lambda self: self._waiting.clear())


def an_account_that_only_grows(patch: Any) -> None:
    finished = PublishGate.finished
    patch.setattr(PublishGate, "finished", lambda self, entries, size: finished(self, entries, 0))


def a_task_that_nobody_ends(patch: Any) -> None:
    close = Topic.close

    async def leaking(self: Any, **how: Any) -> None:
        asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="leak")
        await close(self, **how)

    patch.setattr(Topic, "close", leaking)


def a_cursor_that_forgets_its_newest_state(patch: Any) -> None:
    async def stale(self: Any, acks: Any, properties: Any) -> None:
        acks.take_changes(properties())

    patch.setattr(CursorStore, "write", stale)


def damage_that_is_not_told(patch: Any) -> None:
    report = engine._log_recovery

    def silent(layout: Any, recovered: Any) -> None:
        with mock.patch.multiple(recovered.report, damaged_files=[], damaged_entries=[], missing_frames=[]):
            report(layout, recovered)

    patch.setattr(engine, "_log_recovery", silent)
    patch.setattr(ReadLoop, "_failed", lambda self, error: self.context.skipped([error.position]) or self.wake())


def damage_that_costs_what_follows(patch: Any) -> None:
    patch.setattr(records, "find_entry", lambda *_: None)


class _Right:
    """Equals any checksum."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def frames_that_are_not_checked(patch: Any) -> None:
    patch.setattr(scan, "payload_crc", lambda *_: _Right())


def a_lost_write_that_hides_its_segment(patch: Any) -> None:
    known = scan.scan_segment
    patch.setattr(uses, "scan_segment", lambda *where, **_: known(*where[:4]))


def records_without_a_proof(patch: Any) -> None:
    patch.setattr(ledger_store, "with_proof", dict)


def a_start_that_trusts_unsynced_metadata(patch: Any) -> None:
    sync, heal = _SimFile.sync, opening._heal
    without_syncs = False

    def healing(*arguments: Any) -> None:
        nonlocal without_syncs
        without_syncs = True
        try:
            heal(*arguments)
        finally:
            without_syncs = False

    patch.setattr(opening, "_heal", healing)
    patch.setattr(_SimFile, "sync", lambda self: None if without_syncs else sync(self))


def requests_without_an_answer(patch: Any) -> None:
    async def never(self: Any, *_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    patch.setattr(AdminSubscriptions, "skip", never)


def requests_that_fail(patch: Any) -> None:
    async def fails(self: Any, *_: Any, **__: Any) -> None:
        raise ArithmeticError

    patch.setattr(AdminSubscriptions, "peek", fails)


def a_compaction_that_keeps_the_first_value(patch: Any) -> None:
    made = KeyTable.__init__

    def keeping(self: Any, *arguments: Any, **more: Any) -> None:
        made(self, *arguments, **more)
        self.put = self._newest.setdefault

    patch.setattr(KeyTable, "__init__", keeping)


def a_log_that_does_not_wait_for_its_compaction(patch: Any) -> None:
    async def without_a_cursor(self: Any) -> None:
        return None

    patch.setattr(TopicCompaction, "keep_all", without_a_cursor)


def an_expiry_of_one_more(patch: Any) -> None:
    expire = expiry._expire_before
    patch.setattr(expiry, "_expire_before", lambda topic, found, place: expire(topic, found, place.next()))


def an_eviction_below_the_quota(patch: Any) -> None:
    size = TopicBacklog.size_bytes
    patch.setattr(TopicBacklog, "size_bytes", lambda self: size(self) * 4)


def a_refusal_below_the_quota(patch: Any) -> None:
    check = TopicBacklog.check_quota

    def of_little(self: Any, config: Any) -> None:
        little = max(0, config.size_quota.limit_size) // 10
        check(self, replace(config, size_quota=msgspec.structs.replace(config.size_quota, limit_size=little)))

    patch.setattr(TopicBacklog, "check_quota", of_little)


def a_quota_that_does_not_end(patch: Any) -> None:
    check = TopicBacklog.check_quota
    over = set()

    def for_ever(self: Any, config: Any) -> None:
        if self._ledger.name in over:
            raise wire_refusals.BACKLOG_QUOTA_HOLDS.error()
        try:
            check(self, config)
        except Exception:
            over.add(self._ledger.name)
            raise

    patch.setattr(TopicBacklog, "check_quota", for_ever)


def schemas_that_are_not_stored(patch: Any) -> None:
    async def in_memory(self: Any, path: str, schemas: Any, expected: int) -> None:
        self._records[path] = schemas, expected

    patch.setattr(JsonSchemas, "save", in_memory)


def versions_that_begin_anew(patch: Any) -> None:
    async def forced(self: Any, name: Any, *, force: bool) -> int | None:
        del force
        return await self._delete(name, force=True)

    patch.setattr(SchemaRegistry, "delete", forced)


def a_growth_without_subscriptions(patch: Any) -> None:
    async def none(self: Any, part: Any) -> list[Any]:
        return []

    patch.setattr(TopicLifecycle, "_durable", none)


def a_growth_that_is_not_stored(patch: Any) -> None:
    async def in_memory(self: Any, name: Any, change: Any) -> None:
        self._partitioned[str(name)] = change(self._partitioned[str(name)])

    patch.setattr(TopicCatalog, "update_partitioned", in_memory)


def a_deletion_that_keeps_the_log(patch: Any) -> None:
    patch.setattr(Topic, "delete", lambda self, _forget: self.close())


def a_retention_of_seconds(patch: Any) -> None:
    pure = trimmer.ledgers_to_drop

    def shorter(slots: Any, marks: Any, time_ms: int, *rest: Any, **more: Any) -> Any:
        return pure(slots, marks, min(time_ms, 5000), *rest, **more)

    patch.setattr(trimmer, "ledgers_to_drop", shorter)


def an_epoch_that_is_not_stored(patch: Any) -> None:
    made = TopicProducers.__init__

    async def in_memory(_epoch: int) -> None:
        return None

    patch.setattr(TopicProducers, "__init__", lambda self, epoch, _save: made(self, epoch, in_memory))


def a_fence_without_effect(patch: Any) -> None:
    patch.setattr(TopicProducers, "_displace_all", lambda self: None)


def a_torn_frame_that_counts_as_damage(patch: Any) -> None:
    patch.setattr(command._Verification, "_torn_frame", lambda self, work: None)


def policies_that_are_not_stored(patch: Any) -> None:
    async def in_memory(self: Any, name: str, value: Any, version: int) -> None:
        self._stored[name], self._values[name] = (version, 0), value

    patch.setattr(StoredTopicRecords, "_store", in_memory)


def policies_that_outlive_their_topic(patch: Any) -> None:
    async def kept(self: Any, _topic: Any) -> None:
        return None

    patch.setattr(NamespaceStore, "delete_topic", kept)


def parts_of_batches_that_are_not_stored(patch: Any) -> None:
    snapshot = AckState.snapshot

    def without_parts(self: Any, properties: Any) -> Any:
        state = snapshot(self, properties)
        state.partial.clear()
        return state

    patch.setattr(AckState, "snapshot", without_parts)


def properties_of_subscriptions_that_are_not_stored(patch: Any) -> None:
    async def in_memory(self: Any, properties: Any) -> None:
        self.cursor_properties = dict(properties)

    patch.setattr(ManagedCursor, "set_cursor_properties", in_memory)


def an_eviction_of_too_much(patch: Any) -> None:
    patch.setattr(quotas, "_EVICT_TO", 0.0)


def a_forced_deletion_that_keeps_the_schemas(patch: Any) -> None:
    delete = JsonSchemas.delete

    async def in_memory(self: Any, path: str) -> None:
        record = await self._metadata.get(path)
        await delete(self, path)
        await self._metadata.put(path, record[0], -1)

    patch.setattr(JsonSchemas, "delete", in_memory)


def _damage(seed: int) -> tuple[str, str]:
    plan = Plan.of(seed)
    return plan.damage, plan.damage_in


def main() -> int:
    plant = globals().get(sys.argv[1]) or getattr(planted_parts, sys.argv[1])
    plant(Patch)
    of_damage = OF_DAMAGE.get(sys.argv[1], ())
    seeds = (seed for seed in SEEDS if not of_damage or _damage(seed) == of_damage)  # a plan for each seed
    if first := FIRST_SEEDS.get(sys.argv[1]):
        seeds = iter(range(first, first + MOST_SEEDS))
    for seed in islice(chain(LAST_SHOWN_BY.get(sys.argv[1], ()), seeds), MOST_SEEDS):
        _, failure, _ = play(seed)
        if failure:
            print(f"seed {seed}: {failure.splitlines()[-1]}")
            return 1
    print("no seed found it")
    return 0


if __name__ == "__main__":
    sys.unraisablehook = lambda _: None
    sys.exit(main())
