"""Requests for a partitioned topic whose first partition refuses them: the other partitions carry them out."""

import time

from harness.steps import namespace, published, rest
from transcript import scenario

REQUESTS = (
    ("POST", "/subscription/s/expireMessages/0", None),
    ("POST", "/all_subscription/expireMessages/0", None),
    ("POST", "/subscription/s/skip_all", None),
    ("DELETE", "/subscription/s", None),
    ("POST", "/subscription/s/resetcursor/99999999999999", None),
    ("PUT", "/subscription/s/properties", {"a": "b"}),
)


def partitions(s, topic, subscribed):
    """Two partitions, of which only the second has messages; `subscribed`: the first has the subscription too."""
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    both = [f"{topic}-partition-{i}" for i in (0, 1)]
    for number, part in enumerate(both):
        s.lookup(part)
        if number or subscribed:
            s.http("PUT", rest(part, "/subscription/s"), "earliest", quietly=True)
    published(s, both[1], 3)
    return both


def left(s, part):
    """The backlog of the subscription and its properties; None without the subscription."""
    found = s.http("GET", rest(part, "/stats"), quietly=True)[1]["subscriptions"].get("s")
    return found and [found["msgBacklog"], found["subscriptionProperties"]]


@scenario
def partitions_behind_a_partition_that_refuses(s):
    ns = namespace(s)
    for number, (method, more, body) in enumerate(REQUESTS):
        for subscribed in True, False:
            topic = f"persistent://{ns}/t{number}{subscribed}"
            both = partitions(s, topic, subscribed)
            if more == "/subscription/s" and subscribed:
                s.connect().subscribe(both[0], "s", 1, 0, quietly=True)
            status = s.http(method, rest(topic, more), body, quietly=True)[0]
            time.sleep(0.2)
            s.note(f"{more} {subscribed}", [status if status >= 300 else "done", *[left(s, part) for part in both]])
