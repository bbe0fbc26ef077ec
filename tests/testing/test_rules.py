"""Rules, frames and the order of answers, without a broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies, requests
from magnetar.testing.faulty_connection import Turns
from magnetar.testing.frames import FrameStream, Topics, parse_frame
from magnetar.testing.rules import COMMANDS, MOST_RULES, Rule, RuleError, Rules, full_name

SEND = pb.BaseCommand.SEND
TOPIC = "persistent://public/default/t"


def rule(**values):
    return Rule.of({"action": "drop", "command": "SEND"} | values)


@given(st.integers(1, 6), st.none() | st.integers(1, 4), st.integers(1, 12))
def test_a_rule_applies_from_the_nth_so_often(nth, times, frames):
    made = rule(nth=nth, times=times)
    applied = [made.applies(SEND, None) for _ in range(frames)]
    wanted = range(nth, frames + 1 if times is None else nth + times)
    assert applied == [i in wanted for i in range(1, frames + 1)]
    assert made.applied == sum(applied)
    assert made.seen == frames


def test_a_rule_of_a_topic_leaves_others_alone():
    made = rule(topic="t")
    assert not made.applies(SEND, "persistent://public/default/other")
    assert made.applies(SEND, TOPIC)
    assert full_name("persistent://public/default/t-partition-3") == TOPIC


def test_the_first_that_applies_decides_and_all_count():
    rules = Rules()
    first, second = rule(nth=2), rule(times=None)
    numbers = [rules.add(each) for each in (first, second)]
    assert [rules.decide(SEND, None) for _ in range(3)] == [second, first, second]
    assert (first.seen, second.applied) == (3, 3)
    assert rules.remove(numbers[0]) is first
    assert rules.remove(numbers[0]) is None


def test_rules_have_a_bound():
    rules = Rules()
    for _ in range(MOST_RULES):
        rules.add(rule())
    with pytest.raises(RuleError, match="clear"):
        rules.add(rule())


@pytest.mark.parametrize(
    "values",
    [
        {"action": "loose"},
        {"command": "SENT"},
        {"nth": 0},
        {"nth": "1"},
        {"times": 0},
        {"action": "delay"},
        {"action": "delay", "seconds": float("nan")},
        {"action": "reject", "command": "FLOW"},
        {"action": "reject", "command": "MESSAGE"},
        {"topic": "x://y"},
        {"times": 1, "time": 1},
    ],
)
def test_invalid_rules(values):
    with pytest.raises(RuleError):
        rule(**values)


def test_whatever_has_an_answer_may_be_rejected():
    may = {name for name in COMMANDS if Rule("drop", name).may_be_rejected}
    assert {"SEND", "PRODUCER", "SUBSCRIBE", "LOOKUP", "ACK", "UNSUBSCRIBE"} <= may
    assert not may & {"FLOW", "MESSAGE", "SEND_RECEIPT", "PING"}


@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(1, 30))
def test_frames_come_whole_however_they_arrive(bodies, step):
    data = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    stream, found = FrameStream(), []
    for at in range(0, len(data), step):
        found += stream.feed(data[at : at + step])
    assert [frame[4:] for frame in found] == bodies


def test_the_topics_of_a_connection_are_learned():
    topics = Topics()

    def seen(frame):
        command = parse_frame(frame)
        return topics.of(command, command.ListFields()[1][1])

    assert seen(requests.producer(1, 7, "t", None)) == TOPIC
    assert seen(requests.durable_subscription(2, 8, "t-partition-1", "s")) == TOPIC
    assert seen(requests.send(7, 0, 0, 1, b"")) == TOPIC
    assert seen(requests.flow(8, 1)) == TOPIC
    assert seen(requests.flow(9, 1)) is None
    assert seen(replies.send_error(7, 0, pb.UnknownError, "")) == TOPIC


def test_bytes_that_are_no_frame_have_no_subject():
    assert parse_frame(b"\0\0\0\x06\0\0\0\x02\xff\xff") is None


def test_a_refused_send_waits_for_those_before():
    turns, answered = Turns(), []
    turns.sent(1, 2)
    turns.refuse(1, lambda: answered.append("refused"))
    turns.answered(1)
    assert answered == []
    turns.answered(1)
    assert answered == ["refused"]
    turns.refuse(1, lambda: answered.append("at once"))
    assert answered[-1] == "at once"
