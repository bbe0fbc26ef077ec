"""Each policy of a topic over REST, of this cluster and of all clusters. One scenario for each, made from a table."""

import time

from harness.steps import namespace, rest
from transcript import scenario

RATE = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": 20, "ratePeriodInSecond": 1}
RATES = ({}, {"dispatchThrottlingRateInMsg": -1}, {"relativeToPublishRate": True, "ratePeriodInSecond": 0})
NUMBERS = (0, -1, "7", 1.5, "x", 2**31)
SAVING = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
# path -> (method that sets it, a value, other values)
POLICIES = {
    "retention": (
        "POST",
        {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5},
        ({"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}, {"retentionTimeInMinutes": 7}, {}),
    ),
    "persistence": ("POST", SAVING, ({}, SAVING | {"bookkeeperAckQuorum": 0}, SAVING | {"bookkeeperWriteQuorum": 2})),
    "delayedDelivery": ("POST", {"active": True, "tickTime": 2000}, ({}, {"active": True, "tickTime": -5})),
    "inactiveTopicPolicies": (
        "POST",
        {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 100},
        ({}, {"inactiveTopicDeleteMode": "other"}),
    ),
    "dispatchRate": ("POST", RATE, RATES),
    "subscriptionDispatchRate": ("POST", RATE, RATES),
    "replicatorDispatchRate": ("POST", RATE, RATES),
    "publishRate": ("POST", {"publishThrottlingRateInMsg": 1000}, ({}, {"publishThrottlingRateInByte": 5})),
    "subscribeRate": ("POST", {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 20}, ({},)),
    "deduplicationEnabled": ("POST", True, (False, 1, "true", "x")),
    "deduplicationSnapshotInterval": ("POST", 60, (0, -1, "x")),
    "compactionThreshold": ("POST", 1000, (0, -1, 1.5, "x")),
    "maxProducers": ("POST", 3, NUMBERS),
    "maxConsumers": ("POST", 3, NUMBERS),
    "maxConsumersPerSubscription": ("POST", 3, NUMBERS),
    "maxSubscriptionsPerTopic": ("POST", 3, NUMBERS),
    "maxUnackedMessagesOnConsumer": ("POST", 3, (0, -1, 1.5, "x")),
    "maxUnackedMessagesOnSubscription": ("POST", 3, (0, -1, 1.5, "x")),
    "maxMessageSize": ("POST", 1000, (0, -1, "x", 2**31 - 1)),
    "schemaCompatibilityStrategy": ("PUT", "FULL", ("other", "ALWAYS_COMPATIBLE", "UNDEFINED")),
    "schemaValidationEnforced": ("POST", True, (False, 1, "x")),
    "autoSubscriptionCreation": ("POST", {"allowAutoSubscriptionCreation": False}, ({},)),
    "subscriptionTypesEnabled": (
        "POST",
        ["Exclusive"],
        (["Shared", "Shared"], ["Exclusive", "Key_Shared", "Shared", "Failover"], ["other"]),
    ),
    "dispatcherPauseOnAckStatePersistent": ("POST", None, ()),
    "entryFilters": ("POST", {"entryFilterNames": "none"}, ({"entryFilterNames": ""},)),
    "replication": ("POST", ["standalone"], ([], ["nowhere"], ["standalone", "standalone"])),
    "messageTTL?messageTTL=60": ("POST", None, ()),
    "subscriptionExpirationTime?subscriptionExpirationTime=60": ("POST", None, ()),
}
NOT_FOR_ALL_CLUSTERS = ("schemaCompatibilityStrategy", "schemaValidationEnforced", "replication")
NOT_REMOVED = ("schemaValidationEnforced",)
NULLS = ("retention", "publishRate", "subscribeRate", "deduplicationEnabled", "maxUnackedMessagesOnConsumer")


def in_order(value):
    """Sets come in any order."""
    return sorted(value) if isinstance(value, list) else value


def new_topic(s, name="t"):
    path = f"/admin/v2/persistent/public/default/{s.tag}-{name}"
    s.http("PUT", path, quietly=True)
    s.lookup(f"persistent://public/default/{s.tag}-{name}")
    return path


def _declare(path, verb, value, others):
    name, _, query = path.partition("?")

    def one_scope(s):
        """Set, the value in force, nonsense, removed."""
        policy = f"{new_topic(s)}/{name}"
        setting = f"{policy}?{query}" if query else policy
        s.call("GET", policy, keep=True)
        s.call("GET", policy + "?applied=true", keep=True)
        s.call(verb, setting, value)
        s.call("GET", policy, keep=True)
        for other in others:
            s.call(verb, policy, other)
            s.call("GET", policy, keep=in_order)
        if name in NULLS:
            s.call(verb, policy, raw=b"null")
            s.call("GET", policy, keep=True)
        if value is not None:
            s.call(verb, policy, raw=b"{bad")
        if query:
            for text in ("0", "-1", "x", ""):
                s.call(verb, f"{policy}?{name}={text}")
                s.call("GET", policy, keep=True)
        s.call(verb, setting, value)
        s.call("GET", policy + "?applied=true", keep=True)
        if name not in NOT_REMOVED:
            s.call("DELETE", policy)
            s.call("GET", policy, keep=True)
            s.call("GET", policy + "?applied=true", keep=True)

    def both_scopes(s):
        """A policy of all clusters does not show as a policy of this cluster, and the reverse."""
        policy = f"{new_topic(s)}/{name}"
        s.call(verb, f"{policy}?isGlobal=true&{query}", value)
        for asked in ("", "?applied=true", "?isGlobal=true", "?isGlobal=true&applied=true"):
            s.call("GET", policy + asked, keep=True)
        s.call("DELETE", policy)
        s.call("GET", policy + "?isGlobal=true", keep=True)
        s.call("DELETE", policy + "?isGlobal=true")
        s.call("GET", policy + "?isGlobal=true", keep=True)

    for kind, run in (("", one_scope), ("_for_all_clusters", both_scopes)):
        if kind and name in NOT_FOR_ALL_CLUSTERS:
            continue
        run.__name__ = run.__qualname__ = f"topic_policy_{name}{kind}"
        scenario(run)


@scenario
def topic_policies_all_removed_at_once(s):
    topic = new_topic(s)
    s.call("POST", topic + "/maxConsumers", 3)
    s.call("POST", topic + "/maxConsumers?isGlobal=true", 5)
    s.call("POST", topic + "/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1})
    s.call("DELETE", topic + "/policies")
    for asked in ("/maxConsumers", "/maxConsumers?isGlobal=true", "/retention"):
        s.call("GET", topic + asked, keep=True)
    s.call("DELETE", topic + "unknown/policies")


@scenario
def topic_policies_of_partitions_are_those_of_the_topic(s):
    topic = f"/admin/v2/persistent/public/default/{s.tag}-p"
    s.call("PUT", topic + "/partitions", 2)
    s.call("POST", topic + "/maxConsumers", 3)
    s.call("GET", topic + "/maxConsumers", keep=True)
    for method, body in (("GET", None), ("POST", 4), ("DELETE", None)):
        s.call(method, topic + "-partition-0/maxConsumers", body)
    s.call("GET", topic + "/maxConsumers", keep=True)


@scenario
def topic_policies_of_a_non_persistent_topic(s):
    topic = f"/admin/v2/non-persistent/public/default/{s.tag}-n"
    s.call("PUT", topic)
    s.call("POST", topic + "/maxConsumers", 3)
    s.call("GET", topic + "/maxConsumers", keep=True)
    s.call("GET", topic + "/maxConsumers?applied=true", keep=True)
    s.call("POST", topic + "/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1})
    s.call("GET", topic + "/retention", keep=True)
    s.call("DELETE", topic + "/maxConsumers")
    s.call("GET", topic + "/maxConsumers", keep=True)


@scenario
def topic_backlog_quotas(s):
    topic = new_topic(s)
    s.call("GET", topic + "/backlogQuotaMap", keep=True)
    s.call("GET", topic + "/backlogQuotaMap?applied=true", keep=True)
    s.call("POST", topic + "/backlogQuota", {"limitSize": 1000, "policy": "producer_exception"})
    s.call(
        "POST",
        topic + "/backlogQuota?backlogQuotaType=message_age",
        {"limitTime": 100, "policy": "consumer_backlog_eviction"},
    )
    s.call("GET", topic + "/backlogQuotaMap", keep=True)
    s.call("GET", topic + "/backlogQuotaMap?isGlobal=true", keep=True)
    s.call("POST", topic + "/backlogQuota?isGlobal=true", {"limitSize": 7, "policy": "producer_request_hold"})
    s.call("GET", topic + "/backlogQuotaMap?isGlobal=true", keep=True)
    s.call("DELETE", topic + "/backlogQuota")
    s.call("GET", topic + "/backlogQuotaMap", keep=True)
    s.call("POST", topic + "/backlogQuota", {"limitSize": 1000})


@scenario
def topic_rate_of_one_subscription(s):
    topic = new_topic(s)
    s.call("GET", topic + "/sub/dispatchRate", keep=True)
    s.call("GET", topic + "/sub/dispatchRate?applied=true", keep=True)
    s.call("POST", topic + "/sub/dispatchRate", RATE)
    s.call("GET", topic + "/sub/dispatchRate", keep=True)
    s.call("GET", topic + "/other/dispatchRate", keep=True)
    s.call("DELETE", topic + "/sub/dispatchRate")
    s.call("GET", topic + "/sub/dispatchRate", keep=True)


@scenario
def topic_quota_and_retention_must_fit_those_of_the_namespace(s):
    ns = s.namespace()
    n, t = "/admin/v2/namespaces/" + ns, f"/admin/v2/persistent/{ns}/t"
    s.call("PUT", n, {})
    s.lookup(f"persistent://{ns}/t")
    s.call("PUT", t)
    s.call("POST", n + "/backlogQuota", {"limitSize": 2 << 20, "policy": "producer_exception"})
    s.call("GET", t + "/backlogQuotaMap?applied=true", keep=True)
    s.call("POST", t + "/retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 1})
    s.call("GET", t + "/retention", keep=True)
    s.call("POST", t + "/retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 3})
    s.call("POST", t + "/backlogQuota", {"limitSize": 5 << 20, "policy": "producer_exception"})
    s.call("GET", t + "/backlogQuotaMap?applied=true", keep=True)


@scenario
def topic_policies_with_applied_values(s):
    ns = s.namespace()
    n = "/admin/v2/namespaces/" + ns
    s.call("PUT", n)
    t = f"/admin/v2/persistent/{ns}/t"
    s.call("PUT", t)
    values = {"retention": {"retentionTimeInMinutes": 5, "retentionSizeInMB": 6}, "messageTTL": 77, "maxProducersPerTopic": 3, "maxConsumersPerTopic": 4, "maxSubscriptionsPerTopic": 5, "maxUnackedMessagesPerConsumer": 6, "maxUnackedMessagesPerSubscription": 7, "deduplication": True,
              "compactionThreshold": 100, "dispatchRate": {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": 2, "ratePeriodInSecond": 3}, "subscribeRate": {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 2}, "subscriptionExpirationTime": 9,
              "inactiveTopicPolicies": {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "maxInactiveDurationSeconds": 99, "deleteWhileInactive": True}, "delayedDelivery": {"tickTime": 5, "active": False}}  # fmt: skip
    reads = ("retention", "messageTTL", "maxProducers", "maxConsumers", "maxSubscriptionsPerTopic", "maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription", "deduplicationEnabled", "compactionThreshold", "dispatchRate", "subscriptionDispatchRate", "replicatorDispatchRate", "subscribeRate",
             "subscriptionExpirationTime", "inactiveTopicPolicies", "delayedDelivery", "persistence", "backlogQuotaMap", "publishRate", "maxConsumersPerSubscription", "maxMessageSize", "schemaCompatibilityStrategy", "offloadPolicies", "replication", "autoSubscriptionCreation", "entryFilters", "deduplicationSnapshotInterval",
             "subscriptionTypesEnabled", "schemaValidationEnforced", "dispatcherPauseOnAckStatePersistent")  # fmt: skip
    for read in reads:
        s.call("GET", f"{t}/{read}?applied=true", keep=True)
    for path, value in values.items():
        s.call("POST", f"{n}/{path}", value)
    for read in reads:
        s.call("GET", f"{t}/{read}?applied=true", keep=True)
        s.call("GET", f"{t}/{read}?applied=false", keep=True)


@scenario
def topic_policies_of_partitioned_topics(s):
    topic = s.topic()
    t = rest(topic)
    s.call("PUT", t + "/partitions", 2)
    for policy, body in (
        ("retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}),
        ("maxProducers", 1),
        ("deduplicationEnabled", True),
        ("compactionThreshold", 5),
    ):
        s.call("POST", f"{t}/{policy}", body)
        s.eventually("set", lambda policy=policy, body=body: s.http("GET", f"{t}/{policy}", quietly=True)[1] == body)
        s.call("GET", f"{t}-partition-0/{policy}", keep=True)
        s.call("POST", f"{t}-partition-0/{policy}", body)
        s.call("DELETE", f"{t}-partition-0/{policy}")
        s.call("DELETE", f"{t}/{policy}")
    s.lookup(topic + "-partition-0")
    s.call("POST", t + "/maxProducers", 1)
    s.eventually("set", lambda: s.http("GET", t + "/maxProducers", quietly=True)[1] == 1)


@scenario
def subscription_types_of_a_topic_with_other_policies(s):
    t = rest(s.topic(namespace=namespace(s)))
    s.call("PUT", t)
    for scope in ("", "?isGlobal=true"):
        types = f"{t}/subscriptionTypesEnabled{scope}"
        s.call("DELETE", f"{t}/maxProducers{scope}")
        s.call("GET", types, keep=True)
        s.call("POST", f"{t}/maxProducers{scope}", 3)
        s.eventually("set", lambda scope=scope: s.http("GET", f"{t}/maxProducers{scope}", quietly=True)[1] == 3)
        s.call("GET", types, keep=True)
        s.call("DELETE", f"{t}/maxProducers{scope}")
        s.eventually("removed", lambda scope=scope: s.http("GET", f"{t}/maxProducers{scope}", quietly=True)[1] is None)
        s.call("GET", types, keep=True)


@scenario
def subscription_types_for_all_clusters_beside_own_policies(s):
    topic = s.topic(namespace=namespace(s))
    t, c = rest(topic), s.connect()
    s.call("PUT", t)
    s.call("POST", f"{t}/maxProducers", 3)
    s.call("POST", f"{t}/subscriptionTypesEnabled?isGlobal=true", ["Shared"])
    s.eventually("set", lambda: s.http("GET", f"{t}/subscriptionTypesEnabled?isGlobal=true", quietly=True)[1])
    time.sleep(0.5)
    c.subscribe(topic, "sub", 1)
    c.subscribe(topic, "sub", 2, subType="Shared")


for _path, _row in POLICIES.items():
    _declare(_path, *_row)
