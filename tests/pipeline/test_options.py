"""The table of the source's options: complete, without case, and errors that help."""

import dataclasses
import pathlib
import re

import pytest

from magnetar.pipeline.offsets import EARLIEST, LATEST, TimePlace
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.options import SOURCE_OPTIONS, Limits, SourceOptions, TopicSelection
from magnetar.protocol.topic_name import TopicName

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "pipeline" / "options.md"


def parse(streaming=False, **options):
    return SourceOptions.parse({"topic": "t", **options}, streaming=streaming)


def test_the_documentation_has_exactly_the_options_of_the_table():
    section = DOCS.read_text().partition("## Source")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) \| (.*) \|$", section, re.MULTILINE)
    assert rows == [
        (o.name, f"`{o.default}`" if o.default and " " not in o.default else o.default, o.doc) for o in SOURCE_OPTIONS
    ]


def test_names_are_unique_without_case():
    assert len({option.name.lower() for option in SOURCE_OPTIONS}) == len(SOURCE_OPTIONS)


def refusal(options):
    """The reason why the options are refused; an empty text for accepted options."""
    try:
        SourceOptions.parse(options)
    except OptionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", [o.name for o in SOURCE_OPTIONS if not o.name.startswith("topic")])
def test_no_option_of_the_table_is_unknown(name):
    assert "unknown" not in refusal({"topic": "t", name.upper(): "7"})


def test_defaults_differ_between_batch_and_stream():
    assert (parse().starting.default, parse().ending.default) == (EARLIEST, LATEST)
    assert parse(streaming=True).starting.default == LATEST


@pytest.mark.parametrize(
    ("options", "selection"),
    [
        ({"topic": "t"}, TopicSelection(("persistent://public/default/t",))),
        ({"topics": "a/b/t, u"}, TopicSelection(("persistent://a/b/t", "persistent://public/default/u"))),
        ({"topicsPattern": "or.*"}, TopicSelection((), "public/default", "or.*")),
        ({"topicspattern": "persistent://a/b/x|y"}, TopicSelection((), "a/b", "x|y")),
    ],
)
def test_ways_to_name_topics(options, selection):
    assert SourceOptions.parse(options).selection == selection


def test_a_pattern_is_for_the_name_of_the_whole_topic():
    selection = SourceOptions.parse({"topicsPattern": "orders-\\d"}).selection
    matched = [
        selection.matches(TopicName.parse(n)) for n in ("orders-1", "orders-1-partition-7", "orders-12", "xorders-1")
    ]
    assert matched == [True, True, False, False]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "one of the options topic, topics and topicsPattern"),
        ({"topic": "t", "topics": "u"}, "not topic and topics together"),
        ({"topic": "a/b"}, "option topic"),
        ({"topic": "non-persistent://a/b/c"}, "not persistent"),
        ({"topicsPattern": "a/.*"}, "tenant/namespace/REGEX"),
        ({"topicsPattern": "("}, "no regular expression"),
        ({"topicsPattern": "a/b*/c"}, "only the last part"),
        ({"topic": "t", "startingoffset": "latest"}, "did you mean startingOffsets"),
        ({"subscribe": "t"}, "topic or topics .docs/pipeline/migrating.md"),
        ({"topic": "t", "kafka.bootstrap.servers": "h:9092"}, "service.url and admin.url"),
        ({"path": "orders"}, "none is given .the path of load, 'orders', names no topic"),
        ({"topic": "t", "minPartitions": "0"}, "minPartitions"),
        ({"topic": "t", "failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"topic": "t", "readMode": "disk"}, "auto, segment or broker"),
        ({"topic": "t", "readMode": "segment"}, "storage.url"),
        ({"topic": "t", "storage.url": "data"}, "absolute path"),
        ({"topic": "t", "startingTime": "now"}, "startingTime"),
        ({"topic": "t", "startingTime": "5", "startingOffsets": "latest"}, "only one of"),
        ({"topic": "t", "maxMessagesPerTrigger": "1", "maxOffsetsPerTrigger": "2"}, "same option"),
    ],
)
def test_unusable_options_are_refused_by_name(options, words):
    with pytest.raises(OptionError, match=words):
        SourceOptions.parse(options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endingOffsets", '{"t": 5}'),
        ("endingTime", "2026-01-02"),
        ("endingTimestamp", "5"),
        ("endingOffsetsByTimestamp", "{}"),
        ("readCompacted", "TRUE"),
    ],
)
def test_a_stream_refuses_options_of_a_batch(name, value):
    """A stream that ignored its end would go on for ever."""
    parse(**{name: value})
    with pytest.raises(OptionError, match=f"option {name} is for spark.read only"):
        parse(streaming=True, **{name: value})
    parse(streaming=True, endingOffsets="Latest", readCompacted="false")


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        ({"topic": "t"}, ["t", "t-partition-3"]),
        ({"topics": "t-partition-3,u"}, ["t-partition-3", "u"]),
        ({"topicsPattern": "public/default/t.*"}, ["t", "t-partition-3", "tt"]),
        ({"topicsPattern": "public/other/.*"}, []),
    ],
)
def test_topics_that_are_selected(selection, selected):
    found = SourceOptions.parse(selection).selection
    names = ["t", "t-partition-3", "tt", "u"]
    assert [name for name in names if found.has(f"persistent://public/default/{name}")] == selected


def test_options_of_other_connectors_are_passed_over_with_a_warning():
    with pytest.warns(UserWarning, match=r"pulsar\.client\.iothreads"):
        parse(**{"pulsar.client.ioThreads": "4"})


def test_values():
    found = parse(
        streaming=True,
        maxentriespertrigger="5",
        maxOffsetsPerTrigger="6",
        MAXBYTESPERTRIGGER="7",
        startingTime="2026-01-02T00:00:00Z",
        subscription="s",
        columns="__key, value",
        **{"storage.url": "file:///data"},
    )
    assert found.limits == Limits(5, 6, 7)
    assert found.starting.default == TimePlace(1767312000000)
    assert (found.subscription, found.columns, found.storage_path) == ("s", ("__key", "value"), "/data")
    assert dataclasses.asdict(found)
