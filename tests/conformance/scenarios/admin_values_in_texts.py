"""Bodies of policies whose numbers, truth values and choices are texts, and choices that are numbers."""

from harness.runner import SCENARIOS
from harness.steps import namespace, rest
from transcript import scenario

TEXTS = ('"null"', '" null "', '" "', '"\\u0000"', '"+6"', '"1_0"', '"NULL"', '"true"', '"tRUE"', '" 1 "', '"01"',
         "\ufeff7", '"9999999999"', '"-0"')  # fmt: skip
POLICIES = (
    *(("maxProducersPerTopic", "POST"), ("deduplicationSnapshotInterval", "POST"), ("messageTTL", "POST")),
    *(("deduplication", "POST"), ("isAllowAutoUpdateSchema", "POST"), ("compactionThreshold", "PUT")),
    *(("offloadThreshold", "PUT"), ("subscriptionExpirationTime", "POST"), ("schemaCompatibilityStrategy", "PUT")),
    *(("subscriptionAuthMode", "POST"), ("encryptionRequired", "POST")),
)
OF_TOPICS = (
    *("maxProducers", "maxConsumers", "messageTTL", "deduplicationEnabled", "compactionThreshold"),
    *("maxUnackedMessagesOnConsumer", "deduplicationSnapshotInterval", "maxMessageSize", "maxSubscriptionsPerTopic"),
)
SUBSCRIPTION_TYPES = (
    [0],
    [1],
    [2],
    ["0"],
    ["3"],
    [" Shared "],
    [4],
    ["shared"],
    [True],
    [1.0],
    [[]],
    [-1],
)
INACTIVE = (
    {"inactiveTopicDeleteMode": 1, "maxInactiveDurationSeconds": 5, "deleteWhileInactive": "True"},
    *({"inactiveTopicDeleteMode": each} for each in ("0", "7", 1.0)),
    {"deleteWhileInactive": "tRuE"},
    {"deleteWhileInactive": "null", "maxInactiveDurationSeconds": "null"},
    {"maxInactiveDurationSeconds": " 7 "},
)
NEW_SUBSCRIPTIONS = (
    *("TRUE", "true", " true ", "True", 1, 0, "null", ""),
    *({"allowAutoSubscriptionCreation": each} for each in ("TRUE", "null", "")),
)
QUOTAS = (
    *({"limitSize": 7, "limitTime": 9, "policy": each} for each in (0, "1", "2", 3, "x", True, 1.5, None, "", [1])),
    *({"limitSize": 7, "limitTime": 9, "policy": each} for each in (" producer_exception ", "01")),
    *(
        {"limitSize": "null", "policy": "0"},
        {"limit": "null", "policy": 1},
        {"limit": "", "limitSize": "", "policy": 1},
    ),
)
TOPICS = (
    *({"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": n} for n in ("", "null")),
    {"allowAutoTopicCreation": "null", "topicType": "partitioned", "defaultNumPartitions": "2"},
)
RATES = tuple(
    {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1, "managedLedgerMaxMarkDeleteRate": n}
    for n in ("", "null", " 1.5 ", "1_0", "x", True)
)


def answered(s, method, path, what, **body):
    """Note the status and, but for unfit bodies and failures, the reason; then the value."""
    status, found = s.http(method, path, quietly=True, **body)
    reason = found["reason"] if isinstance(found, dict) and 400 < status < 500 else None
    status_now, now = s.http("GET", path.replace("backlogQuota", "backlogQuotaMap"), quietly=True)
    s.note(what, [status, reason, status_now, now if status_now < 300 else None])


def _declare(level, name, verb):
    def in_texts(s):
        ns = namespace(s)
        path = f"/admin/v2/namespaces/{ns}"
        if level == "topic":
            path = rest(s.topic(namespace=ns))
            s.http("PUT", path, quietly=True)
        for text in TEXTS:
            answered(s, verb, f"{path}/{name}", text, raw=text.encode())

    SCENARIOS[f"policy_in_texts_of_a_{level}_{name}"] = in_texts


for each, method in POLICIES:
    _declare("namespace", each, method)
for each in OF_TOPICS:
    _declare("topic", each, "POST")


def _by_places(name, bodies, *, topics=True):
    def by_places(s):
        ns = namespace(s)
        topic = rest(s.topic(namespace=ns))
        s.http("PUT", topic, quietly=True)
        for body in bodies:
            answered(s, "POST", f"/admin/v2/namespaces/{ns}/{name}", str(body), body=body)
            if topics:
                answered(s, "POST", f"{topic}/{name}", str(body), body=body)

    SCENARIOS[f"choices_and_texts_of_{name}"] = by_places


_by_places("subscriptionTypesEnabled", SUBSCRIPTION_TYPES)
_by_places("inactiveTopicPolicies", INACTIVE)
_by_places("autoSubscriptionCreation", NEW_SUBSCRIPTIONS)
_by_places("backlogQuota", QUOTAS)
_by_places("persistence", RATES)
_by_places("autoTopicCreation", TOPICS, topics=False)


@scenario
def rights_by_their_places(s):
    path = f"/admin/v2/namespaces/{namespace(s)}/permissions"
    for body in ([0], ["1"], [" consume "], [9], ["x"], [None, "produce"], []):
        status, _ = s.http("POST", path + "/r", body, quietly=True)
        s.note(str(body), [status, s.http("GET", path, quietly=True)[1]])
        s.http("DELETE", path + "/r", quietly=True)


@scenario
def unknown_clusters_in_the_order_of_a_hash(s):
    ns = namespace(s)
    topic = rest(s.topic(namespace=ns))
    s.http("PUT", topic, quietly=True)
    path = f"/admin/v2/namespaces/{ns}"
    for body in (
        ["zzz", "standalone", "a"],
        ["standalone", "b", "a", "c"],
        ["q", "a/b", " "],
        ["standalone", "", " x"],
    ):
        for where in (path + "/replication", topic + "/replication", path + "/allowedClusters"):
            status, found = s.http("POST", where, body, quietly=True)
            s.note(str(body), [status, found["reason"]])


@scenario
def property_keys_for_metrics_in_the_order_of_a_hash(s):
    path = f"/admin/v2/namespaces/{namespace(s)}/allowedTopicPropertyKeysForMetrics"
    for body in (
        ["zzz", "standalone", "a", "b", "aa", "ab", "q"],
        list(map(str, range(30, 0, -1))),
        [1, True, "x"],
        [],
    ):
        s.call("POST", path, body)
        s.call("GET", path, keep=True)
