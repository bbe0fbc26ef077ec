"""Topic compaction: the newest message of each key, kept beside the log (docs/features/compaction.md).

::

    TopicCompaction    one per topic: status, start, crash-safe replacement     (topic_compaction.py, record.py)
    Compactor          one run, two phases                                      (compactor.py)
      examine          keys and tombstones of an entry                          (examine.py)
      Findings         which messages survive                                   (survivors.py, key_table.py)
    CompactedLedger    the entries that survived                                (compacted_ledger.py)
    CompactedReader    what read_compacted consumers read                       (compacted_reader.py, earlier_part.py)
"""
