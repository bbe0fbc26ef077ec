"""Messages as pulsar-client prints them."""

import pytest

from magnetar.cli.pulsar_client.printing import message_line
from magnetar.client.messages import EntryReader
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_entry


@pytest.mark.parametrize(
    ("event_time", "shown"),
    [
        (1_700_000_000_000, "2023-11-14T22:13:20Z"),
        (1_760_000_000_000_000, "1760000000000000"),
        ((1 << 64) - 1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_any_event_time_is_printed(event_time, shown):
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, event_time=event_time)
    place = pb.MessageIdData(ledgerId=3, entryId=4)
    (message,) = EntryReader("t").messages(place, encode_entry(metadata, b"x"))
    assert f"event-time:{shown}," in message_line(message, as_hex=False, with_metadata=True)
