"""Messages of the REST API as texts."""

import pytest

from magnetar.broker.compat.java_times import instant
from magnetar.cli.pulsar_admin.message_texts import messages_of, millis
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch


@pytest.mark.parametrize("time_ms", [1, 1_700_000_000_123, 253_402_300_799_000, 253_402_300_800_000, 1 << 63])
def test_a_time_of_a_header_is_read_as_the_broker_writes_it(time_ms):
    assert millis(instant(time_ms)) == time_ms


def test_a_message_with_a_year_of_many_digits_is_shown_without_its_time():
    headers = {"X-Pulsar-event-time": "+57742-03-07T08:53:20Z", "X-Pulsar-publish-time": "1970-01-01T00:00:00.005Z"}
    (found,) = messages_of(b"x", headers)
    assert (found.event_time, found.publish_time, found.payload) == (0, 5, b"x")


def test_texts_of_a_batch_that_are_not_utf8_are_read_as_in_java():
    single = b"\x18\x01\x0a\x08\x0a\x02k\xff\x12\x02v\xfe\x12\x02k\xff"
    (found,) = messages_of(len(single).to_bytes(4, "big") + single + b"x", {"X-Pulsar-num-batch-message": "1"})
    assert (found.properties, found.key, found.payload) == ({"k�": "v�"}, "k�".encode(), b"x")


def test_times_of_a_batch_are_signed_as_in_java():
    single = pb.SingleMessageMetadata(payload_size=1, event_time=(1 << 64) - 1)
    (found,) = messages_of(encode_batch([(single, b"x")]), {"X-Pulsar-num-batch-message": "1"})
    assert found.event_time == -1
