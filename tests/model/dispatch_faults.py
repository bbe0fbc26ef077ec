"""Faults of dispatch that tests plant: the histories of ``dispatch_histories.py`` must find each of them."""

from __future__ import annotations

from magnetar.broker.consumers.draining_hashes import DrainingHashes
from magnetar.broker.consumers.permits import Permits, UnackedLimit
from magnetar.broker.dispatchers.chunks import ChunkOwners
from magnetar.broker.dispatchers.held_entries import HeldEntries
from magnetar.broker.dispatchers.key_shared import KeySharedDispatcher
from magnetar.broker.dispatchers.read_loop import ReadLoop
from magnetar.broker.dispatchers.redelivery_tracker import RedeliveryTracker
from magnetar.broker.dispatchers.replay_queue import ReplayQueue
from magnetar.broker.dispatchers.single_active import SingleActiveDispatcher
from magnetar.storage.managed.cursors.ack_state import AckState
from magnetar.storage.managed.cursors.cursor import ManagedCursor


def read_of_before_a_rewind_is_sent(patch):
    """A cold read that was under way at a rewind, or at a seek, is sent behind it."""
    finish = ReadLoop._finish
    patch.setattr(ReadLoop, "_finish", lambda self, waiting, read, _: finish(self, waiting, read, _Any()))


class _Any:
    """Equals any generation."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


def rewind_during_a_cold_read_is_lost(patch):
    """A rewind drops the read that is under way, but does not move the reader."""
    rewind = ReadLoop.rewind

    def lost(self):
        if self._cold is None:
            rewind(self)
        else:
            self.generation += 1

    patch.setattr(ReadLoop, "rewind", lost)


def released_hash_is_no_change(patch):
    """The release of a draining hash does not make the next turn walk through the waiting entries."""

    def released(self, consumer, held):
        if self.draining and self.draining.released(held.key_hash, consumer):
            self.held.replay.may_go(held.key_hash)
            self.loop.wake()

    patch.setattr(KeySharedDispatcher, "_no_longer_held", released)


def released_hash_causes_no_turn(patch):
    def released(self, consumer, held):
        if self.draining and self.draining.released(held.key_hash, consumer):
            self.held.replay.may_go(held.key_hash)
            self._changes += 1

    patch.setattr(KeySharedDispatcher, "_no_longer_held", released)


def entries_of_a_released_hash_stay_aside(patch):
    patch.setattr(ReplayQueue, "may_go", lambda *_: None)


def permits_of_a_block_are_lost_at_a_redelivery(patch):
    def given_back(self, messages):
        self.unacked = max(self.unacked - messages, 0)
        if not 0 < self.max_unacked <= self.unacked:
            self.blocked, self.parked = False, 0

    patch.setattr(Permits, "given_back", given_back)


def sent_entries_stay_in_the_replay_queue(patch):
    patch.setattr(ReplayQueue, "discard_run", lambda *_: None)


def earlier_entries_of_a_key_are_forgotten(patch):
    patch.setattr(KeySharedDispatcher, "waits_behind", lambda *_: False)


def hashes_do_not_drain(patch):
    """A consumer that joins gets entries of keys whose earlier entries another consumer holds."""
    patch.setattr(DrainingHashes, "drain", lambda *_: None)


def hashes_of_a_consumer_that_left_drain_for_ever(patch):
    patch.setattr(DrainingHashes, "consumer_left", lambda *_: False)


def lifted_limit_of_a_subscription_causes_no_turn(patch):
    remove = UnackedLimit.remove

    def silent(self, messages):
        remove(self, messages)
        return False

    patch.setattr(UnackedLimit, "remove", silent)


def room_of_a_released_consumer_causes_no_turn(patch):
    acked = Permits.acked

    def silent(self, messages):
        acked(self, messages)
        return False

    patch.setattr(Permits, "acked", silent)


def delayed_entries_are_due_at_once(patch):
    sift = ReadLoop.sift
    patch.setattr(ReadLoop, "sift", lambda self, spans, **_: sift(self, spans, delayed=False))


def a_due_entry_is_lost(patch):
    def take_due(self, limit):
        delay = self.context.delay
        if delay is not None and delay.has_due():
            self.replay.add_all(delay.take_due(limit)[1:])

    patch.setattr(HeldEntries, "take_due", take_due)


def new_active_consumer_goes_on_behind_the_former(patch):
    """A consumer of Failover that becomes active begins where the former consumer was."""

    def take_over(self):
        self._failover_timer = None
        if self.loop.closed or self.active is None:
            return
        self._forget_held()
        self.loop.generation += 1
        for consumer in self.consumers if self.sub_type == 2 else ():
            consumer.tell_active(is_active=consumer is self.active)
        self.loop.wake()

    patch.setattr(SingleActiveDispatcher, "_take_over", take_over)


def redelivery_to_a_single_consumer_is_no_rewind(patch):
    patch.setattr(SingleActiveDispatcher, "redeliver_all", lambda *_: None)


def seek_into_a_batch_skips_the_batch(patch):
    reset = ManagedCursor.reset

    def skipping(self, position, ack_set=None):
        return reset(self, position.next() if ack_set else position)

    patch.setattr(ManagedCursor, "reset", skipping)


def seek_into_a_batch_forgets_the_part(patch):
    reset = ManagedCursor.reset
    patch.setattr(ManagedCursor, "reset", lambda self, position, _ack_set=None: reset(self, position))


def writable_consumer_causes_no_turn(patch):
    patch.setattr(
        HeldEntries,
        "usable_permits",
        lambda self: sum(max(each.permits.usable, 0) for each in self.members.consumers if each.is_writable()),
    )


def failed_read_is_not_repeated(patch):
    def retry(self):
        self._backoff_timer = None

    patch.setattr(ReadLoop, "_retry", retry)


def dropped_read_causes_no_turn(patch):
    """A read that a rewind made void is the last read until the next event."""
    finish = ReadLoop._finish

    async def silent(self, waiting, read, generation):
        async def watched():
            try:
                return await waiting
            finally:
                if generation != self.generation:
                    self.wake = lambda: None

        await finish(self, watched(), read, generation)
        self.__dict__.pop("wake", None)

    patch.setattr(ReadLoop, "_finish", silent)


def entries_of_a_consumer_that_left_are_lost(patch):
    patch.setattr(HeldEntries, "_put_all_to_replay", lambda *_: None)


def skipped_entries_stay_held(patch):
    patch.setattr(HeldEntries, "dropped_up_to", lambda *_: None)


def chunks_go_to_the_consumer_in_turn(patch):
    patch.setattr(ChunkOwners, "_owner", lambda _self, _chunk, turn: turn)


def redelivery_counts_grow_by_two(patch):
    increment = RedeliveryTracker.increment_all

    def twice(self, ledger_id, entry_ids):
        increment(self, ledger_id, entry_ids)
        increment(self, ledger_id, entry_ids)

    patch.setattr(RedeliveryTracker, "increment_all", twice)


def parts_of_batches_are_not_stored(patch):
    snapshot = AckState.snapshot

    def forgetful(self, properties):
        state = snapshot(self, properties)
        state.partial.clear()
        return state

    patch.setattr(AckState, "snapshot", forgetful)


def throttled_turn_is_forgotten(patch):
    def over(self):
        self._throttle_timer = None

    patch.setattr(ReadLoop, "_throttle_over", over)
