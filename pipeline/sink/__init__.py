"""Rows to messages: the sink of `df.write` and `df.writeStream`.

    record batches -> columns (the message's parts) -> routing (its topic) -> packing (entries) -> producers -> broker

The rows of a task alone determine its entries, so a task that runs again sends the same entries with the same sequence
ids, and the broker's deduplication drops stored entries.
"""
