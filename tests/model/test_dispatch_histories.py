"""Random histories of one subscription (`dispatch_histories.py`), each of a seed of its own, and planted faults."""

import inspect

import pytest

from tests.model import dispatch_faults as faults
from tests.model.dispatch_histories import play


@pytest.mark.parametrize("first", range(0, 60, 10))
async def test_random_histories_of_a_subscription(first):
    for seed in range(first, first + 10):
        await play(seed)


PLANTED = {
    faults.read_of_before_a_rewind_is_sent: 11,
    faults.rewind_during_a_cold_read_is_lost: 95,
    faults.released_hash_is_no_change: 78,
    faults.released_hash_causes_no_turn: 78,
    faults.entries_of_a_released_hash_stay_aside: 52,
    faults.permits_of_a_block_are_lost_at_a_redelivery: 8,
    faults.sent_entries_stay_in_the_replay_queue: 2,
    faults.earlier_entries_of_a_key_are_forgotten: 18,
    faults.hashes_do_not_drain: 4,
    faults.hashes_of_a_consumer_that_left_drain_for_ever: 234,
    faults.lifted_limit_of_a_subscription_causes_no_turn: 4,
    faults.room_of_a_released_consumer_causes_no_turn: 8,
    faults.delayed_entries_are_due_at_once: 28,
    faults.a_due_entry_is_lost: 16,
    faults.new_active_consumer_goes_on_behind_the_former: 63,
    faults.redelivery_to_a_single_consumer_is_no_rewind: 12,
    faults.seek_into_a_batch_skips_the_batch: 3,
    faults.seek_into_a_batch_forgets_the_part: 3,
    faults.writable_consumer_causes_no_turn: 18,
    faults.failed_read_is_not_repeated: 5,
    faults.dropped_read_causes_no_turn: 11,
    faults.entries_of_a_consumer_that_left_are_lost: 1,
    faults.skipped_entries_stay_held: 7,
    faults.chunks_go_to_the_consumer_in_turn: 2,
    faults.redelivery_counts_grow_by_two: 2,
    faults.parts_of_batches_are_not_stored: 138,
    faults.throttled_turn_is_forgotten: 9,
}
"""Each fault with the seed of a history that finds it."""


def test_every_fault_is_planted():
    of_module = {
        each for each in vars(faults).values() if inspect.isfunction(each) and each.__module__ == faults.__name__
    }
    assert of_module == set(PLANTED)


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.__name__)
async def test_a_planted_fault_is_found(fault):
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        for seed in (PLANTED[fault], *range(100)):
            try:
                await play(seed)
            except AssertionError:
                return
    pytest.fail("no history finds it")
