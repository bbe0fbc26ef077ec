"""Global policies of a topic beside its local policies, and policies of topics that grow, go and come back."""

import re

from harness.steps import namespace, rest
from transcript import scenario

GLOBALS = {
    "maxProducers": (1, 2),
    "maxConsumers": (1, 2),
    "maxSubscriptionsPerTopic": (1, 2),
    "maxMessageSize": (2, 4),
    "maxUnackedMessagesOnConsumer": (1, 2),
    "deduplicationEnabled": (True, False),
    "subscriptionTypesEnabled": (["Shared"], ["Exclusive"]),
    "retention": (
        {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1},
        {"retentionTimeInMinutes": 2, "retentionSizeInMB": 2},
    ),
    "compactionThreshold": (1000, 2000),
    "delayedDelivery": ({"active": False, "tickTime": 100}, {"active": True, "tickTime": 200}),
    "publishRate": ({"publishThrottlingRateInMsg": 100}, {"publishThrottlingRateInMsg": 200}),
    "dispatchRate": ({"dispatchThrottlingRateInMsg": 100}, {"dispatchThrottlingRateInMsg": 200}),
    "subscribeRate": (
        {"subscribeThrottlingRatePerConsumer": 100, "ratePeriodInSecond": 30},
        {"subscribeThrottlingRatePerConsumer": 200, "ratePeriodInSecond": 30},
    ),
    "inactiveTopicPolicies": (
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 10,
            "deleteWhileInactive": False,
        },
        {
            "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
            "maxInactiveDurationSeconds": 20,
            "deleteWhileInactive": False,
        },
    ),
    "schemaCompatibilityStrategy": ("FULL", "BACKWARD"),
    "schemaValidationEnforced": (True, False),
    "autoSubscriptionCreation": ({"allowAutoSubscriptionCreation": False}, {"allowAutoSubscriptionCreation": True}),
}
for policy, (everywhere, local) in GLOBALS.items():

    def global_and_local(s, policy=policy, everywhere=everywhere, local=local):
        topic = s.topic(namespace=namespace(s))
        path = rest(topic, "/" + policy)
        method = "PUT" if policy == "schemaCompatibilityStrategy" else "POST"

        def look():
            for q in ("", "?applied=true", "?isGlobal=true", "?isGlobal=true&applied=true"):
                s.call("GET", path + q, keep=lambda b: b)

        s.call(method, path + "?isGlobal=true", everywhere)
        look()
        s.call(method, path, local)
        look()
        s.call("DELETE", path)
        look()
        s.call(method, path, local)
        s.call("DELETE", path + "?isGlobal=true")
        look()
        c = s.connect()
        c.producer(topic, 1, producer_name="a")
        c.producer(topic, 2, producer_name="b")
        c.publish(1, 0, b"abc")
        c.recv()

    global_and_local.__name__ = "global_and_local_policy_" + re.sub("[A-Z]", lambda c: "_" + c[0].lower(), policy)
    scenario(global_and_local)


@scenario
def global_limits_hold_below_local_limits(s):
    topic = s.topic(namespace=namespace(s))
    s.call("POST", rest(topic, "/maxProducers?isGlobal=true"), 1)
    c = s.connect()
    for n in range(3):
        c.producer(topic, n, producer_name=f"p{n}")
    s.call("POST", rest(topic, "/maxProducers"), 2)
    for n in range(1, 4):
        c.producer(topic, n, producer_name=f"q{n}")
    s.call("DELETE", rest(topic, "/maxProducers"))
    c.producer(topic, 9, producer_name="q9")
    s.call("DELETE", rest(topic, "/maxProducers?isGlobal=true"))
    c.producer(topic, 9, producer_name="q9")
    s.call("GET", rest(topic, "/policies"), keep=True)


@scenario
def policies_of_a_partitioned_topic_hold_for_partitions(s):
    topic = s.topic(namespace=namespace(s))
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    s.call("POST", rest(topic, "/maxProducers"), 1)
    s.call("POST", rest(topic + "-partition-0", "/maxProducers"), 3)
    for p in ("", "-partition-0", "-partition-1", "-partition-7"):
        s.call("GET", rest(topic + p, "/maxProducers?applied=true"), keep=lambda b: b)
    c = s.connect()
    for p in range(2):
        s.lookup(f"{topic}-partition-{p}")
        for n in range(2):
            c.producer(f"{topic}-partition-{p}", 10 * p + n, producer_name=f"p{n}")
    s.call("POST", rest(topic, "/partitions"), 3)
    s.lookup(f"{topic}-partition-2")
    for n in range(2):
        c.producer(f"{topic}-partition-2", 20 + n, producer_name=f"p{n}")
    s.call("DELETE", rest(topic + "-partition-1", "/maxProducers"))
    s.call("GET", rest(topic, "/maxProducers"), keep=lambda b: b)


@scenario
def policies_of_a_topic_that_is_deleted_and_made_again(s):
    topic = s.topic(namespace=namespace(s))
    s.http("PUT", rest(topic), quietly=True)
    s.call("POST", rest(topic, "/maxProducers"), 1)
    s.call("POST", rest(topic, "/maxConsumers?isGlobal=true"), 1)
    s.call("DELETE", rest(topic))
    s.call("GET", rest(topic, "/maxProducers"), keep=lambda b: b)
    s.call("PUT", rest(topic))
    s.call("GET", rest(topic, "/maxProducers"), keep=lambda b: b)
    s.call("GET", rest(topic, "/maxConsumers?isGlobal=true"), keep=lambda b: b)
    c = s.connect()
    for n in range(2):
        c.producer(topic, n, producer_name=f"p{n}")
        c.subscribe(topic, f"s{n}", n)


@scenario
def policies_of_a_topic_that_no_client_has_used(s):
    ns = namespace(s)
    topic = f"persistent://{ns}/{s.tag}-x"
    s.call("POST", rest(topic, "/maxProducers"), 1)
    s.call("GET", rest(topic, "/maxProducers"), keep=lambda b: b)
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=lambda b: b)
    s.lookup(topic)
    c = s.connect()
    for n in range(2):
        c.producer(topic, n, producer_name=f"p{n}")
