import pytest

from magnetar.converters.interface import Conversion
from magnetar.converters.output_check import KEPT_FIELDS, InvalidOutputError, check_output
from magnetar.protocol.pulsar_api_pb2 import LZ4, MessageMetadata, SingleMessageMetadata


def stored(**fields):
    return MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **fields)


def message(payload=b"v", **fields):
    single = SingleMessageMetadata(payload_size=len(payload), **fields).SerializeToString()
    return len(single).to_bytes(4, "big") + single + payload


HOLE = message(b"", compacted_out=True)


def test_good_outputs():
    check_output(stored(), Conversion(stored(), b"anything"))
    check_output(stored(), Conversion(stored(), memoryview(b"")))
    check_output(stored(num_messages_in_batch=2), Conversion(stored(num_messages_in_batch=2), bytearray(message() * 2)))
    three = stored(num_messages_in_batch=3)
    check_output(three, Conversion(three, message() + HOLE + message(), (1,)))
    check_output(stored(), Conversion(stored(num_messages_in_batch=1), HOLE, (0,)))


@pytest.mark.parametrize(
    ("count", "payload", "holes", "why"),
    [
        (2, message(), (), "leaves|parsed|no payload size"),
        (2, message() * 3, (), "follow the last"),
        (2, message() + b"x", (), "leaves|parsed|no payload size"),
        (2, message() + message()[:-1], (), "leaves"),
        (2, message() + message(compacted_out=True), (), "holes"),
        (2, message() * 2, (1,), "holes"),
        (1, b"\x00\x00\x00\x02\xff\xff", (), "parsed"),
        (1, b"\x00\x00\x00\x00", (), "no payload size"),
        (1, b"\x00\x00\x00\x0b\x18" + b"\xff" * 9 + b"\x01", (), "negative"),
    ],
)
def test_batches_must_be_exact(count, payload, holes, why):
    batch = stored(num_messages_in_batch=count)
    with pytest.raises(InvalidOutputError, match=why):
        check_output(batch, Conversion(batch, payload, holes))


def test_the_count_stays():
    with pytest.raises(InvalidOutputError, match="2 messages out, 1 in"):
        check_output(stored(), Conversion(stored(num_messages_in_batch=2), message() * 2))
    with pytest.raises(InvalidOutputError, match="no batch"):
        check_output(stored(), Conversion(stored(), b"", (0,)))


VALUES = {"producer_name": "other", "replicated_from": "west", "schema_version": b"\x01"}


@pytest.mark.parametrize("field", KEPT_FIELDS)
def test_a_change_of_an_identifying_field_is_refused(field):
    changed = stored()
    setattr(changed, field, VALUES.get(field, 99))
    with pytest.raises(InvalidOutputError, match=field):
        check_output(stored(), Conversion(changed, b""))


def test_the_output_is_plain_and_complete():
    encrypted = stored()
    encrypted.encryption_keys.add(key="k", value=b"v")
    for bad in (stored(compression=LZ4), stored(chunk_id=0), encrypted):
        with pytest.raises(InvalidOutputError, match="plain"):
            check_output(stored(), Conversion(bad, b""))
    named = stored()
    named.properties.add(key="entry.format", value="kafka")
    with pytest.raises(InvalidOutputError, match=r"entry\.format"):
        check_output(named, Conversion(named, b""))
    with pytest.raises(InvalidOutputError, match="required"):
        check_output(stored(), Conversion(MessageMetadata(), b""))
    with pytest.raises(InvalidOutputError, match="neither"):
        check_output(stored(), Conversion(stored(), "text"))
    with pytest.raises(InvalidOutputError, match="neither"):
        check_output(stored(), Conversion(None, b""))
