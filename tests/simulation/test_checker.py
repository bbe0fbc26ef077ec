"""The simulation finds planted bugs: a checker that cannot fail would be worth nothing."""

from __future__ import annotations

import re

import pytest

PLANTED = [
    (
        "lost_syncs",
        "not there|behind|not read|before b|dropped before|duplicate|receipts|held and ack|damage|by no|after its ack",
    ),
    ("acks_of_one_more", "by no consumer|held and acknowledged"),
    ("acks_answered_before_they_are_saved", "after its acknowledgement was answered"),
    ("trimming_without_a_look_at_cursors", "dropped before it was acknowledged|by no consumer"),
    ("index_of_the_last_entry_alone", "index"),
    ("a_durable_subscription_without_a_durable_cursor", "no longer durable"),
    ("a_backlog_of_one_more", "a backlog of"),
    ("held_for_ever", "held and acknowledged|held by two"),
    ("turns_that_do_not_begin", "was not read for .* pace"),
    ("an_account_that_only_grows", "accounted for|was not read for .* publish-bytes|did not come"),
    ("a_task_that_nobody_ends", "tasks are left"),
    ("a_cursor_that_forgets_its_newest_state", "after its acknowledgement was answered"),
    ("damage_that_is_not_told", "by no consumer|not read|never delivered|not there|index"),
    ("damage_that_costs_what_follows", "by no consumer|not read|never delivered|not there|index"),
    ("frames_that_are_not_checked", "wrong record"),
    ("a_lost_write_that_hides_its_segment", "by no consumer|not read|never delivered|not there|index|behind"),
    ("records_without_a_proof", "was never sent|before|not read|not there|index|wrong"),
    ("a_start_that_trusts_unsynced_metadata", "did not come"),
    ("requests_without_an_answer", "no answer in"),
    ("requests_that_fail", "request.failed"),
    ("a_compaction_that_keeps_the_first_value", "newest values of .* were not read"),
    ("an_expiry_of_one_more", "by no consumer"),
    ("an_eviction_below_the_quota", "by no consumer|refused below"),
    ("a_refusal_below_the_quota", "refused below the quota"),
    ("a_quota_that_does_not_end", "receipts did not come"),
    ("schemas_that_are_not_stored", "schema version|behind|versions"),
    ("versions_that_begin_anew", "schema version|behind|versions"),
    ("a_growth_without_subscriptions", "is lost|never delivered|dropped before"),
    ("a_growth_that_is_not_stored", "partitions, before"),
    ("a_deletion_that_keeps_the_log", "is read behind a deletion"),
    ("a_retention_of_seconds", "has a receipt and is not there"),
    ("an_epoch_that_is_not_stored", "belongs to|behind"),
    ("a_fence_without_effect", "behind epoch|belongs to"),
    ("a_torn_frame_that_counts_as_damage", "verify finds damage"),
    ("policies_that_are_not_stored", "the value is"),
    ("policies_that_outlive_their_topic", "the value is"),
    ("parts_of_batches_that_are_not_stored", "come again after their acknowledgement"),
    ("properties_of_subscriptions_that_are_not_stored", "the value is"),
    ("an_eviction_of_too_much", "a quota evicts"),
    ("a_forced_deletion_that_keeps_the_schemas", "of before a forced deletion|schema version|versions|behind"),
    ("a_log_that_does_not_wait_for_its_compaction", "newest values of .* were not read"),
    ("chunks_that_go_in_turns", "does not go to"),
    ("acks_of_every_second_entry", "some are acknowledged, by an ACK of all"),
    ("a_compaction_that_keeps_the_last_chunk", "newest values of .* were not read"),
    ("a_deduplication_that_counts_every_chunk", "is taken for a duplicate"),
    ("keys_that_do_not_wait_for_their_former_owner", "overtakes"),
    ("keys_that_overtake_waiting_entries", "overtakes"),
    ("ranges_without_effect", "the range is"),
    ("an_end_that_is_not_stored", "is lost|before"),
    ("an_end_before_the_last_message", "lies behind the end"),
    ("an_end_that_is_not_reported", "reported to a reader"),
    ("a_seek_that_is_not_stored", "acknowledged, by no consumer|comes behind a seek"),
    ("a_search_by_time_that_ends_behind", "acknowledged, by no consumer"),
    ("a_verify_that_reports_no_checkpoint", "verify does not find"),
    ("a_search_by_time_that_ends_before", "comes behind a seek"),
    ("acks_that_are_saved_late", "the acknowledgement of .* is lost|come"),
    ("a_stop_that_saves_no_ack", "the acknowledgement of .* is lost|come"),
    ("a_last_message_of_before", "the last message is"),
    ("a_last_sequence_id_of_before", "the last sequence id is"),
    ("changes_that_overwrite_each_other", "the value is"),
    ("properties_of_topics_that_are_not_stored", "the value is"),
    ("a_refusal_that_cancels", "acknowledged, by no consumer"),
    ("inactive_topics_whose_backlog_does_not_count", "is deleted as inactive, .*(owes|with the subscription)"),
    ("inactive_topics_whose_producers_do_not_count", "is deleted as inactive, .*(in use|with its client)"),
    ("a_refused_save_that_is_not_repeated", "the acknowledgement of .* is lost|come"),
    ("a_time_to_live_of_half", "by no consumer|which . owes"),
    ("a_retention_of_half_the_size", "misses .*, which retention keeps"),
    ("a_retention_of_half_the_time", "misses .*, which retention keeps"),
    ("a_truncation_that_saves_no_cursor", "after its acknowledgement was answered"),
    ("readers_that_go_too_far_behind_a_drop", "steady. misses"),
    ("books_that_an_early_read_leaves_out", "receipts did not come|the last entry is"),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("plant", "found"), PLANTED)
def test_a_planted_bug_is_found(plant, found, forks):
    ran = forks.run("tests.simulation.planted", plant)
    assert ran.returncode == 1, ran.output
    said = next(line for line in ran.output.splitlines() if line.startswith("seed "))
    assert re.search(found, said), said


def test_a_run_that_fails_in_another_way_is_no_finding(forks):
    ran = forks.run("tests.simulation.planted", "a_bug_without_a_plant")
    assert ran.returncode == 2
    assert "AttributeError" in ran.output
