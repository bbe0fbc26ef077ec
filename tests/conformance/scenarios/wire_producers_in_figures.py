"""Producers by access mode beside loads, policies and lost connections: answers, notices and all figures."""

from harness.figures import figures
from harness.steps import drained, published, rest
from transcript import scenario

MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")


def declare(mode):
    def over_a_load(s):
        topic = s.topic()
        c, d = s.connect(), s.connect()
        first = c.producer(topic, 1, producer_name="a", producer_access_mode=mode)
        c.publish_all(1, [b"x"], 0)
        epoch = getattr(first.command, "topic_epoch", 0)
        figures(s, topic, "one")
        s.http("PUT", rest(topic, "/unload"))
        c.recv(5)
        s.lookup(topic)
        c.producer(topic, 1, producer_name="a", producer_access_mode=mode, topic_epoch=epoch, epoch=1)
        d.producer(topic, 2, producer_name="b", producer_access_mode=mode)
        for each in (c, d):
            drained(each, 0.3)
        figures(s, topic, "loaded")
        c.publish(1, 1, producer_name="a")
        c.recv(1)
        d.publish(2, 0, producer_name="b")
        d.recv(1)

    def over_a_lost_connection(s):
        topic = s.topic()
        c, d = s.connect(), s.connect()
        c.producer(topic, 1, producer_name="a", producer_access_mode=mode)
        d.send(
            "PRODUCER",
            topic=topic,
            producer_id=2,
            request_id=s.next_request(),
            producer_name="b",
            producer_access_mode="WaitForExclusive",
        )
        d.recv(1)
        c.close()
        d.recv(2)
        d.publish(2, 0, producer_name="b")
        d.recv(1)
        e = s.connect()
        e.producer(topic, 3, producer_name="a", producer_access_mode=mode)
        d.recv(1)
        figures(s, topic, "end")

    def on_a_non_persistent_topic(s):
        topic = s.topic(domain="non-persistent")
        c, d = s.connect(), s.connect()
        for other in MODES:
            c.producer(topic, 1, producer_name="a", producer_access_mode=mode)
            d.send(
                "PRODUCER",
                topic=topic,
                producer_id=2,
                request_id=s.next_request(),
                producer_name="b",
                producer_access_mode=other,
            )
            d.recv(1)
            c.recv(0.3)
            figures(s, topic, other)
            c.ask("CLOSE_PRODUCER", producer_id=1)
            d.recv(0.5)
            d.ask("CLOSE_PRODUCER", producer_id=2)

    def on_a_limited_topic(s):
        topic = s.topic()
        s.http("PUT", rest(topic), quietly=True)
        s.call("POST", rest(topic, "/maxProducers"), 2)
        s.eventually("policy", lambda: s.http("GET", rest(topic, "/maxProducers"), quietly=True)[1] == 2)
        c = s.connect()
        for i in range(4):
            c.send(
                "PRODUCER",
                topic=topic,
                producer_id=i,
                request_id=s.next_request(),
                producer_name=f"p{i}",
                producer_access_mode=mode,
            )
            c.recv(0.7)
            c.recv(0.3)
        figures(s, topic, "all")
        s.call("DELETE", rest(topic, "/maxProducers"))

    def on_a_terminated_topic(s):
        topic = s.topic()
        c = s.connect()
        c.producer(topic, 1, quietly=True, producer_name="a", producer_access_mode=mode)
        c.publish_all(1, [b"x"], 0)
        s.http("POST", rest(topic, "/terminate"), keep=True)
        c.recv(1)
        c.publish(1, 1, producer_name="a")
        c.recv(1)
        c.producer(topic, 2, producer_name="b", producer_access_mode=mode)
        figures(s, topic, "end")

    for step in (
        over_a_load,
        over_a_lost_connection,
        on_a_non_persistent_topic,
        on_a_limited_topic,
        on_a_terminated_topic,
    ):
        step.__name__ = f"producer_of_mode_{mode.lower()}_{step.__name__}"
        scenario(step)


for each in MODES:
    declare(each)


@scenario
def producers_of_all_modes_beside_a_deleted_topic(s):
    topic = s.topic()
    c = s.connect()
    for i, mode in enumerate(MODES):
        c.producer(topic, i, producer_name=mode, producer_access_mode=mode)
        c.ask("CLOSE_PRODUCER", producer_id=i)
    s.http("DELETE", rest(topic))
    s.http("DELETE", rest(topic, "?force=true"))
    c.recv(2)
    s.lookup(topic)
    c.producer(topic, 9, producer_name="n", producer_access_mode="Exclusive")
    figures(s, topic, "end")
    published(s, topic, 1)


@scenario
def producers_with_metadata_and_encryption(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    c = s.connect()
    c.producer(topic, 1, producer_name="a", metadata=[dict(key="k", value="v")], encrypted=True)
    c.producer(topic, 2, producer_name="b", user_provided_producer_name=False, txn_enabled=True)
    figures(s, topic, "end")
    found = s.http("GET", rest(topic, "/stats"), quietly=True)[1]
    s.note(
        "publishers",
        sorted([p["producerName"], p["metadata"], p["supportsPartialProducer"]] for p in found["publishers"]),
    )
