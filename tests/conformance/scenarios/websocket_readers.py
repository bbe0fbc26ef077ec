"""Readers at /ws/v2, as Apache Pulsar's WebSocket service serves them."""

from transcript import scenario


def publish(s, topic, *payloads):
    """Messages by a producer of the binary protocol."""
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, payloads)


def reader(s, topic, **query):
    return s.web_socket("reader", topic, **query)


@scenario
def ws_reader_reads(s):
    topic = s.topic()
    publish(s, topic, b"a", b"b", b"c")
    r = reader(s, topic, messageId="earliest")
    first = r.recv()
    r.recv()
    r.recv()
    r.none()
    r = reader(s, topic, messageId=first["messageId"], shown="messageId=FIRST")
    r.recv()
    r = reader(s, topic)
    r.none()
    reader(s, topic, messageId="latest").none()


@scenario
def ws_reader_window(s):
    topic = s.topic()
    publish(s, topic, b"a", b"b", b"c")
    r = reader(s, topic, messageId="earliest", receiverQueueSize=1)
    got = r.recv()
    r.none()
    r.send(messageId=got["messageId"])
    r.recv()
    r.none()
    r.send()
    r.recv()


@scenario
def ws_reader_parameters(s):
    topic = s.topic()
    publish(s, topic, b"a")
    for name, values in {
        "messageId": ("", "x", "****", "AAAA"),
        "receiverQueueSize": ("0", "-1", "5000"),
        "readerName": ("mine", ""),
        "cryptoFailureAction": ("x",),
    }.items():
        for value in values:
            reader(s, topic, **{name: value})


@scenario
def ws_reader_queue_size_x(s):
    reader(s, s.topic(), receiverQueueSize="x")


@scenario
def ws_reader_bad_commands(s):
    topic = s.topic()
    for text in ("no json", "{}", "[]"):
        r = reader(s, topic)
        r.send_text(text)
        r.recv(1)
