"""Backups of a running broker on this machine: complete images of a data directory, taken at one instant.

Copying the files of a running broker one after the other makes no backup, because the copies are of different moments.
So the backup stops the broker's process (SIGSTOP) for the milliseconds that the image takes: it copies the journal and
the metadata, and opens the ledger files. The files of a stopped process are in the same state as after `kill -9`: they
contain every acknowledged message, and a broker that starts on them recovers. Ledger files only grow at their end, and
an open file survives its deletion. So the backup copies the ledger files after it has resumed the broker, each up to
the recorded length.
"""
