import pytest

from magnetar.broker.errors import NotAllowedError
from magnetar.broker.foreign_entries.dead_letters import DeadLetters, Letter, write
from magnetar.broker.foreign_entries.failures import Failed
from magnetar.broker.tasks import TaskSet
from magnetar.converters.entry import Entry
from magnetar.converters.outcome import ConversionFailure, FailureReason
from magnetar.storage.position import Position
from tests.broker.foreign_entries.converting_for_tests import foreign

FAILED = Failed(ConversionFailure(FailureReason.INVALID, "kafka", "m" * 1000), 3, 0)


def letter(entry, topic="persistent://public/default/t-partition-2"):
    return Letter(topic, "sub", Position(4, 5), entry, FAILED)


def test_the_address_follows_the_naming_of_clients():
    assert str(letter(b"").address) == "persistent://public/default/t-sub-DLQ"


def test_a_subscription_with_slashes_in_its_name_has_an_address():
    name = Letter("persistent://public/default/t", "a/b/c", Position(4, 5), b"", FAILED).address
    assert (name.namespace, name.local_name) == ("public/default", "t-a%2Fb%2Fc-DLQ")


def test_a_letter_is_a_plain_message_that_tells_where_it_comes_from():
    stored = foreign(b"payload", "kafka", 7, partition_key="k", deliver_at_time=99, sequence_id=12)
    written = Entry(write(letter(stored), 1234))
    written.verify_checksum()
    metadata = written.metadata
    assert written.payload == b"payload"
    assert (metadata.partition_key, metadata.publish_time, metadata.sequence_id) == ("k", 1234, 12)
    assert not metadata.HasField("num_messages_in_batch")
    assert not metadata.HasField("deliver_at_time")
    properties = {each.key: each.value for each in metadata.properties}
    assert "entry.format" not in properties
    assert properties.pop("conversion.message") == "m" * 500
    assert properties == {
        "entry.format.origin": "kafka",
        "REAL_TOPIC": "persistent://public/default/t-partition-2",
        "REAL_SUBSCRIPTION": "sub",
        "ORIGIN_MESSAGE_ID": "4:5",
        "conversion.reason": "invalid",
        "conversion.converter": "kafka",
        "conversion.attempts": "3",
        "conversion.messages": "7",
    }


@pytest.mark.parametrize("entry", [b"", b"\xff" * 30])
def test_even_bytes_that_are_no_entry_become_a_letter(entry):
    assert Entry(write(letter(entry), 1)).payload == entry


class Topics:
    def __init__(self, error=None):
        self.error = error

    async def create(self, name):
        raise self.error


async def test_a_letter_that_cannot_be_stored_is_logged():
    tasks = TaskSet()
    letters = DeadLetters(Topics(NotAllowedError("no")), tasks, lambda: 1)
    assert await letters.send(letter(b"")) is False
