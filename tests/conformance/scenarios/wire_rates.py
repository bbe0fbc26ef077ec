"""Limits of rates: subscriptions per consumer by level, and rates that are set, shown, replaced and removed."""

from harness.consumers import join
from harness.figures import figures
from harness.steps import drained, namespace, published, rest
from transcript import scenario

RATE = {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 60}


def set_and_shown(s, topic, path, body):
    s.call("POST", rest(topic, "/" + path), body)
    s.eventually("policy", lambda: s.http("GET", rest(topic, "/" + path), quietly=True)[1])
    s.call("GET", rest(topic, f"/{path}?applied=true"), keep=True)


@scenario
def subscribe_rate_of_a_topic(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    set_and_shown(s, topic, "subscribeRate", RATE)
    c = s.connect()
    for i in range(4):
        c.subscribe(topic, f"s{i}", i, subType="Shared", consumer_name="same")
    c.subscribe(topic, "other", 9, subType="Shared", consumer_name="other")
    s.call("DELETE", rest(topic, "/subscribeRate"))
    s.eventually("gone", lambda: not s.http("GET", rest(topic, "/subscribeRate"), quietly=True)[1])
    c.subscribe(topic, "after", 10, subType="Shared", consumer_name="same")


@scenario
def subscribe_rate_set_for_a_namespace(s):
    ns = namespace(s)
    s.call("POST", f"/admin/v2/namespaces/{ns}/subscribeRate", RATE)
    topic = s.topic(namespace=ns)
    s.call("GET", rest(topic, "/subscribeRate?applied=true"), keep=True)
    c = s.connect()
    for i in range(4):
        c.subscribe(topic, f"s{i}", i, consumer_name="same")
    s.call(
        "POST",
        f"/admin/v2/namespaces/{ns}/subscribeRate",
        {"subscribeThrottlingRatePerConsumer": -1, "ratePeriodInSecond": 1},
    )
    c.subscribe(topic, "after", 10, consumer_name="same")


@scenario
def dispatch_rate_of_a_subscription_in_use(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    base = rest(topic, "/sub/dispatchRate")
    rate = {"dispatchThrottlingRateInMsg": 1000, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
    for method, body in (
        ("POST", rate),
        ("GET", None),
        ("POST", {}),
        ("GET", None),
        ("POST", rate | {"relativeToPublishRate": True}),
        ("GET", None),
        ("DELETE", None),
        ("GET", None),
    ):
        s.call(method, base, body, keep=True)
    c = join(s, topic, "Shared", consumer_name="n")
    published(s, topic, 3)
    s.note("came", len(drained(c, 0.5)))
    figures(s, topic, "end")


@scenario
def dispatch_rates_of_all_levels(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic), quietly=True)
    rate = {"dispatchThrottlingRateInMsg": 1000, "dispatchThrottlingRateInByte": 10000, "ratePeriodInSecond": 1}
    for path in ("dispatchRate", "subscriptionDispatchRate", "replicatorDispatchRate"):
        s.call("POST", f"/admin/v2/namespaces/{ns}/{path}", rate)
        s.call("GET", rest(topic, f"/{path}?applied=true"), keep=True)
        set_and_shown(s, topic, path, rate | {"dispatchThrottlingRateInMsg": 5})
        s.call("DELETE", f"/admin/v2/namespaces/{ns}/{path}")
        s.call("GET", f"/admin/v2/namespaces/{ns}/{path}", keep=True)
        s.call("DELETE", rest(topic, "/" + path))
        s.call("GET", rest(topic, f"/{path}?applied=true"), keep=True)


@scenario
def publish_rates_in_every_form(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for body in (
        {"publishThrottlingRateInMsg": 10},
        {"publishThrottlingRateInByte": 10},
        {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": 0},
        {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1},
        {"publishThrottlingRateInMsg": "x"},
        {"other": 1},
        [],
        None,
    ):
        s.call("POST", rest(topic, "/publishRate"), body)
        s.call("GET", rest(topic, "/publishRate"), keep=True)
    s.call("DELETE", rest(topic, "/publishRate"))
    s.call("GET", rest(topic, "/publishRate"), keep=True)


@scenario
def publish_rate_that_holds_no_single_message_back(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    set_and_shown(s, topic, "publishRate", {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": 100000})
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    for i in range(3):
        c.publish(1, i)
        c.recv()
    figures(s, topic, "end")
