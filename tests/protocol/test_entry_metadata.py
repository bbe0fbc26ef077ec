"""Metadata of stored entries."""

from magnetar.protocol.metadata import parse_entry_metadata


def test_entry_metadata_that_a_client_made_up_are_none():
    assert parse_entry_metadata(b"\x0e\x02\x00\x00\x00\x03\xff\xff\xff" + b"rest") is None
