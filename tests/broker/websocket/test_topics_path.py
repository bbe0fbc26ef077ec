"""Paths and queries of sessions with several topics; the recorded scenarios compare the statuses with Apache Pulsar."""

import pytest

from magnetar.broker.websocket.errors import SessionRefusedError
from magnetar.broker.websocket.topics_path import MOST_TOPICS, parse_topics_path

A, B = "persistent://public/default/a", "persistent://public/default/b"


def parsed(path, **query):
    return parse_topics_path("/ws/v3/consumer" + path, query)


@pytest.mark.parametrize("names", [f"{A},{B}", f"{A}, {B} ", f"{A},{B},{A}", "a,b", "public/default/a,b"])
def test_names(names):
    found = parsed("/sub", topics=names)
    assert (found.kind, found.subscription, found.pattern) == ("topics", "sub", "")
    assert list(map(str, found.topics)) == [A, B]
    assert str(found.topic) == A


@pytest.mark.parametrize("pattern", ["persistent://public/default/x.*", "public/default/x.*"])
def test_a_pattern(pattern):
    found = parsed("/sub", topicsPattern=pattern)
    assert (found.pattern, found.topics, found.topic.namespace) == (pattern, (), "public/default")


@pytest.mark.parametrize(("path", "subscription"), [("/s%2Ft", "s/t"), ("/s/more", "s"), ("/s/", "s"), ("", "")])
def test_the_subscription_is_the_first_part(path, subscription):
    assert parsed(path, topics=A).subscription == subscription


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("s/sub", {"topics": A}, 404),
        ("/sub", {}, 500),
        ("/sub", {"topics": A, "topicsPattern": A}, 500),
        ("/sub", {"topics": ""}, 500),
        ("/sub", {"topics": f",{A}"}, 500),
        ("/sub", {"topics": f" {A}"}, 500),
        ("/sub", {"topics": f"{A},bad://x"}, 500),
        ("/sub", {"topics": f"{A},"}, 400),
        ("/sub", {"topics": f"{A},,bad://x"}, 400),
        ("/sub", {"topicsPattern": " "}, 500),
        ("/sub", {"topicsPattern": "persistent://public/.*/x"}, 500),
    ],
)
def test_refusals(path, query, status):
    with pytest.raises(SessionRefusedError) as refused:
        parsed(path, **query)
    assert refused.value.status == status


def test_the_number_of_names_has_a_bound():
    names = [f"t{i}" for i in range(MOST_TOPICS)]
    assert len(parsed("/sub", topics=",".join(names)).topics) == MOST_TOPICS
    with pytest.raises(SessionRefusedError) as refused:
        parsed("/sub", topics=",".join([*names, "more"]))
    assert refused.value.status == 400
