"""Commands in orders that no client library sends: before their partner exists, after its end, twice, crossed."""

from harness.steps import EARLIEST, LATEST, ack, batch, drained, namespace, published, rest, texts
from transcript import encode, encode_send, scenario

REQUESTS = {
    "UNSUBSCRIBE": dict(consumer_id=1),
    "SEEK": dict(consumer_id=1, message_id=EARLIEST),
    "GET_LAST_MESSAGE_ID": dict(consumer_id=1),
    "CONSUMER_STATS": dict(consumer_id=1),
    "CLOSE_CONSUMER": dict(consumer_id=1),
    "CLOSE_PRODUCER": dict(producer_id=1),
}


@scenario
def requests_about_clients_that_are_not_there(s):
    for name, fields in REQUESTS.items():
        c = s.connect(name)
        c.send(name, request_id=1, **fields)
        c.recv(1)
        c.send("LOOKUP", topic="persistent://public/default/x", request_id=2, authoritative=False)
        c.recv(2)


for first, fields in REQUESTS.items():

    def closed_client(s, first=first, fields=fields):
        """The request, after the client of the id has closed, and again after it has come back."""
        topic, c = s.topic(), s.connect()
        for _ in range(2):
            c.producer(topic, 1, producer_name="p")
            c.subscribe(topic, "sub", 1)
            c.ask("CLOSE_PRODUCER", producer_id=1)
            c.ask("CLOSE_CONSUMER", consumer_id=1)
            c.send(first, request_id=500, **fields)
            c.recv(1)
            c.publish(1, 0)
            c.none(0.3)
            c.send("FLOW", consumer_id=1, messagePermits=5)
            c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[EARLIEST], request_id=501)
            c.recv(0.5)
            c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
            c.none(0.3)

    closed_client.__name__ = f"{first.lower()}_of_a_client_that_has_closed"
    scenario(closed_client)

    def request_twice(s, first=first, fields=fields):
        """The request twice in one write with the same request id."""
        topic, c = s.topic(), s.connect()
        published(s, topic, 1)
        c.producer(topic, 1, producer_name="p")
        c.subscribe(topic, "sub", 1)
        frame = encode(first, request_id=500, **fields)
        c.raw(frame + frame, f"{first} twice")
        while c.recv(1):
            pass

    request_twice.__name__ = f"{first.lower()}_twice_with_one_request_id"
    scenario(request_twice)


@scenario
def producer_sends_in_the_write_that_creates_it(s):
    topic, c = s.topic(), s.connect()
    c.raw(
        encode("PRODUCER", request_id=1, producer_name="a", topic=topic, producer_id=1) + encode_send(1, 0),
        "producer and send",
    )
    while c.recv(1):
        pass
    c.publish(1, 1)
    c.recv()


@scenario
def consumer_flows_and_acknowledges_before_its_answer(s):
    topic, c = s.topic(), s.connect()
    (first,) = published(s, topic, 1)
    c.raw(
        encode(
            "SUBSCRIBE",
            request_id=1,
            topic=topic,
            subscription="sub",
            subType="Shared",
            consumer_id=1,
            initialPosition="Earliest",
        )
        + encode("FLOW", consumer_id=1, messagePermits=5)
        + encode("ACK", consumer_id=1, ack_type="Individual", message_id=[first], request_id=2),
        "subscribe, flow, ack",
    )
    while c.recv(1):
        pass


@scenario
def producer_id_in_use_on_another_topic(s):
    a, b, c = s.topic("a"), s.topic("b"), s.connect()
    c.producer(a, 1, producer_name="p")
    c.producer(b, 1, producer_name="p")
    c.producer(a, 1, producer_name="q")
    c.publish(1, 0)
    c.recv()
    c.subscribe(a, "sub", 1)
    c.subscribe(b, "sub", 1)
    c.subscribe(a, "other", 1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def request_ids_that_repeat_over_kinds(s):
    topic, c = s.topic(), s.connect()
    for _ in range(2):
        c.send("PRODUCER", topic=topic, producer_id=1, request_id=7, producer_name="p")
        c.recv()
        c.send("SUBSCRIBE", topic=topic, subscription="sub", consumer_id=1, subType="Exclusive", request_id=7)
        c.recv()
        c.send("LOOKUP", topic=topic, request_id=7, authoritative=False)
        c.recv()
        c.send("GET_SCHEMA", topic=topic, request_id=7)
        c.recv()


@scenario
def connect_in_the_middle_of_a_connection(s):
    topic, c = s.topic(), s.connect()
    c.producer(topic, 1, producer_name="p")
    c.send("CONNECT", client_version="again", protocol_version=5)
    c.recv(1)
    c.publish(1, 0)
    c.recv(1)
    c.none()


@scenario
def seek_while_a_seek_is_under_way(s):
    topic, c = s.topic(), s.connect()
    ids = published(s, topic, 4)
    c.subscribe(topic, "sub", 1, 10, initialPosition="Earliest")
    s.note("came", texts(drained(c, 0.4)))
    c.ask("SEEK", consumer_id=1, message_id=ids[2])
    c.recv(1)
    c.ask("SEEK", consumer_id=1, message_id=ids[1])
    c.subscribe(topic, "sub", 1, 10)
    s.note("came", texts(drained(c, 0.8)))
    c.ask("SEEK", consumer_id=1, message_id=LATEST)
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)


@scenario
def unsubscribe_and_what_the_consumer_sends_then(s):
    topic, c = s.topic(), s.connect()
    c.subscribe(topic, "sub", 1, 10)
    (first,) = published(s, topic, 1)
    drained(c, 0.4)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    ack(c, first, quietly=False)
    c.send("FLOW", consumer_id=1, messagePermits=5)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, "sub", 1, 10)


@scenario
def deleted_topic_and_what_its_clients_send_then(s):
    topic, c = s.topic(), s.connect()
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1, 10)
    s.http("DELETE", rest(topic, "?force=true"))
    c.recv_sorted(2)
    c.publish(1, 0)
    c.none(0.4)
    for name, fields in REQUESTS.items():
        c.send(name, request_id=900, **fields)
        c.recv(1)


@scenario
def deleted_namespace_and_what_its_clients_send_then(s):
    ns = namespace(s)
    topic, c = s.topic(namespace=ns), s.connect()
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1, 10)
    s.http("DELETE", f"/admin/v2/namespaces/{ns}?force=true")
    c.recv_sorted(2)
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def batch_sends_with_counts_of_zero(s):
    topic, c = s.topic(), s.connect()
    c.producer(topic, 1, producer_name="p")
    for i, n in enumerate((0, 1, -1)):
        c.publish(1, i, batch(b"a"), dict(num_messages=n), num_messages_in_batch=1)
        c.recv(1)
