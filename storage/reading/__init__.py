"""Reading the ledgers of a data directory from outside: public, read-only, safe beside a running broker.

    from magnetar.storage.reading.data_directory import DataDirectory

    directory = DataDirectory("/var/lib/magnetar")
    with directory.open_ledger(42) as ledger:
        for slab in ledger.slabs(0, ledger.entries):
            slab.body(0)                     # the entry as it is stored

Guarantees of this package:

* It takes no lock, writes nothing, and needs no more than the right to read ``VERSION`` and ``ledgers/``.
* Every entry it gives is confirmed. Only confirmed entries are written behind into a ledger file, in their order and at
  their final offset, and a start after a crash writes the same bytes to the same places. So the intact records at the
  beginning of a file are a prefix of the ledger up to its last confirmed entry at most, and they never change.
* It may give fewer entries than are confirmed: those that stand in the journal and not yet in the ledger file.
  ``LedgerSegment.entries`` counts the readable entries; the others have to come from the broker. The package never
  leaves entries out silently, and ``refresh`` finds them once they are in the file.
* Every record is checked (CRC32C, ledger id, succession of entry ids) before it is given.
* A ledger that the broker deletes is gone for ``open_ledger`` (NoSuchLedgerError); an open ledger stays readable.

The broker's admin API lists the ledgers of a topic in order (``internalStats``); ``stored_topics.stored_topics`` reads
the same list from the metadata of a directory that no broker uses. The errors are in ``errors.py``.
"""
