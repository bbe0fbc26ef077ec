"""Backups of a running broker on this machine: complete images of a data directory, taken at one instant.

A copy of the files of a running broker, one after the other, is no backup: it mixes moments. So the broker's process is
stopped (SIGSTOP) for the milliseconds that the image takes: small files are read into memory, ledger files are opened.
What a stopped process leaves in its files is what `kill -9` leaves in them: every acknowledged message, and nothing
that a start cannot recover. Ledger files only grow at their end and an open one survives its deletion, so they are
copied afterwards, each to the length that it had.
"""
