"""Names of producers and consumers: generated, given, empty, long and repeated."""

import re
import time

from harness.steps import drained, published, rest, stats
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


@scenario
def generated_producer_names_tell_the_cluster(s):
    c, topic = s.connect(), s.topic()
    names = [c.producer(topic, i, quietly=True).command.producer_name for i in range(3)]
    s.note("of the form cluster-n-m", [bool(re.fullmatch(r"standalone-\d+-\d+", name)) for name in names])
    numbers = [int(name.rpartition("-")[2]) for name in names]
    s.note("ascending", numbers == sorted(set(numbers)))


@scenario
def consumer_without_a_name_has_one(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic)
    name = stats(s, topic)["subscriptions"]["sub"]["consumers"][0]["consumerName"]
    s.note("length", len(name))


@scenario
def producers_of_a_partitioned_topic_have_one_name(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    c = s.connect()
    for i in range(3):
        c.producer(f"{topic}-partition-{i}", i, producer_name="same")
    for i in range(3):
        c.publish(i, 0)
        c.recv()


@scenario
def names_of_producers_that_are_odd(s):
    topic = s.topic()
    c = s.connect()
    for i, name in enumerate(("", " ", "a b", "ü", "a/b", "a" * 500, "__x", "standalone-0-1", "a\n", "%", "{}")):
        c.producer(topic, i, producer_name=name)
        c.producer(topic, 50 + i, producer_name=name)


@scenario
def names_given_and_generated(s):
    """A request for a generated name, as clients send it after a reconnect."""
    topic = s.topic()
    c, d = s.connect(), s.connect()
    name = c.producer(topic, 1).command.producer_name
    for client, producer_id, more in (
        (d, 1, {}),
        (d, 2, {"user_provided_producer_name": False}),
        (d, 3, {"user_provided_producer_name": False, "epoch": 1}),
        (c, 2, {"user_provided_producer_name": False, "epoch": 1}),
        (c, 1, {"user_provided_producer_name": False, "epoch": 1}),
        (c, 1, {"epoch": 5}),
    ):
        frame = client.producer(topic, producer_id, quietly=True, producer_name=name, **more)
        same = getattr(frame.command, "producer_name", "") == name
        s.note(f"{client.name} {producer_id} {more}", [frame.type, getattr(frame.command, "error", None), same])
    c.ask("CLOSE_PRODUCER", producer_id=1)
    frame = d.producer(topic, 1, quietly=True, producer_name=name)
    s.note("free again", frame.type)


@scenario
def same_consumer_name_many_times(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, permits=10, consumer_name="same", **SHARED)
    b.subscribe(topic, permits=10, consumer_name="same", **SHARED)
    for i in range(4):
        published(s, topic, 1, i)
        time.sleep(0.05)
    s.note("each", [len(drained(a, 0.4)), len(drained(b, 0.4))])


@scenario
def empty_and_long_consumer_names(s):
    topic = s.topic()
    c = s.connect()
    for i, name in enumerate(("", " ", "x" * 500)):
        c.subscribe(topic, "sub", i, subType="Shared", consumer_name=name)
