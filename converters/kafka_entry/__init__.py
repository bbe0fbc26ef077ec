"""Kafka record sets inside Pulsar entries: the converter for `entry.format=kafka`, the way back, planned imports."""
