"""Offline check of a data directory (``magnetar verify``)."""
