"""Policies set on the broker, the namespace and the topic at once: the value in force, and its effect on clients."""

import time

from harness.steps import ack, avro, drained, namespace, published, rest, texts
from transcript import scenario

RATE = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": 20, "ratePeriodInSecond": 1}
# topic path -> (namespace path, its method, a value there, a value of the topic, the topic's method)
LEVELS = {
    "retention": ("retention", "POST", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}, {"retentionTimeInMinutes": 20, "retentionSizeInMB": -1}),
    "delayedDelivery": ("delayedDelivery", "POST", {"active": True, "tickTime": 2000}, {"active": False, "tickTime": 7}),
    "inactiveTopicPolicies": (
        "inactiveTopicPolicies", "POST",
        {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 100, "deleteWhileInactive": True},
        {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "maxInactiveDurationSeconds": 9},
    ),
    "dispatchRate": ("dispatchRate", "POST", RATE, {"dispatchThrottlingRateInMsg": 99}),
    "subscriptionDispatchRate": ("subscriptionDispatchRate", "POST", RATE, {"dispatchThrottlingRateInMsg": 99}),
    "replicatorDispatchRate": ("replicatorDispatchRate", "POST", RATE, {"dispatchThrottlingRateInMsg": 99}),
    "subscribeRate": ("subscribeRate", "POST", {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 20}, {"subscribeThrottlingRatePerConsumer": 4}),
    "compactionThreshold": ("compactionThreshold", "PUT", 1000, 0),
    "maxProducers": ("maxProducersPerTopic", "POST", 5, 0),
    "maxConsumers": ("maxConsumersPerTopic", "POST", 5, 0),
    "maxConsumersPerSubscription": ("maxConsumersPerSubscription", "POST", 5, 7),
    "maxSubscriptionsPerTopic": ("maxSubscriptionsPerTopic", "POST", 5, 7),
    "maxUnackedMessagesOnConsumer": ("maxUnackedMessagesPerConsumer", "POST", 5, 0),
    "maxUnackedMessagesOnSubscription": ("maxUnackedMessagesPerSubscription", "POST", 5, 0),
    "deduplicationEnabled": ("deduplication", "POST", True, False),
    "deduplicationSnapshotInterval": ("deduplicationSnapshotInterval", "POST", 60, 7),
    "subscriptionTypesEnabled": ("subscriptionTypesEnabled", "POST", ["Shared"], ["Exclusive", "Failover"]),
    "schemaCompatibilityStrategy": ("schemaCompatibilityStrategy", "PUT", "BACKWARD", "FORWARD"),
    "schemaValidationEnforced": ("schemaValidationEnforced", "POST", True, False),
    "autoSubscriptionCreation": ("autoSubscriptionCreation", "POST", {"allowAutoSubscriptionCreation": False}, {"allowAutoSubscriptionCreation": True}),
    "messageTTL": ("messageTTL", "POST", 60, 7),
    "subscriptionExpirationTime": ("subscriptionExpirationTime", "POST", 60, 7),
    "publishRate": ("publishRate", "POST", {"publishThrottlingRateInMsg": 1000}, {"publishThrottlingRateInByte": 5}),
    "persistence": (
        "persistence", "POST",
        {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1, "managedLedgerMaxMarkDeleteRate": 0.5},
        {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1, "managedLedgerMaxMarkDeleteRate": 2},
    ),
    "dispatcherPauseOnAckStatePersistent": ("dispatcherPauseOnAckStatePersistent", "POST", None, None),
    "replication": ("replication", "POST", ["standalone"], ["standalone"]),
    "offloadPolicies": ("offloadPolicies", "POST", {"managedLedgerOffloadDriver": "filesystem"}, {"managedLedgerOffloadDriver": "filesystem", "managedLedgerOffloadThresholdInBytes": 5}),
}  # fmt: skip
BY_QUERY = ("messageTTL", "subscriptionExpirationTime")
BY_PUT = ("schemaCompatibilityStrategy",)


def in_order(value):
    return sorted(value) if isinstance(value, list) else value


def _declare(path, above, verb, of_namespace, of_topic):
    def run(s):
        ns = namespace(s)
        base, topic = f"/admin/v2/namespaces/{ns}/{above}", f"/admin/v2/persistent/{ns}/t"
        s.http("PUT", topic, quietly=True)
        s.lookup(f"persistent://{ns}/t")

        def look():
            time.sleep(0.3)
            for query in ("", "?applied=true"):
                s.call("GET", f"{topic}/{path}{query}", keep=in_order)

        def set_topic(query=""):
            if path in BY_QUERY:
                s.call("POST", f"{topic}/{path}?{path}={of_topic}{query.replace('?', '&')}")
            else:
                s.call("PUT" if path in BY_PUT else "POST", f"{topic}/{path}{query}", of_topic)

        look()
        s.call(verb, base, of_namespace)
        look()
        if path not in ("schemaCompatibilityStrategy", "schemaValidationEnforced", "replication"):
            set_topic("?isGlobal=true")
            look()
        set_topic()
        look()
        s.call("DELETE", base)
        look()
        s.call("DELETE", f"{topic}/{path}")
        look()
        s.call("DELETE", f"{topic}/{path}?isGlobal=true")
        look()

    run.__name__ = run.__qualname__ = f"levels_of_{path}"
    scenario(run)


for _path, _row in LEVELS.items():
    _declare(_path, *_row)


@scenario
def levels_of_backlog_quotas(s):
    ns = namespace(s)
    base, topic = f"/admin/v2/namespaces/{ns}", f"/admin/v2/persistent/{ns}/t"
    s.http("PUT", topic, quietly=True)

    def look():
        time.sleep(0.3)
        s.call("GET", topic + "/backlogQuotaMap", keep=True)
        s.call("GET", topic + "/backlogQuotaMap?applied=true", keep=True)
        kept = ["backlogQuotaLimitSize", "backlogQuotaLimitTime"]
        s.call("GET", topic + "/stats", keep=kept)

    s.call("POST", base + "/backlogQuota", {"limitSize": 1000, "policy": "producer_exception"})
    look()
    s.call(
        "POST",
        base + "/backlogQuota?backlogQuotaType=message_age",
        {"limitTime": 100, "policy": "consumer_backlog_eviction"},
    )
    look()
    s.call("POST", topic + "/backlogQuota", {"limitSize": 5000, "policy": "producer_request_hold"})
    look()
    s.call(
        "POST", topic + "/backlogQuota?backlogQuotaType=message_age", {"limitTime": 7, "policy": "producer_exception"}
    )
    look()
    s.call("DELETE", base + "/backlogQuota")
    look()
    s.call("DELETE", topic + "/backlogQuota")
    s.call("DELETE", topic + "/backlogQuota?backlogQuotaType=message_age")
    look()


@scenario
def limits_of_both_levels_felt_by_clients(s):
    """The policy of the topic wins over the namespace; 0 on the topic is no limit."""
    ns = namespace(s)
    topic = s.topic("t", ns)
    s.http("PUT", rest(topic), quietly=True)
    for path in (
        "maxProducersPerTopic",
        "maxConsumersPerTopic",
        "maxSubscriptionsPerTopic",
        "maxConsumersPerSubscription",
    ):
        s.call("POST", f"/admin/v2/namespaces/{ns}/{path}", 1)
    c = s.connect()
    for step in ("namespace alone", "topic without limits", "topic of two", "namespace again"):
        s.note("step", step)
        value = {"topic without limits": 0, "topic of two": 2}.get(step)
        for path in ("maxProducers", "maxConsumers", "maxSubscriptionsPerTopic", "maxConsumersPerSubscription"):
            if value is not None:
                s.http("POST", rest(topic, "/" + path), value, quietly=True)
            elif step == "namespace again":
                s.http("DELETE", rest(topic, "/" + path), quietly=True)
        time.sleep(1.2)
        for i in range(3):
            c.producer(topic, i, producer_name=f"x{i}")
        for i in range(3):
            c.subscribe(topic, "one", i, subType="Shared")
        for i in range(3):
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=i)
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=i)


@scenario
def unacked_limits_of_both_levels(s):
    ns = namespace(s)
    s.http("POST", f"/admin/v2/namespaces/{ns}/maxUnackedMessagesPerConsumer", 2, quietly=True)
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, "sub", 1, 100, subType="Shared")
    published(s, topic, 20)
    held = drained(c)
    s.note("of the namespace", len(held))
    for limit in (5, 0):
        s.call("POST", rest(topic, "/maxUnackedMessagesOnConsumer"), limit)
        time.sleep(1.2)
        more = drained(c)
        s.note("before an ack", len(more))
        ack(c, *(f.message_id for f in held + more))
        held = drained(c)
        s.note("after an ack", len(held))


@scenario
def schema_strategies_of_both_levels(s):
    ns = namespace(s)
    topic = s.topic("t", ns)
    c = s.connect()

    def bring(text, i):
        c.producer(topic, i, producer_name=f"p{i}", schema={"name": "s", "type": "Avro", "schema_data": text})

    one, two, other = avro(("a", "int")), avro(("a", "int"), ("b", "string")), avro(("a", "string"))
    bring(one, 1)
    s.call("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", "FORWARD")
    time.sleep(1)
    bring(other, 2)
    bring(two, 3)
    s.call("PUT", rest(topic, "/schemaCompatibilityStrategy"), "ALWAYS_COMPATIBLE")
    time.sleep(1)
    bring(other, 4)
    s.call("DELETE", rest(topic, "/schemaCompatibilityStrategy"))
    s.call("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", "ALWAYS_INCOMPATIBLE")
    time.sleep(1)
    bring(one, 5)
    bring(avro(("z", "long")), 6)
    s.call("PUT", f"/admin/v2/namespaces/{ns}/schemaAutoUpdateCompatibilityStrategy", "AutoUpdateDisabled")
    s.call("GET", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", keep=True)
    s.call("GET", rest(topic, "/schemaCompatibilityStrategy?applied=true"), keep=True)


@scenario
def expiry_of_both_levels(s):
    """A topic's own lifetime of messages; old messages are gone after the next check."""
    ns = namespace(s)
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, "sub", 1, subType="Shared")
    published(s, topic, 3)
    s.call("POST", f"/admin/v2/namespaces/{ns}/messageTTL", 1000)
    s.call("POST", rest(topic, "/messageTTL?messageTTL=1"))
    time.sleep(2)
    s.call("POST", rest(topic, "/subscription/sub/expireMessages/1"))
    time.sleep(0.5)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("left", texts(drained(c)))
    s.call("GET", rest(topic, "/messageTTL?applied=true"), keep=True)


@scenario
def policies_go_with_their_topic(s):
    ns = namespace(s)
    path = f"/admin/v2/persistent/{ns}/t"
    s.lookup(f"persistent://{ns}/t")
    for partitions in (None, 2):
        make = ("PUT", path + "/partitions", 2) if partitions else ("PUT", path)
        s.call(*make)
        s.call("POST", path + "/maxProducers", 3)
        s.call("POST", path + "/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5})
        time.sleep(0.5)
        s.call("GET", path + "/maxProducers", keep=True)
        s.call("DELETE", path + ("/partitions" if partitions else "") + "?force=true")
        s.call("GET", path + "/maxProducers", keep=True)
        s.call(*make)
        time.sleep(0.5)
        s.call("GET", path + "/maxProducers", keep=True)
        s.call("GET", path + "/retention?applied=true", keep=True)
        s.call("DELETE", path + ("/partitions" if partitions else "") + "?force=true")


@scenario
def all_policies_of_a_topic_removed_at_once(s):
    ns = namespace(s)
    path = f"/admin/v2/persistent/{ns}/t"
    s.call("PUT", path)
    s.call("POST", path + "/maxProducers", 3)
    s.call("POST", path + "/maxConsumers?isGlobal=true", 3)
    s.call("DELETE", path + "/policies")
    time.sleep(0.5)
    s.call("GET", path + "/maxProducers", keep=True)
    s.call("GET", path + "/maxConsumers?isGlobal=true", keep=True)
    s.call("DELETE", path + "/policies")
    s.call("DELETE", path + "-none/policies")


@scenario
def policies_of_a_partitioned_topic_hold_for_each_partition(s):
    ns = namespace(s)
    path = f"/admin/v2/persistent/{ns}/p"
    s.call("PUT", path + "/partitions", 2)
    s.call("POST", path + "/maxProducers", 1)
    s.call("POST", path + "/subscriptionTypesEnabled", ["Shared"])
    time.sleep(1.2)
    c = s.connect()
    for part in range(2):
        topic = f"persistent://{ns}/p-partition-{part}"
        s.lookup(topic)
        c.producer(topic, 10 * part, producer_name="a")
        c.producer(topic, 10 * part + 1, producer_name="b")
        c.subscribe(topic, "s", 10 * part, subType="Shared")
        c.subscribe(topic, "x", 10 * part + 1, subType="Exclusive")
    s.call("POST", path + "/partitions", 3)
    topic = f"persistent://{ns}/p-partition-2"
    s.lookup(topic)
    c.producer(topic, 20, producer_name="a")
    c.producer(topic, 21, producer_name="b")


@scenario
def offload_policies_of_a_topic_and_its_namespace_together(s):
    ns = namespace(s)
    n, t = f"/admin/v2/namespaces/{ns}/offloadPolicies", rest(s.topic(namespace=ns), "/offloadPolicies")
    s.call("PUT", t.removesuffix("/offloadPolicies"))
    places = {"fileSystemURI": "u", "fileSystemProfilePath": "p", "managedLedgerOffloadMaxThreads": 5}
    extra = {"managedLedgerExtraConfigurations": {"a": "1", "b": "2"}}
    s.call("POST", n, {"managedLedgerOffloadDriver": "filesystem"} | places | extra)
    s.call("GET", t + "?applied=true", keep=True)
    extra = {"managedLedgerExtraConfigurations": {"b": "3"}}
    own = {"managedLedgerOffloadDriver": "filesystem", "managedLedgerOffloadThresholdInBytes": 7}
    s.call("POST", t, own | extra)
    s.eventually("set", lambda: s.http("GET", t, quietly=True)[1])
    s.call("GET", t, keep=True)
    s.call("GET", t + "?applied=true", keep=True)
    s.call("DELETE", n.replace("offloadPolicies", "removeOffloadPolicies"))
    s.call("GET", t + "?applied=true", keep=True)
