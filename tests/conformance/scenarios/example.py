"""How to write a scenario, with an example of each kind."""

from transcript import scenario


@scenario
def connect_says_what_the_server_can_do(s):
    s.connect(quietly=False)


@scenario
def subscribe_to_unknown_namespace(s):
    c = s.connect()
    c.subscribe("persistent://public/no-such-namespace/t")
    c.none()


@scenario
def exclusive_consumer_refuses_a_second(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, "sub", 1)
    b.subscribe(topic, "sub", 1)
    a.none()


@scenario
def publish_three_and_read_them(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "sub", 1, permits=10)
    c.producer(topic, 1, producer_name="p")
    for i in range(3):
        c.publish(1, i, b"m%d" % i)
        c.recv_sorted(2)
    c.ask("UNSUBSCRIBE", consumer_id=1)


@scenario
def delete_a_topic_in_use_over_rest(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    s.http("DELETE", "/admin/v2/" + topic.replace("://", "/"))
    s.http("DELETE", "/admin/v2/" + topic.replace("://", "/") + "?force=true")
    c.recv()
