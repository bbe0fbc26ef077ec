"""Epochs of a topic and exclusive producers: over unloads, deletions, quotas, terminations and lost connections, with the figures."""

import time

from harness.figures import figures
from harness.steps import namespace, published, rest, stats
from transcript import scenario

EXCLUSIVE, WAITS, FENCES = "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"


def claim(c, topic, name, mode=EXCLUSIVE, producer_id=1, **more):
    return c.producer(topic, producer_id, producer_name=name, producer_access_mode=mode, **more)


def unloaded(s, topic):
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)


def shown(s, topic, what):
    found = stats(s, topic)
    s.note(what, [found.get("topicEpoch"), found.get("waitingPublishers"), len(found.get("publishers", []))])
    status, internal = s.http("GET", rest(topic, "/internalStats"), quietly=True)
    s.note("properties", internal.get("properties") if status == 200 else status)


@scenario
def epochs_of_claims_over_unloads(s):
    topic = s.topic()
    for i, mode in enumerate((EXCLUSIVE, FENCES, WAITS, EXCLUSIVE, FENCES)):
        c = s.connect()
        claim(c, topic, f"p{i}", mode)
        shown(s, topic, mode)
        unloaded(s, topic)
        c.recv(1)
    c = s.connect()
    c.producer(topic, 9, producer_name="shared")
    shown(s, topic, "shared")


@scenario
def epochs_that_clients_bring_over_unloads(s):
    topic = s.topic()
    c = s.connect()
    claim(c, topic, "a")
    claim(c, topic, "b", FENCES, 2)
    c.recv(1)
    unloaded(s, topic)
    c.recv(1)
    for i, epoch in enumerate((0, 1, 2, 5)):
        claim(c, topic, f"n{i}", EXCLUSIVE, 10 + i, topic_epoch=epoch)
        c.ask("CLOSE_PRODUCER", quietly=True, producer_id=10 + i)
        shown(s, topic, f"epoch {epoch}")


@scenario
def epochs_of_a_deleted_topic(s):
    topic = s.topic()
    c = s.connect()
    for name in "ab":
        claim(c, topic, name)
        c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
    shown(s, topic, "before")
    s.http("DELETE", rest(topic), quietly=True)
    s.lookup(topic)
    claim(c, topic, "c")
    shown(s, topic, "after")
    claim(c, topic, "d", EXCLUSIVE, 2, topic_epoch=1)
    s.http("DELETE", rest(topic, "?force=true"), quietly=True)
    c.recv(1)
    claim(c, topic, "e", FENCES, 3, topic_epoch=0)


@scenario
def waiting_producers_in_their_order(s):
    topic = s.topic()
    connections = [s.connect(f"w{i}") for i in range(4)]
    claim(connections[0], topic, "w0")
    for i in (1, 2, 3):
        claim(connections[i], topic, f"w{i}", WAITS)
    shown(s, topic, "waiting")
    connections[2].close()
    s.until(lambda: stats(s, topic).get("waitingPublishers") == 2)
    connections[0].ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
    connections[1].recv(2)
    connections[3].none(0.3)
    shown(s, topic, "the first has it")
    connections[1].close()
    connections[3].recv(2)
    shown(s, topic, "the last has it")
    connections[3].publish(1, 0)
    connections[3].recv()


@scenario
def fencing_of_holder_and_waiting_producers(s):
    topic = s.topic()
    c, d, e = s.connect(), s.connect(), s.connect()
    claim(c, topic, "holder")
    claim(d, topic, "waiter", WAITS)
    claim(e, topic, "fencer", FENCES)
    c.recv(1)
    d.recv(1)
    shown(s, topic, "fenced")
    c.publish(1, 0)
    c.none(0.3)
    claim(c, topic, "holder", EXCLUSIVE, 2, topic_epoch=0)
    claim(d, topic, "waiter", WAITS, 2)
    e.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
    d.recv(1)
    shown(s, topic, "end")


@scenario
def fencing_beside_shared_producers(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a")
    c.producer(topic, 2, producer_name="b")
    claim(d, topic, "f", FENCES)
    c.recv_sorted(2, 1)
    shown(s, topic, "fenced")
    c.producer(topic, 3, producer_name="a")
    d.publish(1, 0)
    d.recv()
    d.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
    c.producer(topic, 3, producer_name="a")
    claim(d, topic, "x", EXCLUSIVE, 2)
    shown(s, topic, "end")


@scenario
def fencing_twice_and_by_the_same_name(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    claim(c, topic, "same", FENCES)
    claim(d, topic, "same", FENCES)
    c.recv(1)
    claim(c, topic, "same", FENCES, 2)
    d.recv(1)
    claim(c, topic, "same", FENCES, 2, epoch=1)
    claim(c, topic, "same", EXCLUSIVE, 3)
    shown(s, topic, "end")
    figures(s, topic, "figures")


@scenario
def exclusive_producer_over_a_termination(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    claim(c, topic, "a")
    claim(d, topic, "b", WAITS)
    c.publish(1, 0)
    c.recv()
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    c.recv(1)
    d.recv(1)
    claim(c, topic, "a", EXCLUSIVE, 2, topic_epoch=0)
    claim(d, topic, "b", FENCES, 2)
    shown(s, topic, "end")


@scenario
def exclusive_producer_and_deduplication(s):
    ns = namespace(s, deduplication=True)
    topic = s.topic(namespace=ns)
    c, d = s.connect(), s.connect()
    claim(c, topic, "a", initial_subscription_name="first")
    for sequence in (0, 1, 1, 2):
        c.publish(1, sequence)
        c.recv()
    claim(d, topic, "a", FENCES)
    c.recv(1)
    for sequence in (2, 3):
        d.publish(1, sequence)
        d.recv()
    unloaded(s, topic)
    d.recv(1)
    claim(d, topic, "a", EXCLUSIVE, 2, topic_epoch=1)
    shown(s, topic, "end")


@scenario
def exclusive_producers_with_schemas(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    text, number = dict(name="s", schema_data=b"", type="String"), dict(name="s", schema_data=b"", type="Int32")
    claim(c, topic, "a", schema=text)
    claim(d, topic, "b", WAITS, schema=number)
    claim(d, topic, "c", WAITS, 2, schema=text)
    claim(d, topic, "d", FENCES, 3, schema=number)
    shown(s, topic, "refused by their schema")
    claim(d, topic, "e", FENCES, 4, schema=text)
    c.recv(1)
    d.recv(0.5)
    shown(s, topic, "end")


@scenario
def exclusive_producers_of_generated_names(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    c.ask("PRODUCER", topic=topic, producer_id=1, producer_access_mode=EXCLUSIVE, user_provided_producer_name=False)
    d.ask("PRODUCER", topic=topic, producer_id=1, producer_access_mode=WAITS, user_provided_producer_name=False)
    published(s, topic, 1)
    c.close()
    d.recv(3)
    shown(s, topic, "end")


@scenario
def epochs_of_namespace_unloads(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    c, d = s.connect(), s.connect()
    claim(c, topic, "a")
    shown(s, topic, "before")
    s.http("PUT", f"/admin/v2/namespaces/{ns}/unload", quietly=True)
    c.recv(2)
    time.sleep(0.3)
    s.lookup(topic)
    claim(d, topic, "b", EXCLUSIVE, topic_epoch=0)
    claim(c, topic, "a", EXCLUSIVE, 2, topic_epoch=0)
    d.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
    claim(c, topic, "a", EXCLUSIVE, 2, topic_epoch=0)
    claim(c, topic, "a", EXCLUSIVE, 3)
    shown(s, topic, "end")
