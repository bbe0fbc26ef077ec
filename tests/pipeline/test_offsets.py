"""Places in topics, as users write them and as checkpoints keep them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.offsets import (
    EARLIEST,
    LATEST,
    MessagePlace,
    Offsets,
    Position,
    TimePlace,
    WantedOffsets,
    message_place,
    parse_wanted,
    parse_wanted_times,
)
from magnetar.pipeline.option_table import OptionError
from magnetar.protocol import pulsar_api_pb2 as pb

T = "persistent://public/default/t"
PLACES = st.integers(0, 1 << 62) | st.builds(Position, st.integers(0, 1 << 40), st.integers(0, 1 << 40))


@given(st.dictionaries(st.integers(0, 99).map(lambda n: f"{T}-{n}"), PLACES))
def test_offsets_survive_their_json(places):
    assert Offsets.from_json(Offsets(places).as_json()) == Offsets(places)


def test_the_newest_ledger_of_a_log_is_kept_beside_the_places():
    stored = Offsets({T: 5, f"{T}-other": Position(1, 2)}, {T: 31}).as_json()
    assert stored == {"v": 1, T: 5, f"{T}-other": "1:2", "ledgers": {T: 31}}
    assert Offsets.from_json(stored).ledgers == {T: 31}
    assert parse_wanted("startingOffsets", json.dumps(stored), EARLIEST).by_topic == {
        T: 5,
        f"{T}-other": MessagePlace(Position(1, 2)),
    }
    assert parse_wanted("startingOffsets", '{"ledgers": 3}', EARLIEST).of(T.replace("/t", "/ledgers")) == 3


@pytest.mark.parametrize(
    "stored",
    [
        {"orders": {"0": 5}},
        [1, 2],
        "5",
        {},
        {"v": True, T: 3},
        {"v": 1, T: -5},
        {"v": 1, T: 3.5},
        {"v": 1, T: None},
        {"v": 1, T: True},
        {"v": 1, T: "abc"},
        {"v": 1, T: "a:b"},
        {"v": 1, T: 3, "ledgers": 5},
        {"v": 2, T: 3, "bytes": {T: "x"}},
    ],
    ids=str,
)
def test_offsets_of_another_source_and_damaged_offsets_are_named_with_a_remedy(stored):
    """The first are those of a checkpoint of Spark's Kafka source."""
    with pytest.raises(ValueError, match=r"checkpoint has no offsets of this source.*startingOffsets"):
        Offsets.from_json(stored)


def test_offsets_of_a_newer_version_are_refused():
    with pytest.raises(ValueError, match="version 3"):
        Offsets.from_json({"v": 3, T: 3})


def test_only_offsets_with_sizes_of_messages_are_refused_by_earlier_releases():
    stored = Offsets({T: 5}, {T: 31}, {T: 1080}).as_json()
    assert stored == {"v": 2, T: 5, "ledgers": {T: 31}, "bytes": {T: 1080}}
    assert Offsets.from_json(stored).bytes_per == {T: 1080}
    assert Offsets({T: 5}, {T: 31}).as_json()["v"] == 1


def test_a_log_without_any_ledger_has_an_offset():
    """A partition without a producer up to now: its last position is -1:-1."""
    offsets = Offsets({T: 0}, {T: -1})
    assert Offsets.from_json(offsets.as_json()) == offsets
    assert Offsets.from_json(offsets.as_json()).ledgers == {T: -1}


@pytest.mark.parametrize(
    ("text", "topic", "expected"),
    [
        ("earliest", T, EARLIEST),
        (" Latest ", T, LATEST),
        ('{"t": 5}', T, 5),
        ('{"t": "latest"}', T + "-partition-3", LATEST),
        ('{"t": "7:8"}', T, MessagePlace(Position(7, 8))),
        ('{"t": "7:8:2"}', T, MessagePlace(Position(7, 8), 2)),
        ('{"t": {"0": 4, "1": -2, "2": -1}}', T + "-partition-0", 4),
        ('{"t": {"0": 4, "1": -2, "2": -1}}', T + "-partition-1", EARLIEST),
        ('{"t": {"0": 4, "1": -2, "2": -1}}', T + "-partition-2", LATEST),
        ('{"t": 5}', T + "-other", "default"),
        ('{"t": -2}', T, EARLIEST),
        ('{"t": -1}', T, LATEST),
        ("1970-01-01T00:00:01.5Z", T, TimePlace(1500)),
        ("1970-01-02", T, TimePlace(86_400_000)),
        ('{"t": "1970-01-01T01:00:00+01:00"}', T, TimePlace(0)),
        ('{"v": 1, "persistent://public/default/t": 9}', T, 9),
    ],
)
def test_forms_of_offsets(text, topic, expected):
    assert parse_wanted("startingOffsets", text, "default").of(topic) == expected


def test_message_ids_of_the_official_clients_are_taken_as_numbers():
    serialized = pb.MessageIdData(ledgerId=300, entryId=4, batch_index=1).SerializeToString()
    signed_bytes = [byte - 256 if byte > 127 else byte for byte in serialized]
    found = parse_wanted("startingOffsets", f'{{"t": {signed_bytes}}}', EARLIEST)
    assert found.of(T) == MessagePlace(Position(300, 4), 1)
    earliest = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1).SerializeToString()
    latest = pb.MessageIdData(ledgerId=(1 << 63) - 1, entryId=(1 << 63) - 1).SerializeToString()
    assert (message_place(earliest), message_place(latest)) == (EARLIEST, LATEST)


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "soon",
        "[1]",
        '{"t": -5}',
        '{"t": true}',
        '{"t": [300, "x"]}',
        '{"a/b": 1}',
        '{"t": {"x": 1}}',
        '{"t": "a:b"}',
        '{"t": "1970-13-01"}',
    ],
)
def test_invalid_places_are_refused_with_the_option_named(text):
    with pytest.raises(OptionError, match="startingOffsets"):
        parse_wanted("startingOffsets", text, EARLIEST)


def test_a_partition_named_itself_goes_before_its_topic():
    wanted = WantedOffsets(EARLIEST, {T: 1, T + "-partition-2": 2})
    assert [wanted.of(f"{T}-partition-{n}") for n in (1, 2)] == [1, 2]


def test_partition_0_is_a_topic_without_partitions_too():
    """The column `partition` in the style of Kafka has 0 for a topic without partitions."""
    wanted = parse_wanted("startingOffsets", '{"t": {"0": 5, "1": 7}, "u": 3}', EARLIEST)
    assert [wanted.of(name) for name in (T, f"{T}-partition-0", f"{T}-partition-1")] == [5, 5, 7]
    assert parse_wanted("startingOffsets", '{"t": {"0": 5}}', EARLIEST).of(f"{T}-partition-1") == EARLIEST


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0:-1", MessagePlace(Position(0, -1))),
        ("12:3:-1", MessagePlace(Position(12, 3))),
        ("-1:-1", MessagePlace(Position(-1, -1))),
        ("2026-11-22", TimePlace(1_795_305_600_000)),
        ("0001-01-01", TimePlace(-62_135_596_800_000)),
    ],
)
def test_texts_with_a_minus_are_message_ids_or_times(text, place):
    assert parse_wanted("startingOffsets", json.dumps({"t": text}), EARLIEST).of(T) == place


def test_names_of_topics_that_are_not_read():
    wanted = parse_wanted("startingOffsets", '{"t": {"0": 5, "7": 7}, "u": 3}', EARLIEST)
    other, missing = "persistent://public/default/u", f"{T}-partition-7"
    assert wanted.names_outside([T]) == [missing, other]
    assert wanted.names_outside([f"{T}-partition-{n}" for n in range(8)]) == [other]
    assert wanted.names_outside([f"{T}-partition-0", f"{other}-partition-2"]) == [missing]
    assert wanted.option == "startingOffsets"


def test_times_by_topic_as_the_source_of_kafka_takes_them():
    found = parse_wanted_times("startingOffsetsByTimestamp", '{"t": 5, "u": {"0": 7, "1": 9}}', EARLIEST)
    assert (found.of(T), found.of(T[:-1] + "u-partition-1")) == (TimePlace(5), TimePlace(9))
    assert found.of(T + "-other") == EARLIEST


@pytest.mark.parametrize("text", ["5", "earliest", '{"t": "1970-01-01"}', '{"t": true}', '{"t": [1]}'])
def test_invalid_times_by_topic_are_refused_with_the_option_named(text):
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp"):
        parse_wanted_times("startingOffsetsByTimestamp", text, EARLIEST)
