"""Where micro-batches end and which task reads which range, over a catalog in memory."""

import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.errors import (
    CatalogError,
    CatalogRefusedError,
    CatalogUnavailableError,
    DataLossError,
    NoSuchTopicError,
)
from magnetar.pipeline.log_range import LedgerSpan, LogRange
from magnetar.pipeline.offsets import MessagePlace, Offsets, Position
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.planning import Covered
from magnetar.pipeline.source_plan import SourcePlan

T = "persistent://public/default/t"


def indexed(topic, first, end, entries=None, size=None, ledger=9):
    entries = end - first if entries is None else entries
    size = 100 * (end - first) if size is None else size
    return LogRange(topic, first, end, entries, size, Position(ledger, entries - 1), first_ledger=ledger)


def positioned(topic, *counts):
    ledgers = tuple(LedgerSpan(10 + k, n, True) for k, n in enumerate(counts))
    total = sum(counts)
    return LogRange(topic, None, None, total, total * 100, Position(ledgers[-1].ledger_id, counts[-1] - 1), ledgers)


class FakeCatalog:
    """A catalog that returns the logs of the test."""

    def __init__(self, *logs):
        self.logs = {each.topic: each for each in logs}
        self.bounds = {}

    def partitions(self, selection, *, missing_ok=False):
        return sorted({*self.logs, *selection.names})

    def ranges(self, topics, *, ledgers=False):
        return {topic: self.logs.get(topic) for topic in topics}

    def index_of(self, topic, position):
        if position not in self.bounds:
            raise CatalogError("no such entry")
        return self.bounds[position]

    def place_of_time(self, topic, time_ms):
        return MessagePlace(Position(9, time_ms))


def plan_over(*logs, **options):
    given_ = {"topic": "t", **options} if "topicsPattern" not in options else options
    return SourcePlan(SourceOptions.parse(given_, streaming=True), FakeCatalog(*logs))


@given(
    waiting=st.lists(st.integers(0, 300), min_size=1, max_size=6),
    messages=st.none() | st.integers(1, 200),
    entries=st.none() | st.integers(1, 200),
    size=st.none() | st.integers(100, 20_000),
)
def test_micro_batches_keep_to_the_limits_and_reach_the_end(waiting, messages, entries, size):
    options = {"maxMessagesPerTrigger": messages, "maxEntriesPerTrigger": entries, "maxBytesPerTrigger": size}
    options = {name: str(value) for name, value in options.items() if value is not None}
    logs = [indexed(f"{T}-{n}", 0, count) for n, count in enumerate(waiting)]
    plan = plan_over(*logs, topicsPattern="t-.*", **options)
    start, rounds = Offsets({log.topic: 0 for log in logs}), 0
    while (end := plan.advance(start, plan.logs(), limited=True)) != start:
        taken = [end.by_topic[t] - start.by_topic[t] for t in end.by_topic]
        assert all(n >= 0 for n in taken)
        assert all(n > 0 for n, log in zip(taken, logs, strict=True) if start.by_topic[log.topic] < log.end_index)
        limit = min([sum(waiting), *filter(None, (messages, entries, size and size / 100))])
        assert sum(taken) <= limit + len(logs)
        start, rounds = end, rounds + 1
    assert start.by_topic == {log.topic: log.end_index for log in logs}
    assert rounds <= sum(waiting)
    assert plan.advance(Offsets({log.topic: 0 for log in logs}), plan.logs(), limited=False) == start


def test_new_topics_are_read_from_their_first_message_once_they_have_one():
    old, empty, new = indexed(f"{T}-a", 5, 9), indexed(f"{T}-b", 0, 0), indexed(f"{T}-c", 0, 3)
    plan = plan_over(old, empty, new, topicsPattern="t-.*")
    start = Offsets({old.topic: 9})
    end = plan.advance(start, plan.logs(), limited=True)
    assert end == Offsets({old.topic: 9, new.topic: 3})
    [[piece]] = plan.tasks(start, end, plan.logs())
    assert (piece.topic, piece.start, piece.end) == (new.topic, 0, 3)


@pytest.mark.parametrize(("fail", "expected"), [("true", None), ("false", (40, 50))])
def test_entries_lost_to_retention_are_reported_with_their_range(fail, expected):
    plan = plan_over(indexed(T, 40, 50), failOnDataLoss=fail)
    start, end = Offsets({T: 10}), Offsets({T: 50})
    if expected is None:
        with pytest.raises(DataLossError, match=r"30 messages of .* from 10 up to 40"):
            plan.tasks(start, end, plan.logs())
    else:
        [[piece]] = plan.tasks(start, end, plan.logs())
        assert (piece.start, piece.end) == expected


def test_a_topic_that_is_gone_is_lost_or_leaves_the_offsets():
    start = Offsets({f"{T}-gone": 5, f"{T}-here": 1})
    lasting = plan_over(indexed(f"{T}-here", 0, 2), topicsPattern="t-.*")
    with pytest.raises(DataLossError, match="t-gone"):
        lasting.advance(start, lasting.logs(), limited=True)
    plan = plan_over(indexed(f"{T}-here", 0, 2), topicsPattern="t-.*", failOnDataLoss="false")
    assert plan.advance(start, plan.logs(), limited=True) == Offsets({f"{T}-here": 2})


def test_a_topic_made_anew_is_lost_or_read_from_its_start():
    start = Offsets({T: 50})
    with pytest.raises(DataLossError, match="created again"):
        plan_over(indexed(T, 0, 7)).advance(start, {T: indexed(T, 0, 7)}, limited=True)
    plan = plan_over(indexed(T, 0, 7), failOnDataLoss="false")
    end = plan.advance(start, plan.logs(), limited=True)
    assert end == Offsets({T: 7})
    [[piece]] = plan.tasks(start, end, plan.logs())
    assert (piece.start, piece.end) == (0, 7)


def test_a_topic_made_anew_is_found_out_though_it_has_more_messages_than_before():
    """The ledgers of the new topic are younger than the place, and hold messages before it."""
    old, new = indexed(T, 0, 20, ledger=9), indexed(T, 0, 70, ledger=12)
    start = plan_over(old).starting({T: old})
    start = Offsets.from_json(start.as_json())
    with pytest.raises(DataLossError, match="created again"):
        plan_over(new).advance(start, {T: new}, limited=True)
    plan = plan_over(new, failOnDataLoss="false")
    end = plan.advance(start, {T: new}, limited=True)
    [[piece]] = plan.tasks(start, end, {T: new})
    assert (piece.start, piece.end) == (0, 70)
    grown = indexed(T, 0, 90, ledger=12)
    [[again]] = plan.tasks(start, end, {T: grown})
    assert (again.start, again.end) == (0, 70), "a micro-batch that is planned again holds the same messages"


def test_a_micro_batch_of_a_topic_that_was_made_anew_meanwhile_is_lost():
    old, new = indexed(T, 0, 20, ledger=9), indexed(T, 0, 70, ledger=12)
    plan = plan_over(old, failOnDataLoss="false")
    end = plan.advance(Offsets({T: 5}, {T: 9}), {T: old}, limited=True)
    assert plan.tasks(Offsets({T: 5}, {T: 9}), end, {T: new}) == []


def test_spark_partitions_of_a_micro_batch_do_not_depend_on_later_messages():
    """Exactly-once sinks number the rows of a task: a row that moved to another task would count as another row."""
    before = indexed(T, 0, 1000, size=1_000_000)
    plan = plan_over(before, splitBytes="300000", maxMessagesPerTrigger="900")
    start = Offsets({T: 0})
    end = Offsets.from_json(json.loads(json.dumps(plan.advance(start, plan.logs(), limited=True).as_json())))
    first = plan.tasks(start, end, {T: before})
    assert len(first) == 3
    grown = indexed(T, 0, 2000, size=90_000_000, ledger=9)
    assert plan.tasks(start, end, {T: grown}) == first


class FakeFiles:
    """Ledger files that hold the messages before `end`, in ledgers of 70 messages."""

    def __init__(self, end):
        self.end = end

    def covered(self, log, start, end):
        return [Covered(n, n, min(n + 70, self.end)) for n in range(0, self.end, 70)]

    def span(self, ledger_id, start, end):
        return None


@pytest.mark.parametrize("more", [{"minPartitions": "3"}, {"splitBytes": "300000"}, {"maxRecordsPerPartition": "77"}])
def test_ledger_files_that_grow_do_not_move_messages_to_other_spark_partitions(more):
    log = indexed(T, 0, 400, size=8_000_000)
    plan = plan_over(log, **more)
    start, end = Offsets({T: 7}), Offsets({T: 390})
    found = []
    for written in (0, 100, 390):
        plan._segments = FakeFiles(written)
        tasks = plan.tasks(start, end, {T: log})
        assert sum(piece.messages for task in tasks for piece in task if piece.ledger_id is not None) >= written - 70
        for task in tasks:
            assert all(a.end == b.start for a, b in itertools.pairwise(task))
        found.append([(task[0].start, task[-1].end) for task in tasks])
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 1


def test_a_log_that_was_truncated_is_not_one_made_anew():
    old, truncated = indexed(T, 0, 20, ledger=9), indexed(T, 20, 30, ledger=12)
    plan = plan_over(truncated)
    start = plan.starting({T: old})
    end = plan.advance(start, {T: truncated}, limited=True)
    [[piece]] = plan.tasks(start, end, {T: truncated})
    assert (piece.start, piece.end) == (20, 30)


def test_offsets_do_not_change_when_only_a_ledger_was_opened():
    """Spark would take changed offsets for new messages."""
    before, after = indexed(T, 0, 20, ledger=9), LogRange(T, 0, 20, 20, 2000, Position(12, -1), first_ledger=9)
    plan = plan_over(before)
    start = plan.starting({T: before}).as_json()
    assert plan.advance(Offsets.from_json(start), {T: after}, limited=True).as_json() == start


def test_a_named_topic_that_was_deleted_is_left_out_of_a_stream_that_goes_on():
    with pytest.raises(NoSuchTopicError):
        plan_over(failOnDataLoss="false").logs(streaming=True)
    assert plan_over(failOnDataLoss="false").logs(streaming=True, begun=True) == {}
    with pytest.raises(NoSuchTopicError):
        plan_over().logs(streaming=True, begun=True)


def test_logs_without_an_index_advance_by_entries():
    plan = plan_over(positioned(T, 4, 3), maxMessagesPerTrigger="3")
    start, seen = Offsets({T: Position(10, 0)}), []
    while (end := plan.advance(start, plan.logs(), limited=True)) != start:
        [[piece]] = plan.tasks(start, end, plan.logs())
        seen.append((piece.start, piece.end))
        start = end
    assert seen == [
        (Position(10, 0), Position(10, 3)),
        (Position(10, 3), Position(11, 2)),
        (Position(11, 2), Position(11, 3)),
    ]


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("earliest", 5),
        ("latest", 90),
        ('{"t": 33}', 33),
        ('{"t": "9:4"}', 20),
        ('{"t": "9:4:3"}', 23),
        ('{"t": "99:0"}', 90),
    ],
)
def test_places_users_name(wanted, place):
    plan = plan_over(indexed(T, 5, 90, entries=50), startingOffsets=wanted)
    plan.catalog.bounds[Position(9, 4)] = (20, 29)
    assert plan.starting(plan.logs()).by_topic == {T: place}


def test_places_that_are_not_there():
    plan = plan_over(indexed(T, 5, 90), startingOffsets='{"t": 91}')
    with pytest.raises(OptionError, match="ends at index 90"):
        plan.starting(plan.logs())
    plan = plan_over(indexed(T, 5, 90), startingOffsets='{"t": "3:1"}')
    with pytest.raises(DataLossError, match="not stored"):
        plan.starting(plan.logs())
    plan = plan_over(positioned(T, 3), startingOffsets='{"t": 1}')
    with pytest.raises(OptionError, match="no broker index"):
        plan.starting(plan.logs())


@pytest.mark.parametrize("error", [CatalogUnavailableError, CatalogRefusedError])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_entry_is_not_lost_because_the_admin_api_does_not_answer(error, fail):
    plan = plan_over(indexed(T, 5, 90), startingOffsets='{"t": "3:1"}', failOnDataLoss=fail)

    def index_of(_topic, _position):
        raise error("no answer")

    plan.catalog.index_of = index_of
    with pytest.raises(error):
        plan.starting(plan.logs())


def test_a_topic_that_does_not_exist_is_an_error_or_waited_for():
    with pytest.raises(NoSuchTopicError, match="waitingForNonExistedTopic"):
        plan_over().logs()
    assert plan_over(waitingForNonExistedTopic="true").logs(streaming=True) == {}


def test_memory_does_not_grow_with_the_number_of_micro_batches():
    plan = plan_over(indexed(T, 0, 10**9), maxMessagesPerTrigger="7")
    logs, start = plan.logs(), Offsets({T: 0})

    def run(rounds, start):
        for _ in range(rounds):
            end = Offsets.from_json(plan.advance(start, logs, limited=True).as_json())
            plan.tasks(start, end, logs)
            start = end
        return start

    start = run(1000, start)
    tracemalloc.start()
    try:
        start = run(200, start)
        before = tracemalloc.get_traced_memory()[0]
        run(5000, start)
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


def test_a_place_in_a_topic_that_is_not_read_is_an_error():
    """Without the error, a mistake in the name would let the read begin at the topic's first message."""
    log = indexed(T, 0, 10)
    for option in ("startingOffsets", "startingOffsetsByTimestamp"):
        with pytest.raises(OptionError, match=f"option {option} names persistent://public/default/tt"):
            plan_over(log, **{option: '{"tt": 5}'}).logs(streaming=True)
    with pytest.raises(OptionError, match="t-partition-3"):
        plan_over(log, startingOffsets='{"t": {"3": 5}}').logs(streaming=True)
    plan = plan_over(log, startingOffsets='{"t": {"0": 5}}')
    assert plan.starting(plan.logs(streaming=True)).by_topic == {T: 5}


def test_a_place_in_a_topic_that_may_be_gone_or_come_is_none(caplog):
    log = indexed(T, 0, 10)
    assert plan_over(log, startingOffsets='{"tt": 5}', waitingForNonExistedTopic="true").logs(streaming=True)
    assert plan_over(log, startingOffsets='{"tt": 5}').logs(streaming=True, begun=True), "the checkpoint counts"
    assert not caplog.messages
    assert plan_over(log, startingOffsets='{"tt": 5}', failOnDataLoss="false").logs(streaming=True)
    assert "names persistent://public/default/tt" in caplog.text


def test_a_checkpoint_of_another_topic_names_the_options():
    """The topic may well exist: the stream began with other options."""
    start = Offsets({f"{T}-other": 5})
    with pytest.raises(DataLossError, match="t-other are lost, from 5 up to its end: the options do not select"):
        plan_over(indexed(T, 0, 10)).advance(start, {T: indexed(T, 0, 10)}, limited=False)


@pytest.mark.parametrize(("ledger", "place"), [(-1, 3), (8, 3), (9, 3), (10, 7), (11, 20)])
def test_a_place_before_the_first_entry_of_a_ledger(ledger, place):
    """Pulsar writes entry id -1 for cursors in ledgers of which no entry has been read."""
    log = LogRange(T, 3, 20, 17, 1700, Position(10, 12), first_ledger=9)
    plan = plan_over(log, startingOffsets=json.dumps({"t": f"{ledger}:-1"}))
    plan.catalog.bounds[Position(10, 0)] = (7, 7)
    assert plan.starting(plan.logs()).by_topic == {T: place}


def test_a_place_before_the_first_entry_of_a_log_without_index():
    plan = plan_over(positioned(T, 4, 5), startingOffsets='{"t": "11:-1"}')
    assert plan.starting(plan.logs()).by_topic == {T: Position(10, 0)}
