"""Figures for people."""

import pytest

from magnetar.console.views import TopicRow, ago, amount, moment, size, sorted_rows, topic_rows


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB"), (1 << 60, "1048576.0 TiB")],
)
def test_sizes(value, text):
    assert size(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.25, "0.25"), (3.0, "3"), (12345.6, "12,346")])
def test_amounts(value, text):
    assert amount(value) == text


def test_times():
    assert moment(0) == ago(0, 5) == ""
    assert moment(1_000_000_000_000) == "2001-09-09 01:46:40 UTC"
    assert moment(1e30).endswith(" ms")
    assert ago(1_000, 31_000) == "30 s ago"
    assert ago(7_201_000, 1_000) == "in 2 h"


def test_rows_of_the_broker_statistics_come_busiest_first():
    quiet = {
        "msgRateIn": 0,
        "subscriptions": {"s": {"msgBacklog": 7, "consumers": [{}]}},
        "publishers": [],
        "storageSize": 3,
    }
    busy = {"msgRateIn": 9.5, "subscriptions": {}, "publishers": [{}]}
    rows = topic_rows(
        {"public/default": {"0x0_0xf": {"persistent": {"persistent://a": quiet, "persistent://b": busy}}}}
    )
    found, more = sorted_rows(rows, "")
    assert [row.name for row in found] == ["persistent://b", "persistent://a"]
    assert found[1] == TopicRow("persistent://a", 0, 0, 0, 0, 7, 3, 0, 1, 1)
    assert more == 0
    assert sorted_rows(rows, "://a")[0] == [found[1]]
