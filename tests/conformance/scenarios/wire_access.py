"""Producers: every access mode after every other, repeats, limits, epochs; the state after a refused claim."""

import time

from harness.steps import batch, namespace, rest
from transcript import encode, encode_send, scenario

MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")


def policy(s, topic, path, body):
    s.http("POST", rest(topic, path), body, quietly=True)


def has_policy(s, topic, path):
    return s.http("GET", rest(topic, path), quietly=True)[1] is not None


def set_policy(s, topic, path, body):
    """A topic policy that is in force when this returns."""
    policy(s, topic, path, body)
    s.eventually("policy", lambda: has_policy(s, topic, path))


@scenario
def repeated_request_of_an_exclusive_producer_tells_no_epoch(s):
    c = s.connect()
    for i, mode in enumerate(MODES):
        topic = s.topic(f"t{i}")
        c.producer(topic, i, producer_name="a", producer_access_mode=mode)
        c.producer(topic, i, producer_name="a", producer_access_mode=mode)
        c.producer(topic, i, producer_name="b", producer_access_mode="Shared", epoch=3)


@scenario
def repeated_request_with_deduplication_tells_no_sequence_id(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a", quietly=True)
    c.publish_all(1, [b"x"], 0)
    set_policy(s, topic, "/deduplicationEnabled", True)
    s.eventually("on", lambda: c.publish_all(1, [b"y"], 7) and c.publish_all(1, [b"y"], 7)[0]["ledgerId"] == 2**64 - 1)
    c.producer(topic, 1, producer_name="a")
    c.producer(topic, 2, producer_name="b")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="a")


@scenario
def repeated_request_of_a_producer_with_schema(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a", schema=dict(name="s", schema_data=b"", type="String"))
    c.producer(topic, 1, producer_name="a", schema=dict(name="s", schema_data=b"", type="Int32"))
    c.producer(topic, 1, producer_name="a")


@scenario
def modes_after_each_other_on_a_topic_without_producers(s):
    c = s.connect()
    topic = s.topic()
    for first in MODES:
        for second in MODES:
            c.producer(topic, 1, producer_name="a", producer_access_mode=first)
            c.ask("CLOSE_PRODUCER", producer_id=1)
            c.producer(topic, 1, producer_name="a", producer_access_mode=second)
            c.ask("CLOSE_PRODUCER", producer_id=1)


@scenario
def modes_beside_each_other(s):
    c, d = s.connect(), s.connect()
    for i, first in enumerate(MODES):
        for j, second in enumerate(MODES):
            topic = s.topic(f"t{i}{j}")
            c.producer(topic, 1, producer_name="a", producer_access_mode=first)
            d.producer(topic, 1, producer_name="b", producer_access_mode=second)
            c.ask("CLOSE_PRODUCER", producer_id=1)
            d.none(0.1)
            d.ask("CLOSE_PRODUCER", producer_id=1)


@scenario
def modes_beside_each_other_under_one_name(s):
    c, d = s.connect(), s.connect()
    for i, first in enumerate(MODES):
        for j, second in enumerate(MODES):
            topic = s.topic(f"t{i}{j}")
            c.producer(topic, 1, producer_name="a", producer_access_mode=first)
            d.producer(topic, 1, producer_name="a", producer_access_mode=second)
            c.ask("CLOSE_PRODUCER", producer_id=1)
            d.none(0.1)
            d.ask("CLOSE_PRODUCER", producer_id=1)


@scenario
def modes_of_a_successor(s):
    """The same id, name and connection with a higher epoch gets an answer again, in any mode."""
    c = s.connect()
    for i, first in enumerate(MODES):
        for j, second in enumerate(MODES):
            topic = s.topic(f"t{i}{j}")
            c.producer(topic, 1, producer_name="a", producer_access_mode=first)
            c.producer(topic, 1, producer_name="a", producer_access_mode=second, epoch=1)
            c.ask("CLOSE_PRODUCER", producer_id=1)


@scenario
def waiting_producer_of_a_lost_connection_takes_its_epoch(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    d.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive", topic_epoch=7)
    d.close()
    s.eventually("gone", lambda: s.connect("probe").producer(topic, 5, quietly=True, producer_name="b") is not None)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    e = s.connect()
    e.producer(topic, 1, producer_name="c")
    e.producer(topic, 2, producer_name="d", producer_access_mode="ExclusiveWithFencing")


@scenario
def waiting_producer_that_gave_up_takes_its_epoch(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    c.producer(topic, 2, producer_name="b", producer_access_mode="WaitForExclusive", topic_epoch=4)
    c.producer(topic, 3, producer_name="c", producer_access_mode="WaitForExclusive")
    c.ask("CLOSE_PRODUCER", producer_id=2)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.none(0.3)
    c.ask("CLOSE_PRODUCER", producer_id=3)
    c.producer(topic, 4, producer_name="d", producer_access_mode="Exclusive")


@scenario
def claims_on_a_terminated_topic(s):
    """A claim that the end of the topic refuses still keeps others out."""
    for i, mode in enumerate(MODES):
        topic = s.topic(f"t{i}")
        c = s.connect()
        c.producer(topic, 1, producer_name="a")
        s.http("POST", rest(topic, "/terminate"), quietly=True)
        c.recv()
        c.producer(topic, 2, producer_name="b", producer_access_mode=mode)
        c.producer(topic, 3, producer_name="c", producer_access_mode="Shared")
        c.producer(topic, 4, producer_name="d", producer_access_mode="Exclusive")
        c.producer(topic, 5, producer_name="e", producer_access_mode="ExclusiveWithFencing")


@scenario
def waiting_on_a_terminated_topic(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    c.recv()
    c.producer(topic, 2, producer_name="b", producer_access_mode="WaitForExclusive")
    c.producer(topic, 3, producer_name="c", producer_access_mode="WaitForExclusive")
    c.none(0.3)


@scenario
def encryption_and_schema_come_before_the_end_of_a_topic(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a", schema=dict(name="s", schema_data=b"", type="String"))
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    c.recv()
    c.producer(topic, 2, producer_name="b", schema=dict(name="s", schema_data=b"", type="Int32"))
    c.producer(topic, 3, producer_name="b", schema=dict(name="s", schema_data=b"", type="String"))
    c.producer(topic, 4, producer_name="b", initial_subscription_name="made")
    s.note("subscriptions", sorted(s.http("GET", rest(topic, "/subscriptions"), quietly=True)[1]))


@scenario
def limit_of_producers_and_waiting_ones(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive", quietly=True)
    set_policy(s, topic, "/maxProducers", 1)
    c.producer(topic, 2, producer_name="b", producer_access_mode="WaitForExclusive")
    c.producer(topic, 3, producer_name="c", producer_access_mode="ExclusiveWithFencing")
    c.producer(topic, 4, producer_name="a", epoch=1)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.none(0.3)


@scenario
def limit_of_two_producers_counts_no_waiting_ones(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a", quietly=True)
    set_policy(s, topic, "/maxProducers", 2)
    c.producer(topic, 2, producer_name="b", producer_access_mode="WaitForExclusive")
    c.producer(topic, 3, producer_name="c", producer_access_mode="WaitForExclusive")
    c.producer(topic, 4, producer_name="d", producer_access_mode="WaitForExclusive")
    c.producer(topic, 5, producer_name="e")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.none(0.3)


@scenario
def limit_of_producers_before_the_schema(s):
    topic = s.topic(namespace=namespace(s, maxProducersPerTopic=1))
    c = s.connect()
    c.producer(topic, 1, producer_name="a", quietly=True, schema=dict(name="s", schema_data=b"", type="String"))
    c.producer(topic, 2, producer_name="b", schema=dict(name="s", schema_data=b"", type="Int32"))
    c.producer(topic, 3, producer_name="b", initial_subscription_name="made")
    s.note("subscriptions", sorted(s.http("GET", rest(topic, "/subscriptions"), quietly=True)[1]))
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 2, producer_name="b", schema=dict(name="s", schema_data=b"", type="Int32"))
    c.producer(topic, 3, producer_name="b", schema=dict(name="s", schema_data=b"", type="String"))


@scenario
def limit_of_producers_and_a_name_in_use(s):
    ns = namespace(s, maxProducersPerTopic=1)
    topic = s.topic(namespace=ns)
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a")
    c.producer(topic, 2, producer_name="a")
    d.producer(topic, 1, producer_name="a")
    c.producer(topic, 1, producer_name="a", epoch=5)
    c.close()
    s.eventually("free", lambda: d.producer(topic, 3, quietly=True, producer_name="z").type == "PRODUCER_SUCCESS")


@scenario
def fenced_producer_comes_back_in_each_mode(s):
    topic = s.topic()
    for mode in MODES:
        c, d = s.connect(), s.connect()
        c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive", quietly=True)
        d.producer(topic, 1, producer_name="b", producer_access_mode="ExclusiveWithFencing", quietly=True)
        c.producer(topic, 1, producer_name="a", producer_access_mode=mode)
        c.producer(topic, 2, producer_name="a2", producer_access_mode=mode, topic_epoch=0)
        c.close()
        d.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)


@scenario
def fencing_with_the_epoch_that_is(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    d.producer(topic, 1, producer_name="b", producer_access_mode="ExclusiveWithFencing", topic_epoch=0)
    c.producer(topic, 2, producer_name="c", producer_access_mode="ExclusiveWithFencing", topic_epoch=9)
    d.producer(topic, 3, producer_name="d", producer_access_mode="ExclusiveWithFencing", topic_epoch=8)
    c.publish(2, 0)
    c.recv()
    d.publish(1, 0)
    d.until_closed()


@scenario
def epochs_of_shared_producers_are_not_looked_at(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive", topic_epoch=5)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 2, producer_name="b", topic_epoch=1)
    c.producer(topic, 3, producer_name="c", topic_epoch=9)
    c.producer(topic, 4, producer_name="d")


@scenario
def epoch_of_the_far_end(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive", topic_epoch=2**63 - 1)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 2, producer_name="b", producer_access_mode="Exclusive", topic_epoch=2**63 - 2)
    c.producer(topic, 3, producer_name="c", producer_access_mode="Exclusive", topic_epoch=2**63 - 1)


@scenario
def fenced_producers_of_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    d.producer(topic, 1, producer_name="b", producer_access_mode="Shared")
    d.producer(topic, 2, producer_name="b", producer_access_mode="WaitForExclusive")
    d.producer(topic, 3, producer_name="c", producer_access_mode="ExclusiveWithFencing")
    d.none(0.3)
    d.ask("CLOSE_PRODUCER", producer_id=3)
    d.producer(topic, 4, producer_name="d", producer_access_mode="Exclusive", topic_epoch=0)


@scenario
def epochs_of_partitions_are_their_own(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    c.producer(topic + "-partition-0", 1, producer_name="a", producer_access_mode="Exclusive", topic_epoch=3)
    c.producer(topic + "-partition-1", 2, producer_name="a", producer_access_mode="Exclusive")
    c.producer(topic + "-partition-0", 3, producer_name="b", producer_access_mode="WaitForExclusive")
    c.producer(topic + "-partition-1", 4, producer_name="b")
    c.producer(topic, 5, producer_name="b", producer_access_mode="Exclusive")
    c.producer(topic + "-partition-2", 6, producer_name="b", producer_access_mode="Exclusive")


@scenario
def unload_under_each_mode(s):
    for mode in MODES:
        topic = s.topic(mode)
        c = s.connect()
        c.producer(topic, 1, producer_name="a", producer_access_mode=mode)
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        c.recv()
        s.lookup(topic)
        c.publish(1, 0)
        c.producer(topic, 1, producer_name="a", producer_access_mode=mode, epoch=1)
        c.publish(1, 0)
        c.recv()


@scenario
def deletion_under_each_mode(s):
    for mode in MODES:
        topic = s.topic(mode)
        c = s.connect()
        c.producer(topic, 1, producer_name="a", producer_access_mode=mode)
        s.http("DELETE", rest(topic, "?force=true"), quietly=True)
        c.recv()
        s.lookup(topic)
        c.producer(topic, 1, producer_name="a", producer_access_mode=mode, epoch=1)


@scenario
def sequence_ids_that_jump_and_repeat(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    for sequence_id in (5, 5, 0, 2**63 - 1, 2**63, 2**64 - 1, 1):
        c.publish(1, sequence_id)
        c.recv()
    for sequence_id, highest in ((5, 9), (5, 5), (9, 5), (0, 2**63 - 1), (7, 2**64 - 1)):
        c.publish(
            1,
            sequence_id,
            batch(b"a", b"b"),
            dict(highest_sequence_id=highest, num_messages=2),
            num_messages_in_batch=2,
        )
        c.recv()


@scenario
def one_name_on_ids_and_connections(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a", epoch=2)
    c.producer(topic, 2, producer_name="a", epoch=3)
    d.producer(topic, 1, producer_name="a", epoch=4)
    d.producer(topic, 1, producer_name="b", epoch=4)
    c.ask("CLOSE_PRODUCER", producer_id=2)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    d.producer(topic, 2, producer_name="a", epoch=0)
    c.producer(topic, 1, producer_name="a", epoch=9)


@scenario
def name_asked_for_again_as_a_generated_one(s):
    """user_provided_producer_name false: a name the broker made, brought back on another connection."""
    topic = s.topic()
    c, d = s.connect(), s.connect()
    name = "made"
    c.producer(topic, 1, producer_name=name, user_provided_producer_name=False)
    d.producer(topic, 1, producer_name=name, user_provided_producer_name=False, epoch=1)
    d.producer(topic, 2, producer_name=name, user_provided_producer_name=True, epoch=1)
    c.producer(topic, 2, producer_name=name, user_provided_producer_name=False, epoch=1)
    c.producer(topic, 1, producer_name=name, user_provided_producer_name=False, epoch=1)
    c.publish(1, 0)
    c.recv()


@scenario
def close_and_open_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    frames = b""
    for i in range(4):
        frames += encode_send(1, i)
        frames += encode("CLOSE_PRODUCER", producer_id=1, request_id=100 + i)
        frames += encode("PRODUCER", topic=topic, producer_id=1, request_id=200 + i, producer_name="a", epoch=i)
    c.raw(frames, "sends, closes and opens")
    c.recv_sorted(2)
    c.recv(1)
    c.recv(0.5)


@scenario
def sends_stay_ignored_after_the_broker_closed_a_producer(s):
    """In every later state of the id: refused, made again, closed by the client."""
    topic = s.topic()
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    d.producer(topic, 1, producer_name="a")
    c.producer(topic, 1, producer_name="a", epoch=1)
    c.publish(1, 0)
    c.none(0.2)
    d.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="a", epoch=2)
    c.publish(1, 0)
    c.recv()
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.publish(1, 1)
    c.none(0.2)
    c.producer(topic, 2, producer_name="b")
    c.ask("CLOSE_PRODUCER", producer_id=2)
    c.publish(2, 0)
    c.until_closed(3)


@scenario
def fencing_with_an_old_epoch(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive", topic_epoch=7)
    b.producer(topic, 1, producer_name="b", producer_access_mode="ExclusiveWithFencing", topic_epoch=6)
    b.producer(topic, 1, producer_name="b", producer_access_mode="ExclusiveWithFencing", topic_epoch=9)
    b.publish(1, 0)
    b.recv()


@scenario
def waiting_with_an_epoch(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="WaitForExclusive", topic_epoch=3)
    b.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive", topic_epoch=2)
    a.ask("CLOSE_PRODUCER", producer_id=1)
    b.recv(3)
    b.none()


@scenario
def waiting_when_the_holder_is_fenced(s):
    a, b, c, topic = s.connect(), s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    c.producer(topic, 1, producer_name="f", producer_access_mode="ExclusiveWithFencing")
    b.producer(topic, 1, producer_name="w", producer_access_mode="WaitForExclusive")
    a.ask("CLOSE_PRODUCER", producer_id=1)
    b.none()
    c.close()
    b.recv()


@scenario
def shared_producers_after_an_exclusive_one_left(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    a.close()
    time.sleep(0.3)
    b.producer(topic, 1, producer_name="b")
    b.producer(topic, 2, producer_name="c")
    b.producer(topic, 3, producer_name="d", producer_access_mode="Exclusive")


@scenario
def waiting_producer_and_the_owner_on_one_connection_that_is_lost(s):
    for domain in ("persistent", "non-persistent"):
        for mode in ("Shared", "Exclusive"):
            topic = s.topic(domain + mode, domain=domain)
            c, d = s.connect("c" + domain + mode), s.connect("d" + domain + mode)
            c.producer(topic, 1, producer_name="owner", producer_access_mode=mode)
            c.producer(topic, 2, producer_name="waiter", producer_access_mode="WaitForExclusive")
            c.none(0.2)
            c.close()
            d.none(0.6)
            d.producer(topic, 1, producer_name="next")
            d.producer(topic, 2, producer_name="last", producer_access_mode="ExclusiveWithFencing")
