"""Backups of a running broker on this machine: complete images of a data directory, taken at one instant.

A copy of the files of a running broker, one after the other, is no backup: it mixes moments. So the broker's process is
stopped (SIGSTOP) for the milliseconds that the image takes: small files are read into memory, ledger files are opened.
A stopped process leaves its files in the same state as `kill -9`: with every acknowledged message, in a state that a
start can recover. Ledger files only grow at their end, and an open file survives its deletion. So the backup copies
them afterwards, each up to the recorded length.
"""
