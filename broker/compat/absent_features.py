"""Figures of features that this broker does not have, always 0: tools of Apache Pulsar read these figures.

Offloading, transactions, entry filters, the arenas and beans of a Java process, and the counters of some limiters.
"""

from typing import Final

OFFLOADING_GAUGES: Final = ("pulsar_storage_offloaded_size",)
TRANSACTION_GAUGES: Final = (
    "pulsar_txn_tb_active_total",
    "pulsar_txn_tb_aborted_total",
    "pulsar_txn_tb_committed_total",
)
FILTER_GAUGES: Final = (
    "pulsar_subscription_filter_processed_msg_count",
    "pulsar_subscription_filter_accepted_msg_count",
    "pulsar_subscription_filter_rejected_msg_count",
    "pulsar_subscription_filter_rescheduled_msg_count",
)
HEALTH_NOT_MEASURED: Final = -1
"""Apache Pulsar's health of the broker while `healthCheckMetricsUpdateTimeInSeconds` is not set."""
_TRANSACTIONS: Final = ("ongoingTxnCount", "abortedTxnCount", "committedTxnCount")
UNUSED_TOPIC_FIELDS: Final = dict.fromkeys((*_TRANSACTIONS, "offloadedStorageSize"), 0)
"""JSON fields of a partitioned topic before its first partition is used."""
TOPIC_FIELDS: Final = UNUSED_TOPIC_FIELDS | dict.fromkeys(
    (
        "systemTopicBytesInCounter",
        *("lastOffloadLedgerId", "lastOffloadSuccessTimeStamp", "lastOffloadFailureTimeStamp"),
    ),
    0,
)
"""JSON fields in the statistics of a topic."""
SUBSCRIPTION_FIELDS: Final = dict.fromkeys(
    (
        *("filterProcessedMsgCount", "filterAcceptedMsgCount"),
        *("filterRejectedMsgCount", "filterRescheduledMsgCount"),
    ),
    0,
)
"""JSON fields in the statistics of a subscription."""
LEDGER_OPERATIONS: Final = dict.fromkeys(
    (f"{kind}Ledger{verb}Op" for kind in ("data", "cursor") for verb in ("Open", "Close", "Create", "Delete")), 0
)
"""Operations of a topic that wait for bookies, by their JSON names."""
ALLOCATORS: Final = ("default", "ml-cache")
ALLOCATOR_STATS: Final = {
    **dict.fromkeys(("numDirectArenas", "numHeapArenas", "numThreadLocalCaches"), 0),
    **dict.fromkeys(("smallCacheSize", "normalCacheSize", "usedDirectMemory", "usedHeapMemory"), 0),
    "directArenas": [],
    "heapArenas": [],
}
"""JSON of an allocator of Netty."""
