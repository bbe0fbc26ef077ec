"""The HELP line of every metric family on /metrics, by name.

A family without a row has no HELP line; `tests/broker/prometheus/test_help_texts.py` demands a row for each family
that a broker writes. Units stand in the text where the name does not carry them.
"""

import re
from typing import Final

__all__ = ["help_line", "help_text"]

_BUCKET: Final = re.compile(r"^(?P<family>.+?)_(?:le_(?P<bound>\w+)|(?P<rest>overflow|count|sum))$")
_FAMILIES: Final = {
    "pulsar_storage_write_latency": ("time from an append to its receipt", "ms", "entries"),
    "pulsar_storage_ledger_write_latency": ("time that the ledger store takes for an append", "ms", "entries"),
    "pulsar_entry_size": ("size of stored entries", "bytes", "entries"),
}
"""Distributions that are written as one gauge per bucket: meaning, unit of bounds and sum, what is counted."""

_TEXTS: Final = {
    "pulsar_version_info": "Version of the broker, as a label; always 1",
    "pulsar_active_connections": "Connections of the binary protocol that are open now",
    "pulsar_connection_created_total_count": "Connections accepted since the start",
    "pulsar_connection_create_success_count": "Connections accepted since the start",
    "pulsar_connection_create_fail_count": "Connections refused since the start: over a limit, or no proof of a role",
    "pulsar_connection_closed_total_count": "Connections closed since the start",
    "pulsar_broker_throttled_connections": "Connections whose socket is not read because of a rate limit",
    "pulsar_broker_lookup_answers": "Lookups answered with an address since the start",
    "pulsar_broker_lookup_failures": "Lookups answered with an error since the start",
    "pulsar_broker_lookup_pending_requests": "Lookups in progress",
    "pulsar_broker_topic_load_pending_requests": "Topics that are being loaded",
    "pulsar_ml_count": "Managed ledgers that are open",
    "pulsar_ml_cache_used_size": "Bytes in the entry cache",
    "pulsar_ml_cache_entries": "Slabs in the entry cache",
    "pulsar_ml_cache_hits_rate": "Entries read from the entry cache per second",
    "pulsar_ml_cache_hits_throughput": "Bytes read from the entry cache per second",
    "pulsar_ml_cache_misses_rate": "Entries read from ledger files per second",
    "pulsar_ml_cache_misses_throughput": "Bytes read from ledger files per second",
    "pulsar_ml_cache_evictions": "Slabs evicted from the entry cache since the start",
    "magnetar_loop_slow_callbacks_total": "Callbacks that held the event loop for more than 50 ms, since the start",
    "magnetar_loop_slow_callback_ms_total": "Time in callbacks of more than 50 ms, since the start, in ms",
    "magnetar_loop_longest_callback_ms": "The longest callback since the start, in ms",
    "magnetar_loop_long_turns_total": "Turns of the event loop of more than 50 ms that many callbacks made up",
    "magnetar_trace_spans_total": "Spans of publishes and deliveries recorded, since the start",
    "magnetar_trace_spans_left_out_total": "Spans that tracesPerSecond did not allow, since the start",
    "magnetar_storage_writable": "1 while the ledger store accepts appends, 0 while it is full or has failed",
    "magnetar_storage_full": "1 while appends are refused for want of disk space, by the part that ran out",
    "magnetar_storage_failed": "1 after a write or sync failed: the broker ends with code 74",
    "magnetar_storage_disk_used_ratio": "Used part of the file system that holds the data directory, 0 to 1",
    "magnetar_storage_appended_entries_total": "Entries appended to the journal",
    "magnetar_storage_appended_bytes_total": "Bytes of entries appended to the journal",
    "magnetar_journal_batches_total": "Journal writes; each is one write and one sync for all entries that waited",
    "magnetar_journal_bytes_total": "Bytes written to the journal",
    "magnetar_journal_sync_seconds": "Time of a journal write with its sync",
    "magnetar_storage_unwritten_bytes": "Bytes that are in the journal and not yet in ledger files",
    "magnetar_storage_checkpoints_total": "Checkpoints of the ledger files",
    "magnetar_storage_checkpoint_seconds": "Time of a checkpoint",
    "magnetar_storage_file_reads_total": "Reads of ledger files",
    "magnetar_storage_file_read_bytes_total": "Bytes read from ledger files",
    "magnetar_storage_corrupt_entries_total": "Entries whose checksum did not match when they were read",
    "magnetar_storage_open_files": "Ledger files that are open",
    "magnetar_client_memory_used_bytes": "Bytes that clients make the broker hold; maxClientMemoryInMB bounds them",
    "magnetar_client_memory_limit_bytes": "Bound of what all clients together may make the broker hold",
    "magnetar_client_memory_most_bytes": "The most that clients made the broker hold at a time since the start",
    "magnetar_client_memory_waiting_connections": "Connections whose next request waits for memory",
    "magnetar_client_memory_waits_total": "Times that a connection waited for memory since the start",
    "magnetar_client_memory_refusals_total": "Requests and connections refused for want of memory since the start",
    "magnetar_connections_limit": "Connections of the binary protocol that the broker accepts at most",
    "pulsar_lb_cpu_usage": "CPU time of the broker since the last scrape, in percent of all cores",
    "pulsar_lb_memory_usage": "Resident memory of the broker, in percent of the memory it may use",
    "pulsar_lb_directMemory_usage": "Memory that clients make the broker hold, in percent of its bound",
    "pulsar_broker_topics_count": "Topics that are loaded",
    "pulsar_broker_subscriptions_count": "Subscriptions of loaded topics",
    "pulsar_broker_producers_count": "Producers that are connected",
    "pulsar_broker_consumers_count": "Consumers that are connected",
    "pulsar_broker_rate_in": "Messages published per second",
    "pulsar_broker_rate_out": "Messages delivered per second",
    "pulsar_broker_throughput_in": "Bytes published per second",
    "pulsar_broker_throughput_out": "Bytes delivered per second",
    "pulsar_broker_storage_size": "Bytes stored by loaded topics, copies counted",
    "pulsar_broker_storage_logical_size": "Bytes stored by loaded topics, copies not counted",
    "pulsar_broker_storage_write_rate": "Entries stored per second",
    "pulsar_broker_storage_read_rate": "Entries read per second",
    "pulsar_broker_storage_read_cache_misses_rate": "Entries read from ledger files per second",
    "pulsar_broker_msg_backlog": "Messages that subscriptions have not acknowledged",
    "pulsar_broker_storage_backlog_quota_exceeded_evictions_total": "Evictions of backlog by a quota since the start",
    "pulsar_broker_publish_latency": "Time from the arrival of a message to its receipt, in ms, by quantile",
    "pulsar_expired_token_total": "Expired tokens that clients presented since the start",
    "pulsar_authentication_success_total": "Proofs of a role that were accepted since the start",
    "pulsar_authentication_failures_total": "Proofs of a role that were refused since the start, by reason",
    "pulsar_topics_count": "Loaded topics of the namespace",
    "pulsar_subscriptions_count": "Subscriptions of the topic",
    "pulsar_producers_count": "Producers connected to the topic",
    "pulsar_consumers_count": "Consumers connected to the topic",
    "pulsar_rate_in": "Messages published to the topic per second",
    "pulsar_rate_out": "Messages of the topic delivered per second",
    "pulsar_throughput_in": "Bytes published to the topic per second",
    "pulsar_throughput_out": "Bytes of the topic delivered per second",
    "pulsar_average_msg_size": "Average size of a published message, in bytes",
    "pulsar_in_bytes_total": "Bytes published to the topic since it was loaded",
    "pulsar_in_messages_total": "Messages published to the topic since it was loaded",
    "pulsar_publish_rate_limit_times": "Times that a publish rate limit held producers of the topic",
    "pulsar_storage_size": "Bytes stored by the topic, copies counted",
    "pulsar_storage_logical_size": "Bytes stored by the topic, copies not counted",
    "pulsar_storage_backlog_size": "Bytes that the slowest subscription of the topic has not acknowledged",
    "pulsar_storage_offloaded_size": "Bytes of the topic in offloaded ledgers; always 0",
    "pulsar_storage_write_rate": "Entries of the topic stored per second",
    "pulsar_storage_read_rate": "Entries of the topic read per second",
    "pulsar_storage_read_cache_misses_rate": "Entries of the topic read from ledger files per second",
    "pulsar_storage_backlog_quota_limit": "Backlog quota of the topic in bytes; -1 without a quota",
    "pulsar_storage_backlog_quota_limit_time": "Backlog quota of the topic in seconds; -1 without a quota",
    "pulsar_storage_backlog_age_seconds": "Age of the oldest message that a subscription has not acknowledged",
    "pulsar_storage_backlog_quota_exceeded_evictions_total": "Evictions of the topic's backlog by a quota",
    "pulsar_msg_backlog": "Messages of the topic that subscriptions have not acknowledged",
    "pulsar_txn_tb_active_total": "Active transactions of the topic; always 0",
    "pulsar_txn_tb_aborted_total": "Aborted transactions of the topic; always 0",
    "pulsar_txn_tb_committed_total": "Committed transactions of the topic; always 0",
    "pulsar_compaction_removed_event_count": "Messages that compaction left out because a later one has their key",
    "pulsar_compaction_succeed_count": "Compactions of the topic that ended well",
    "pulsar_compaction_failed_count": "Compactions of the topic that failed",
    "pulsar_compaction_duration_time_in_mills": "Duration of the last compaction, in ms",
    "pulsar_compaction_read_throughput": "Bytes per second that the last compaction read",
    "pulsar_compaction_write_throughput": "Bytes per second that the last compaction wrote",
    "pulsar_compaction_compacted_entries_count": "Entries of the compacted ledger",
    "pulsar_compaction_compacted_entries_size": "Bytes of the compacted ledger",
    "pulsar_delayed_message_index_size_bytes": "Memory of the index of delayed messages",
    "pulsar_delayed_message_index_bucket_total": "Buckets of the index of delayed messages",
    "pulsar_delayed_message_index_loaded": "Delayed messages of the index that are in memory",
    "pulsar_delayed_message_index_bucket_snapshot_size_bytes": "Bytes of the snapshots of the index's buckets",
    "pulsar_delayed_message_index_bucket_op_count": "Operations on buckets by type and state",
    "pulsar_delayed_message_index_bucket_op_latency_ms": "Operations on buckets by type and latency; not cumulative",
    "pulsar_delayed_message_index_bucket_op_latency_ms_count": "Operations on buckets by type",
    "pulsar_delayed_message_index_bucket_op_latency_ms_sum": "Time of operations on buckets by type, in ms",
    "magnetar_delayed_pending": "Delayed messages that are not due",
    "magnetar_delayed_earliest_timestamp": "Time at which the next delayed message is due, in ms since 1970; 0: none",
    "magnetar_delayed_latest_timestamp": "Time at which the last delayed message is due, in ms since 1970; 0: none",
    "magnetar_delayed_coverage_gap_entries": "Entries that the index does not cover and reads again",
    "magnetar_delayed_cancelled": "Delayed messages that were acknowledged before they were due",
    "magnetar_delayed_fired_total": "Delayed messages that became due",
    "magnetar_delayed_rebuild_total": "Rebuilds of a part of the index from the log",
    "magnetar_delayed_collected_total": "Buckets that were deleted because all of their messages are acknowledged",
    "magnetar_delayed_ready_spills_total": "Times that due messages exceeded memory and went back to buckets",
    "magnetar_delayed_bitmaps_shelved": "Bitmaps of the index that were put aside to save memory",
    "magnetar_delayed_lateness_ms": "Time from a message being due to the index releasing it, in ms",
    "pulsar_subscription_back_log": "Messages that the subscription has not acknowledged",
    "pulsar_subscription_back_log_no_delayed": "The same without messages that are delayed",
    "pulsar_subscription_delayed": "Messages of the subscription that are delayed",
    "pulsar_subscription_in_replay": "Messages that wait to be delivered again",
    "pulsar_subscription_msg_rate_redeliver": "Messages delivered again per second",
    "pulsar_subscription_unacked_messages": "Messages that consumers hold unacknowledged",
    "pulsar_subscription_blocked_on_unacked_messages": "1 while the limit of unacknowledged messages stops delivery",
    "pulsar_subscription_msg_rate_out": "Messages delivered per second",
    "pulsar_subscription_msg_ack_rate": "Messages acknowledged per second",
    "pulsar_subscription_msg_throughput_out": "Bytes delivered per second",
    "pulsar_subscription_last_expire_timestamp": "Time of the last expiry of messages, in ms since 1970; 0: never",
    "pulsar_subscription_last_acked_timestamp": "Time of the last acknowledgement, in ms since 1970; 0: never",
    "pulsar_subscription_last_consumed_flow_timestamp": "Time of the last FLOW of a consumer, in ms since 1970",
    "pulsar_subscription_last_consumed_timestamp": "Time of the last delivery, in ms since 1970; 0: never",
    "pulsar_subscription_last_mark_delete_advanced_timestamp": "Time when the mark-delete position last moved, in ms",
    "pulsar_subscription_msg_rate_expired": "Messages expired per second",
    "pulsar_subscription_total_msg_expired": "Messages expired since the topic was loaded",
    "pulsar_subscription_msg_drop_rate": "Messages dropped per second (non-persistent topics)",
    "pulsar_subscription_consumers_count": "Consumers of the subscription",
    "pulsar_subscription_filter_processed_msg_count": "Messages that entry filters saw",
    "pulsar_subscription_filter_accepted_msg_count": "Messages that entry filters accepted",
    "pulsar_subscription_filter_rejected_msg_count": "Messages that entry filters rejected",
    "pulsar_subscription_filter_rescheduled_msg_count": "Messages that entry filters put off",
    "pulsar_out_bytes_total": "Bytes delivered since the topic was loaded",
    "pulsar_out_messages_total": "Messages delivered since the topic was loaded",
    "pulsar_consumer_msg_rate_redeliver": "Messages delivered to the consumer again per second",
    "pulsar_consumer_unacked_messages": "Messages that the consumer holds unacknowledged",
    "pulsar_consumer_blocked_on_unacked_messages": "1 while the consumer's unacknowledged messages stop its delivery",
    "pulsar_consumer_msg_rate_out": "Messages delivered to the consumer per second",
    "pulsar_consumer_msg_ack_rate": "Messages that the consumer acknowledged per second",
    "pulsar_consumer_msg_throughput_out": "Bytes delivered to the consumer per second",
    "pulsar_consumer_available_permits": "Messages that the consumer still asked for",
    "pulsar_producer_msg_rate_in": "Messages of the producer per second",
    "pulsar_producer_msg_throughput_in": "Bytes of the producer per second",
    "pulsar_producer_msg_average_Size": "Average size of the producer's messages, in bytes",
    "pulsar_message_converter_accepted_total": "Entries that the converter accepted",
    "pulsar_message_converter_converted_messages_total": "Messages that the converter made",
    "pulsar_message_converter_cache_hits_total": "Conversions answered from the cache of converted entries",
    "pulsar_message_converter_raw_total": "Entries delivered unconverted after a failure",
    "pulsar_message_converter_skipped_total": "Entries left out after a failure",
    "pulsar_message_converter_dead_lettered_total": "Entries sent to a dead letter topic after a failure",
    "pulsar_message_converter_converted_bytes_total": "Bytes into and out of the converter",
    "pulsar_message_converter_failures_total": "Conversions that failed, by reason",
    "pulsar_message_converter_breaker_open": "1 while the converter rests after repeated failures",
    "pulsar_message_converter_latency_seconds": "Time of a conversion",
    "pulsar_message_converter_parked": "Entries that wait for a conversion to be tried again",
    "pulsar_message_converter_raw_bypass_total": "Entries delivered unconverted to consumers of raw entries",
    "pulsar_message_converter_workers_busy": "Worker processes that convert now",
    "pulsar_message_converter_cache_bytes": "Bytes in the cache of converted entries",
    "pulsar_message_converter_cache_evictions_total": "Entries evicted from the cache of converted entries",
}


def help_text(name: str) -> str | None:
    """The meaning of a metric family; None for a name that no table knows."""
    found = _TEXTS.get(name)
    return found if found is not None else _bucket_text(name)


def help_line(name: str) -> str:
    """The line ``# HELP name text`` with its end; empty for a name that no table knows."""
    text = help_text(name)
    return f"# HELP {name} {text}\n" if text else ""


def _bucket_text(name: str) -> str | None:
    found = _BUCKET.match(name)
    if found is None or found["family"] not in _FAMILIES:
        return None
    meaning, unit, counted = _FAMILIES[found["family"]]
    if found["rest"] == "sum":
        return f"Sum over the last stats period: {meaning}, in {unit}"
    if found["rest"] == "count":
        return f"Number of {counted} in the last stats period: {meaning}"
    if found["rest"] == "overflow" or found["bound"] == "overflow":
        return f"Number of {counted} in the last stats period above the largest bound: {meaning}"
    bound = found["bound"].replace("0_5", "0.5").replace("_", " ")
    bound = bound if bound.endswith(("kb", "mb")) else f"{bound} {unit}"
    return f"Number of {counted} in the last stats period up to {bound} and above the bound before: {meaning}"
