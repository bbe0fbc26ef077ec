"""Topic compaction: the newest message of each key, kept beside the log (docs/features/compaction.md).

::

    TopicCompaction    of a topic: status, start, crash-safe replacement        (topic_compaction.py, record.py)
    Compactor          a run in two phases                                      (compactor.py)
      examine          keys and tombstones of an entry                          (examine.py)
      Findings         which messages survive                                   (survivors.py, key_table.py)
    CompactedLedger    the entries that survived                                (compacted_ledger.py)
    CompactedReader    reads for read_compacted consumers                       (compacted_reader.py, earlier_part.py)
"""
