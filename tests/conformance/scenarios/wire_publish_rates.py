"""SENDs of one write under a publish rate: which pass at once, which wait, and the commands behind them."""

from harness.steps import batch, rest, stats
from transcript import encode, encode_send, scenario

QUIET_SECONDS = 0.4
"""Less than the time of a message at the rates of this file."""
ONE = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
THREE = {"publishThrottlingRateInMsg": 3, "publishThrottlingRateInByte": -1}
LAST_ID = encode("GET_LAST_MESSAGE_ID", consumer_id=77, request_id=500)


def limited(s, rate, topic=None, create=""):
    """A topic with the rate, in force."""
    topic = topic or s.topic()
    s.http("PUT", rest(topic, create), 2 if create else None, quietly=True)
    s.http("POST", rest(topic, "/publishRate"), rate, quietly=True)
    s.until(lambda: s.http("GET", rest(topic, "/publishRate"), quietly=True)[1] == rate)
    return topic


def lift(s, topic):
    """Remove the rate."""
    s.call("DELETE", rest(topic, "/publishRate"))


def producing(s, topic, name=None, producer_id=1):
    """A connection with a producer of the topic."""
    c = s.connect(name)
    c.producer(topic, producer_id, quietly=True)
    return c


def sends(count, first=0, producer_id=1, **metadata):
    return b"".join(encode_send(producer_id, first + i, **metadata) for i in range(count))


def drain(c, seconds=1.5):
    """All frames until the connection is silent."""
    while c.recv(seconds):
        pass


@scenario
def sends_of_one_write_pass_a_rate_one_by_one(s):
    c = producing(s, limited(s, ONE))
    c.raw(sends(3), "three sends")
    for _ in range(2):
        c.recv()
        c.none(QUIET_SECONDS)
    c.recv()


@scenario
def sends_of_one_write_up_to_the_rate_pass_together(s):
    c = producing(s, limited(s, THREE))
    c.raw(sends(3), "three sends")
    for _ in range(3):
        c.recv()
    c.raw(sends(2, 3), "two sends")
    c.recv()
    c.recv()


@scenario
def request_behind_sends_that_wait(s):
    c = producing(s, limited(s, ONE))
    c.raw(sends(2) + LAST_ID, "two sends and a request")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()


@scenario
def request_behind_the_send_that_reaches_the_rate(s):
    c = producing(s, limited(s, ONE))
    c.raw(sends(1) + LAST_ID, "a send and a request")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()


@scenario
def batch_counts_its_messages_against_a_rate(s):
    c = producing(s, limited(s, ONE))
    one = encode_send(1, 0, batch(b"a", b"b", b"c"), num_messages_in_batch=3)
    c.raw(one + sends(1, 3), "a batch of three that claims one message, and a send")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    c.publish(1, 4, batch(b"a", b"b", b"c"), command=dict(num_messages=3), num_messages_in_batch=3)
    c.none(QUIET_SECONDS)
    c.recv()
    c.publish(1, 7)
    c.none(2)
    c.recv()


@scenario
def bytes_count_against_a_rate_of_bytes(s):
    c = producing(s, limited(s, {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": 100}))
    c.raw(encode_send(1, 0, b"x" * 150) + sends(2, 1), "a send beyond the rate and two small ones")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    c.recv()


@scenario
def other_producers_of_a_connection_that_waits(s):
    topic, free = limited(s, ONE), s.topic("free")
    c = producing(s, topic)
    c.producer(free, 2, quietly=True)
    c.raw(sends(2) + sends(1, 0, 2), "two sends and a send of the other producer")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()


@scenario
def two_producers_of_a_topic_wait_together(s):
    c = producing(s, limited(s, ONE))
    c.producer(limited(s, ONE, s.topic("u")), 2, quietly=True)
    c.raw(sends(1) + sends(1, 0, 2) + LAST_ID, "a send of each and a request")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()


@scenario
def other_connection_sends_while_one_waits(s):
    topic = limited(s, ONE)
    a, b = producing(s, topic, "a"), producing(s, topic, "b")
    a.raw(sends(2), "two sends")
    a.recv()
    b.raw(sends(2), "two sends")
    b.recv(QUIET_SECONDS)
    b.none(QUIET_SECONDS)


@scenario
def rate_is_lifted_while_sends_wait(s):
    topic = limited(s, ONE)
    c = producing(s, topic)
    c.raw(sends(20) + LAST_ID, "twenty sends and a request")
    c.recv()
    lift(s, topic)
    for _ in range(20):
        c.recv(3)


@scenario
def rate_is_raised_while_sends_wait(s):
    topic = limited(s, ONE)
    c = producing(s, topic)
    c.raw(sends(20) + LAST_ID, "twenty sends and a request")
    c.recv()
    s.call("POST", rest(topic, "/publishRate"), ONE | {"publishThrottlingRateInMsg": 1000})
    for _ in range(20):
        c.recv(3)


@scenario
def rate_is_set_while_a_producer_sends(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    c = producing(s, topic)
    c.raw(sends(3), "three sends")
    drain(c, 0.3)
    limited(s, ONE, topic)
    s.until(lambda: False, 1)
    c.raw(sends(2, 3) + LAST_ID, "two sends and a request")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()


@scenario
def ping_behind_sends_that_wait(s):
    s.keep_pong = True
    c = producing(s, limited(s, ONE))
    c.raw(sends(1) + encode("PING"), "a send and a ping")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()


@scenario
def close_behind_sends_that_wait(s):
    topic = limited(s, ONE)
    c = producing(s, topic)
    c.raw(sends(2) + encode("CLOSE_PRODUCER", producer_id=1, request_id=500), "two sends and the end of the producer")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    s.note("messages", stats(s, topic)["msgInCounter"])


@scenario
def connection_ends_while_sends_wait(s):
    topic = limited(s, ONE)
    c = producing(s, topic)
    c.raw(sends(5), "five sends")
    c.recv()
    c.close()
    s.eventually("gone", lambda: not stats(s, topic)["publishers"])
    s.until(lambda: False, 1.5)
    s.note("messages", stats(s, topic)["msgInCounter"])


@scenario
def refused_sends_count_against_a_rate(s):
    c = producing(s, limited(s, ONE))
    c.publish(1, 0, bad_crc=True)
    c.recv()
    c.publish(1, 1)
    c.none(QUIET_SECONDS)
    c.recv()


@scenario
def flow_behind_sends_that_wait(s):
    topic = limited(s, ONE)
    c = producing(s, topic)
    c.subscribe(topic, "sub", 1, quietly=True)
    c.raw(sends(2) + encode("FLOW", consumer_id=1, messagePermits=5), "two sends and permits")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    c.none(QUIET_SECONDS)
    drain(c)


@scenario
def topic_is_unloaded_while_sends_wait(s):
    topic = limited(s, ONE)
    c = producing(s, topic)
    c.raw(sends(3), "three sends")
    c.recv()
    s.call("PUT", rest(topic, "/unload"))
    drain(c, 3)
    s.lookup(topic)
    s.http("GET", rest(topic, "/stats"), quietly=True)
    s.note("stored", s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["numberOfEntries"])


@scenario
def topic_is_deleted_by_force_while_sends_wait(s):
    topic = limited(s, ONE)
    c = producing(s, topic)
    c.raw(sends(3), "three sends")
    c.recv()
    s.call("DELETE", rest(topic, "?force=true"))
    drain(c, 3)


@scenario
def topic_is_terminated_while_sends_wait(s):
    topic = limited(s, ONE)
    c = producing(s, topic)
    c.raw(sends(3), "three sends")
    c.recv()
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    drain(c, 3)
    s.note("stored", s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["numberOfEntries"])


@scenario
def sends_to_a_non_persistent_topic_under_a_rate(s):
    c = producing(s, limited(s, ONE, s.topic(domain="non-persistent")))
    c.raw(sends(2) + LAST_ID, "two sends and a request")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()


@scenario
def each_partition_has_the_rate_of_its_topic(s):
    topic = limited(s, ONE, create="/partitions")
    for i in range(2):
        s.lookup(f"{topic}-partition-{i}")
    a, b = (producing(s, f"{topic}-partition-{i}", name) for i, name in enumerate("ab"))
    for c in (a, b):
        c.raw(sends(2), "two sends")
    for c in (a, b):
        c.recv(0.5)
    for c in (a, b):
        c.recv()


@scenario
def held_sends_in_the_figures_of_a_topic(s):
    topic = limited(s, ONE)
    c = producing(s, topic)
    s.note("held", stats(s, topic)["publishRateLimitedTimes"])
    c.raw(sends(3), "three sends")
    c.recv()
    s.note("in", stats(s, topic)["msgInCounter"])
    c.recv()
    c.recv()
    found = stats(s, topic)
    s.note("held, in", [found["publishRateLimitedTimes"], found["msgInCounter"]])


@scenario
def rate_of_a_namespace_holds_for_each_topic(s):
    ns = s.namespace()
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
    s.http("POST", f"/admin/v2/namespaces/{ns}/publishRate", ONE, quietly=True)
    a, b = (producing(s, s.topic(name, ns), name) for name in "ab")
    for c in (a, b):
        c.raw(sends(2), "two sends")
    for c in (a, b):
        c.recv(0.5)
    for c in (a, b):
        c.recv()
    s.call("DELETE", f"/admin/v2/namespaces/{ns}/publishRate")
    s.until(lambda: False, 0.3)
    for c in (a, b):
        c.raw(sends(10, 2), "ten sends")
    for c in (a, b):
        for _ in range(10):
            c.recv(2)


@scenario
def rate_of_a_topic_wins_over_that_of_its_namespace(s):
    ns = s.namespace()
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
    s.http("POST", f"/admin/v2/namespaces/{ns}/publishRate", ONE, quietly=True)
    topic = limited(s, ONE | {"publishThrottlingRateInMsg": 1000}, s.topic(namespace=ns))
    c = producing(s, topic)
    c.raw(sends(20) + LAST_ID, "twenty sends and a request")
    for _ in range(21):
        c.recv(3)
    lift(s, topic)
    s.until(lambda: False, 0.3)
    c.raw(sends(3, 20), "three sends")
    drain(c)


@scenario
def rates_that_limit_nothing(s):
    for i, rate in enumerate(((0, 0), (-1, -1), (0, -1), (-5, -5))):
        name = f"t{i}"
        topic = limited(
            s,
            dict(zip(("publishThrottlingRateInMsg", "publishThrottlingRateInByte"), rate, strict=True)),
            s.topic(name),
        )
        c = producing(s, topic, name)
        c.raw(sends(10) + LAST_ID, "ten sends and a request")
        for _ in range(11):
            c.recv(2)


@scenario
def sends_to_a_non_persistent_topic_of_a_namespace_with_a_rate(s):
    ns = s.namespace()
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
    s.http("POST", f"/admin/v2/namespaces/{ns}/publishRate", ONE, quietly=True)
    c = producing(s, s.topic(namespace=ns, domain="non-persistent"))
    c.raw(sends(2) + LAST_ID, "two sends and a request")
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    c.none(QUIET_SECONDS)
    c.recv()
    s.http("DELETE", f"/admin/v2/namespaces/{ns}/publishRate", quietly=True)
    s.until(lambda: False, 0.3)
    c.raw(sends(3, 2), "three sends")
    drain(c, 0.4)


@scenario
def sends_of_transactions_count_against_a_rate(s):
    topic = limited(s, ONE)
    c = producing(s, topic)
    c.publish(1, 0, b"x" * 100, command=dict(txnid_least_bits=1, txnid_most_bits=0))
    c.recv()
    c.publish(1, 1)
    c.none(QUIET_SECONDS)
    c.recv()


@scenario
def messages_over_rest_under_a_rate(s):
    topic = limited(s, ONE)
    body = {"producerName": "p", "messages": [{"payload": "a"}, {"payload": "b"}, {"payload": "c"}]}
    path = "/topics/" + topic.replace("://", "/")
    for _ in range(2):
        status, _ = s.http("POST", path, body, quietly=True)
        s.note("status", status)
    c = producing(s, topic)
    c.publish(1, 0)
    c.recv(QUIET_SECONDS)
    s.note("held", s.http("GET", rest(topic, "/stats"), quietly=True)[1]["publishRateLimitedTimes"])


@scenario
def web_socket_producer_under_a_rate(s):
    topic = limited(s, ONE)
    p = s.web_socket("producer", topic)
    for i in range(3):
        p.send(payload="YQ==", context=str(i))
    p.recv(0.4)
    p.recv(0.4)
    p.recv()
    p.recv()
