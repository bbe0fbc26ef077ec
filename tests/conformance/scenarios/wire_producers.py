"""PRODUCER and CLOSE_PRODUCER: names, epochs, access modes, rules of a namespace for producers."""

import time

from harness.steps import avro, namespace, published, rest
from transcript import encode, scenario


def policy(s, ns, path, body, method="POST"):
    s.http(method, f"/admin/v2/namespaces/{ns}/{path}", body, quietly=True)


@scenario
def producer_reconnects_on_its_connection_with_a_higher_epoch(s):
    """Same name and id on the same connection is the same producer; a successor has a higher epoch."""
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="x", epoch=0)
    c.producer(topic, 1, producer_name="x", epoch=1)
    c.producer(topic, 1, producer_name="x", epoch=0)
    c.producer(topic, 2, producer_name="x", epoch=5)
    c.none()


@scenario
def producer_with_a_generated_name_reconnects_with_it(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    name = a.producer(topic, 1, quietly=True).command.producer_name
    b.send("PRODUCER", quietly=True, topic=topic, producer_id=1, request_id=5, producer_name=name, epoch=1)
    s.note("in use", b.recv_quietly().type)
    a.ask("CLOSE_PRODUCER", producer_id=1)
    frame = b.producer(topic, 1, quietly=True, producer_name=name, epoch=1, user_provided_producer_name=False)
    s.note("its name again", frame.command.producer_name == name)


@scenario
def generated_name_over_a_connection_that_is_gone(s):
    """A name that the broker gave: its owner on another connection may take it back with a higher epoch."""
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.producer(topic, 1, producer_name="gen", user_provided_producer_name=False, epoch=0)
    b.producer(topic, 1, producer_name="gen", user_provided_producer_name=False, epoch=1)
    a.none()
    b.producer(topic, 2, producer_name="gen", user_provided_producer_name=False, epoch=0)


@scenario
def empty_and_odd_producer_names(s):
    c, topic = s.connect(), s.topic()
    for i, name in enumerate(("", " ", "a/b", "ümlaut", "pulsar.repl.x", "x" * 200)):
        c.producer(topic, i, producer_name=name)


@scenario
def same_name_on_two_topics(s):
    c = s.connect()
    c.producer(s.topic("a"), 1, producer_name="x")
    c.producer(s.topic("b"), 2, producer_name="x")


@scenario
def producer_id_is_free_after_a_refusal(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="x")
    c.producer(topic, 2, producer_name="x")
    c.producer(topic, 2, producer_name="y")
    c.publish(2, 0, producer_name="y")
    c.recv()


@scenario
def producer_ids_are_of_the_connection(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.producer(topic, 7, producer_name="a")
    b.producer(topic, 7, producer_name="b")
    a.publish(7, 0)
    a.recv()
    b.publish(7, 0)
    b.recv()
    a.ask("CLOSE_PRODUCER", producer_id=7)
    b.publish(7, 1)
    b.recv()


@scenario
def close_producer_twice(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, quietly=True)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.none()


@scenario
def close_producer_comes_after_the_receipts(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, quietly=True)
    for i in range(10):
        c.publish(1, i)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.none()


@scenario
def send_on_a_producer_the_broker_closed_is_ignored(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, quietly=True)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    c.publish(1, 0)
    c.none()
    c.ask("CLOSE_PRODUCER", producer_id=1)
    s.lookup(topic)
    c.producer(topic, 1, producer_name="p")
    c.publish(1, 0)
    c.recv()


@scenario
def exclusive_epoch_grows_with_each_owner(s):
    c, topic = s.connect(), s.topic()
    for i in range(3):
        c.producer(topic, i, producer_name=f"x{i}", producer_access_mode="Exclusive")
        c.ask("CLOSE_PRODUCER", producer_id=i)


@scenario
def topic_epoch_given_by_the_client(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive", topic_epoch=5)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 2, producer_name="b", producer_access_mode="Exclusive", topic_epoch=5)
    c.ask("CLOSE_PRODUCER", producer_id=2)
    c.producer(topic, 3, producer_name="c", producer_access_mode="Exclusive", topic_epoch=4)
    c.producer(topic, 4, producer_name="d", producer_access_mode="Exclusive")
    c.ask("CLOSE_PRODUCER", producer_id=4)
    c.producer(topic, 5, producer_name="e")
    c.ask("CLOSE_PRODUCER", producer_id=5)
    c.producer(topic, 6, producer_name="f", topic_epoch=1)


@scenario
def topic_epoch_survives_an_unload(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    c.producer(topic, 2, producer_name="b", producer_access_mode="Exclusive")


@scenario
def exclusive_is_refused_when_others_are_there(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a")
    b.producer(topic, 1, producer_name="b", producer_access_mode="Exclusive")
    a.none()
    a.publish(1, 0)
    a.recv()


@scenario
def waiting_producer_while_shared_ones_are_connected(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a")
    a.producer(topic, 2, producer_name="b")
    b.producer(topic, 1, producer_name="w", producer_access_mode="WaitForExclusive")
    a.producer(topic, 3, producer_name="c")
    a.ask("CLOSE_PRODUCER", producer_id=1)
    b.none()
    a.ask("CLOSE_PRODUCER", producer_id=2)
    b.recv()


@scenario
def waiting_producers_are_served_in_order(s):
    a, b, c, topic = s.connect(), s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="WaitForExclusive")
    b.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
    c.producer(topic, 1, producer_name="c", producer_access_mode="WaitForExclusive")
    a.close()
    b.recv()
    c.none()
    b.ask("CLOSE_PRODUCER", producer_id=1)
    c.recv()


@scenario
def waiting_producer_gives_up(s):
    a, b, c, topic = s.connect(), s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
    c.producer(topic, 1, producer_name="c", producer_access_mode="WaitForExclusive")
    b.ask("CLOSE_PRODUCER", producer_id=1)
    a.ask("CLOSE_PRODUCER", producer_id=1)
    b.none()
    c.recv()


@scenario
def waiting_producer_that_sends_is_closed(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
    b.publish(1, 0)
    b.recv(3)


@scenario
def waiting_producer_repeats_itself(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
    b.send(
        "PRODUCER", topic=topic, producer_id=1, request_id=9, producer_name="b", producer_access_mode="WaitForExclusive"
    )
    b.recv(3)
    b.none()


@scenario
def fencing_producer_takes_over(s):
    """The fenced producer gets no notice; its next SEND closes its connection."""
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="b", producer_access_mode="ExclusiveWithFencing")
    a.none()
    b.publish(1, 0)
    b.recv()
    a.publish(1, 0)
    a.recv(3)


@scenario
def fencing_producer_drives_off_shared_and_waiting_ones(s):
    a, b, c, topic = s.connect(), s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a")
    a.producer(topic, 2, producer_name="a2")
    b.producer(topic, 1, producer_name="w", producer_access_mode="WaitForExclusive")
    c.producer(topic, 1, producer_name="f", producer_access_mode="ExclusiveWithFencing")
    b.recv()
    a.none()
    a.ask("CLOSE_PRODUCER", producer_id=2)
    a.producer(topic, 3, producer_name="late")


@scenario
def fencing_producers_one_after_another(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="ExclusiveWithFencing")
    b.producer(topic, 1, producer_name="b", producer_access_mode="ExclusiveWithFencing", topic_epoch=0)
    b.producer(topic, 2, producer_name="c", producer_access_mode="ExclusiveWithFencing")
    a.producer(topic, 3, producer_name="a", producer_access_mode="Exclusive", topic_epoch=0)


@scenario
def access_mode_of_a_name_in_use(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    b.producer(topic, 2, producer_name="a", producer_access_mode="WaitForExclusive")
    b.producer(topic, 3, producer_name="a", producer_access_mode="ExclusiveWithFencing")


@scenario
def initial_subscription_is_made_at_the_start(s):
    c, topic = s.connect(), s.topic()
    published(s, topic, 1)
    c.producer(topic, 1, producer_name="p", initial_subscription_name="first")
    s.http("GET", rest(topic, "/subscriptions"), keep=True)
    c.publish(1, 1, b"new")
    c.recv()
    c.subscribe(topic, "first", permits=10)
    c.recv()
    c.none()


@scenario
def initial_subscription_that_exists_or_has_no_name(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, "first", quietly=True)
    c.producer(topic, 1, producer_name="p", initial_subscription_name="first")
    c.producer(topic, 2, producer_name="q", initial_subscription_name="")
    s.http("GET", rest(topic, "/subscriptions"), keep=True)
    d, np = s.connect(), s.topic("np", domain="non-persistent")
    d.producer(np, 1, producer_name="p", initial_subscription_name="first")


@scenario
def initial_subscription_where_none_may_be_made(s):
    ns = namespace(s, autoSubscriptionCreation=dict(allowAutoSubscriptionCreation=False))
    c, topic = s.connect(), s.topic("t", ns)
    c.producer(topic, 1, producer_name="p", initial_subscription_name="first")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)
    c.subscribe(topic, "reader", 2, durable=False)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    c.subscribe(topic, "sub", 1)


@scenario
def number_of_producers_limited(s):
    c, topic = s.connect(), s.topic("t", namespace(s, maxProducersPerTopic=2))
    c.producer(topic, 1, producer_name="a")
    c.producer(topic, 2, producer_name="b")
    c.producer(topic, 3, producer_name="c")
    c.producer(topic, 4, producer_name="c", producer_access_mode="WaitForExclusive")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 3, producer_name="c")


@scenario
def encryption_required_of_producers_and_messages(s):
    c, topic = s.connect(), s.topic("t", namespace(s, encryptionRequired=True))
    c.producer(topic, 1, producer_name="plain")
    c.producer(topic, 2, producer_name="secret", encrypted=True)
    c.publish(2, 0, producer_name="secret")
    c.recv()
    c.publish(2, 1, producer_name="secret", encryption_keys=[dict(key="k", value=b"v")], encryption_param=b"p")
    c.recv()


@scenario
def encryption_switched_on_closes_plain_producers(s):
    ns = namespace(s)
    c, topic = s.connect(), s.topic("t", ns)
    c.producer(topic, 1, producer_name="plain")
    c.producer(topic, 2, producer_name="secret", encrypted=True)
    policy(s, ns, "encryptionRequired", True)
    c.recv()
    c.none()
    c.producer(topic, 1, producer_name="plain")


@scenario
def encrypted_flag_where_nothing_is_required(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="p", encrypted=True)
    c.publish(1, 0)
    c.recv()


@scenario
def producer_with_much_metadata(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="p", metadata=[dict(key="k", value="v" * 100)])
    c.producer(topic, 2, producer_name="q", metadata=[dict(key="k", value="v" * 1100)])
    c.producer(topic, 3, producer_name="r", metadata=[dict(key=f"k{i}", value="") for i in range(300)])


@scenario
def producer_with_transactions_switched_off(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="p", txn_enabled=True)


@scenario
def producer_without_schema_on_a_topic_with_one(s):
    ns = namespace(s)
    c, topic = s.connect(), s.topic("t", ns)
    c.producer(topic, 1, producer_name="a", schema=dict(name="s", type="Avro", schema_data=avro(("a", "int"))))
    c.producer(topic, 2, producer_name="b")
    policy(s, ns, "schemaValidationEnforced", True)
    time.sleep(0.3)
    c.producer(topic, 3, producer_name="c")
    c.subscribe(topic, "sub", 1)


@scenario
def creations_in_one_write(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 9, quietly=True)
    commands = [encode("PRODUCER", topic=topic, producer_id=n, request_id=n, producer_name=f"n{n}") for n in (1, 2, 3)]
    c.raw(b"".join(commands), "three PRODUCER")
    c.recv_sorted(3)


@scenario
def force_deleted_topic_closes_and_comes_back_empty(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="p")
    c.publish(1, 0)
    c.recv()
    s.http("DELETE", rest(topic, "?force=true"))
    c.recv()
    c.producer(topic, 1, producer_name="p")
    c.publish(1, 1)
    c.recv()


@scenario
def largest_producer_id_in_the_stats(s):
    topic, c = s.topic(), s.connect()
    for producer_id in (2**63, 2**64 - 1, 7):
        c.producer(topic, producer_id, quietly=True, producer_name=f"n{producer_id % 10}")
    publishers = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["publishers"]
    s.note("ids", sorted(publisher["producerId"] for publisher in publishers))
