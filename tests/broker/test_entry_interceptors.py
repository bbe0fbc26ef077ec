"""Interceptors of entry metadata: found by name, called once for each burst, never in the way of a message."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from magnetar.broker.entry_interceptors import (
    MAX_EXTRA_BYTES,
    EntryMetadataInterceptors,
    EntryStamp,
    LoadedInterceptors,
    load,
)
from magnetar.protocol import speed
from magnetar.protocol.pulsar_api_pb2 import BrokerEntryMetadata
from magnetar.storage.managed.entry_index import broker_index
from magnetar.storage.position import EARLIEST
from tests.broker.topic_for_tests import TopicBench
from tests.storage.managed_for_tests import append, given, message

PULSAR = "org.apache.pulsar.common.intercept."
HERE = "tests.broker.test_entry_interceptors."


class Origin:
    """Adds the topic and the entry's number in the burst as fields."""

    def intercept(self, topic, entries):
        for number, entry in enumerate(entries):
            entry.add(1000, topic)
            entry.add(1001, number)


class Later:
    def intercept(self, topic, entries):
        for entry in entries:
            entry.broker_timestamp += 5


class Failing:
    """Adds a field to the first entry, then fails."""

    def __init__(self, value=None):
        self.value = value

    def intercept(self, topic, entries):
        entries[0].add(2000, b"half done")
        entries[0].broker_timestamp = 1 if self.value is None else self.value
        if self.value is None:
            raise RuntimeError("bad day")


class NoMethod:
    pass


class CannotBeMade:
    def __init__(self):
        raise OSError("no licence")


def fields_of(body):
    """(known metadata, {number: value} of the others) of a stored entry."""
    data = bytes(body[6 : speed.after_prefix(body)]) if speed.after_prefix(body) else b""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        value = varint()
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        if key >> 3 > 2:
            found[key >> 3] = value
    return BrokerEntryMetadata.FromString(data), found


async def stored(bench):
    spans = await given(bench.topic.ledger.new_read_cursor(EARLIEST).read(100, 1 << 20))
    return [fields_of(span.body(k)) for span in spans for k in range(span.entries)]


async def bench_with(*interceptors, timestamp=True, index=True, monotonic=lambda: 0.0):
    users = EntryMetadataInterceptors([(type(i).__name__, i) for i in interceptors], monotonic)
    bench = TopicBench(interceptors=LoadedInterceptors(timestamp, index, users))
    await bench.open()
    return bench, users


def test_apache_pulsars_names_are_known_with_and_without_package():
    assert load([]) == LoadedInterceptors(False, False, None)
    assert load([PULSAR + "AppendIndexMetadataInterceptor"]) == LoadedInterceptors(False, True, None)
    assert load(["AppendBrokerTimestampMetadataInterceptor"]) == LoadedInterceptors(True, False, None)


@pytest.mark.parametrize("path", [HERE + "Origin", HERE[:-1] + ":Origin"])
def test_a_class_is_found_by_its_path(path):
    found = load([PULSAR + "AppendIndexMetadataInterceptor", path])
    assert list(found.users.failures) == [path]
    assert found.index


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (PULSAR + "AppendEverything", "are known"),
        ("AppendEverything", "are known"),
        ("no.such.module.Thing", "ModuleNotFoundError"),
        (HERE + "NoSuchClass", "AttributeError"),
        (HERE + "NoMethod", "no method intercept"),
        (HERE + "CannotBeMade", "no licence"),
        ("..", "cannot be used"),
    ],
)
def test_unusable_interceptors_are_refused_at_the_start(name, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        load([name])
    assert "brokerEntryMetadataInterceptors" in str(refused.value)
    assert name in str(refused.value)


async def test_fields_are_stored_per_entry_beside_timestamp_and_index():
    bench, users = await bench_with(Origin(), Later())
    await bench.publish(b"a", b"b")
    await bench.publish(b"c")
    now_ms = bench.ground.clock.now_ms()
    topic = b"persistent://public/default/t"
    assert [fields for _, fields in await stored(bench)] == [
        {1000: topic, 1001: 0},
        {1000: topic, 1001: 1},
        {1000: topic, 1001: 0},
    ]
    assert [(known.broker_timestamp, known.index) for known, _ in await stored(bench)] == [
        (now_ms + 5, 0),
        (now_ms + 5, 1),
        (now_ms + 5, 2),
    ]
    assert users.failures == {"Origin": 0, "Later": 0}


async def test_without_apache_pulsars_interceptors_only_the_own_fields_are_stored():
    bench, _ = await bench_with(Origin(), timestamp=False, index=False)
    await bench.publish(b"a")
    known, fields = (await stored(bench))[0]
    assert (known.HasField("broker_timestamp"), known.HasField("index"), fields[1001]) == (False, False, 0)


@pytest.mark.parametrize("failing", [Failing(), Failing(value=-4), Failing(value="soon")])
async def test_a_failing_interceptor_costs_its_own_additions_only(failing):
    bench, users = await bench_with(Origin(), failing, Later())
    with capture_logs() as logs:
        await bench.publish(b"a", b"b")
        await bench.publish(b"c")
    assert [fields.get(1001) for _, fields in await stored(bench)] == [0, 1, 0]
    assert not any(2000 in fields for _, fields in await stored(bench))
    assert {known.broker_timestamp for known, _ in await stored(bench)} == {bench.ground.clock.now_ms() + 5}
    assert users.failures == {"Origin": 0, "Failing": 2, "Later": 0}
    complaints = [line for line in logs if line["event"] == "interceptor.failed"]
    assert [line["interceptor"] for line in complaints] == ["Failing"], "once a minute"


async def test_it_complains_again_after_a_minute():
    now = [0.0]
    bench, _ = await bench_with(Failing(), monotonic=lambda: now[0])
    with capture_logs() as logs:
        for seconds in (0.0, 30.0, 61.0):
            now[0] = seconds
            await bench.publish(b"a")
    assert [line["failures"] for line in logs if line["event"] == "interceptor.failed"] == [1, 3]


async def test_entries_that_claim_no_message_get_no_metadata():
    bench, _ = await bench_with(Origin())
    await append(bench.topic.ledger, [message(b"a"), message(b"b")], [0, 2])
    spans = await given(bench.topic.ledger.new_read_cursor(EARLIEST).read(100, 1 << 20))
    assert [speed.after_prefix(spans[0].body(k)) > 0 for k in range(2)] == [False, True]
    assert broker_index(spans[0].body(1)) == 1


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        (1, 5, ValueError),
        (999, 5, ValueError),
        (19_500, 5, ValueError),
        (1 << 29, 5, ValueError),
        (1000, -1, ValueError),
        (1000, 1 << 64, ValueError),
        (1000, 1.5, TypeError),
        (1000, True, TypeError),
        (1000, b"x" * MAX_EXTRA_BYTES, ValueError),
    ],
)
def test_fields_that_cannot_be_stored_are_refused(field, value, error):
    entry = EntryStamp(memoryview(b"x"), 1, None)
    with pytest.raises(error):
        entry.add(field, value)
    assert entry.prefix(-1) == b""


def test_the_largest_fields_fit_into_the_reserved_room():
    entry = EntryStamp(memoryview(b"x"), 1, (1 << 63) - 1)
    entry.add(1000, b"x" * (MAX_EXTRA_BYTES - 5))
    assert len(entry.prefix((1 << 63) - 1)) <= EntryMetadataInterceptors.max_bytes
