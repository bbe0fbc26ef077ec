"""Statistics of a real broker's topics: delays, keys and backlog."""

import datetime as dt
import json
from collections import Counter

import pyarrow as pa
import pytest

from magnetar.pipeline.jobs import backlog, delays, hot_keys
from magnetar.pipeline.jobs.hot_keys import KeyFacts, key_statistics
from magnetar.pipeline.jobs.page import Page
from magnetar.pipeline.options import SourceOptions
from magnetar.protocol.key_hash import sticky_hash


@pytest.fixture
def options(jobs_broker, topic):
    given = {"service.url": jobs_broker.url, "admin.url": jobs_broker.http_url, "topic": topic}
    return SourceOptions.parse(given)


def test_delays(options, topic, publish, runner, progress):
    publish(topic, [b"now"] * 5)
    hours = [{"content": b"x", "deliver_after": dt.timedelta(hours=n)} for n in (2, 2, 100)]
    publish(topic, hours)
    report = delays.delay_statistics(options, runner, progress)
    [found] = report["topics"]
    assert (found["messages"], found["pending"], found["delayed"]) == (8, 3, 3)
    assert found["pending_by_time_left"] == {"up to 6 h": 2, "up to 7 d": 1}
    assert 99 * 3600 < found["furthest_s"] <= 100 * 3600
    later = delays.delay_statistics(options, runner, progress, now_ms=report["now_ms"] + 3 * 3_600_000)
    assert later["topics"][0]["pending"] == 1
    page = Page("t")
    delays.draw(report, page)
    assert "<svg" in page.render()
    assert "3 of 8 messages pending" in delays.as_text(report)


def test_classes_of_delays():
    assert [delays.class_name(delays.delay_class(ms)) for ms in (0, 1001, 600_000, 10**12)] == [
        "up to 1 s", "up to 10 s", "up to 10 min", "over 30 d",
    ]  # fmt: skip


def test_keys(options, topic, publish, runner, progress):
    sent = [{"content": b"x", "partition_key": "hot" if n % 2 else f"k{n}"} for n in range(200)]
    sent += [{"content": b"y", "partition_key": "p", "ordering_key": "hot"}] * 20 + [{"content": b"z"}] * 5
    publish(topic, sent)
    report = key_statistics(options, runner, progress, top=1, consumers=(1, 2))
    assert (report["messages"], report["without_key"], report["keys"], report["undercount"]) == (225, 5, 101, 0)
    assert report["top"][0] | {"share": 0} == {"key": "hot", "messages": 120, "share": 0, "slot": sticky_hash(b"hot")}
    one, two = report["key_shared"]
    assert one["skew"] == pytest.approx(1)
    assert two["largest"] >= 120 / 220
    assert "hot" in hot_keys.as_text(report)
    page = Page("t")
    hot_keys.draw(report, page)
    assert "hot" in page.render()


def batch(keys):
    columns = {"__key": keys, "__orderingKey": [None] * len(keys)}
    return pa.RecordBatch.from_pydict(columns, pa.schema([("__key", pa.binary()), ("__orderingKey", pa.binary())]))


def test_many_keys_are_bounded_and_hot_ones_stay(monkeypatch):
    monkeypatch.setattr(hot_keys, "MOST_KEYS", 50)
    facts, exact = KeyFacts(), Counter()
    for start in range(0, 2000, 100):
        keys = [b"k%d" % n for n in range(start, start + 100)] + [b"hot"] * 100
        facts.add(batch(keys))
        exact.update(keys)
    assert len(facts.keys) <= 50
    [(key, count)] = facts.keys.most_common(1)
    assert key == b"hot"
    assert count <= exact[b"hot"] <= count + facts.undercount
    assert sum(facts.slots.values()) == sum(exact.values()), "slots are exact"


def test_backlog_over_time(options, topic, publish, client, progress, tmp_path):
    history = tmp_path / "history.jsonl"
    clock = iter(range(2_000_000_000_000, 2_000_000_100_000, 10_000))
    publish(topic, [b"x"] * 10)

    def more(_):
        publish(topic, [b"x"] * 5)

    rows = backlog.collect(options, history, progress, samples=2, now_ms=lambda: next(clock), pause=more)
    assert [row["backlog"] for row in rows] == [10, 15]
    assert rows[0]["lag_s"] > 0
    with history.open("a") as file:
        file.write('{"cut')
    history.write_text(history.read_text() + "\n")
    again = backlog.collect(options, history, progress, now_ms=lambda: next(clock))
    assert [row["backlog"] for row in again] == [10, 15, 15], "a later run goes on in the same history"
    for name in ("plot.html", "plot.png"):
        backlog.plot(again, tmp_path / name)
    assert "<polyline" in (tmp_path / "plot.html").read_text()
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    json.dumps(again)


def test_a_history_goes_on_behind_a_line_that_a_crash_has_cut(options, topic, publish, progress, tmp_path):
    publish(topic, [b"x"])
    history = tmp_path / "h.jsonl"
    backlog.collect(options, history, progress, now_ms=lambda: 1)
    with history.open("ab") as file:
        file.write(b'{"time_ms": 2, "topic": "\xc3')
    backlog.collect(options, history, progress, now_ms=lambda: 3)
    assert [row["time_ms"] for row in backlog.read_history(history)] == [1, 3]


def test_an_empty_history_is_no_error(tmp_path):
    backlog.plot([], tmp_path / "empty.html")
    assert "no data" in (tmp_path / "empty.html").read_text()
