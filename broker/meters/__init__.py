"""Counters and measurements, taken once per burst."""
