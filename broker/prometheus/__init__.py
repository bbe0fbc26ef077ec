"""The metrics of /metrics and their exposition."""
