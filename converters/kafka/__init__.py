"""Kafka record sets of magic 0, 1 and 2: read, create, validate, assign offsets, convert. Usable on its own.

Start with `record_set.RecordSet` (reading) and `creation.create_record_set` (writing).
"""
