"""Each policy of a namespace over REST: unset, set, set to nonsense, removed. One scenario for each, made from a table."""

from transcript import scenario

RATE = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": 20, "ratePeriodInSecond": 1}
RATES = ({}, {"dispatchThrottlingRateInMsg": -1}, {"relativeToPublishRate": True, "ratePeriodInSecond": 0}, {"x": 1})
NUMBERS = (0, -1, "7", 1.5, "x", [], 2**31)
WIDE = (0, -1, "7", 1.5, "x")
TRUTHS = (False, 1, "true", "x", {})
SAVING = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
TOPICS = {"allowAutoTopicCreation": True}
# path -> (method that sets it, a value, other values, whether DELETE is tried, whether null is tried)
POLICIES = {
    "retention": (
        "POST",
        {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5},
        (
            {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
            {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5},
            {"retentionTimeInMinutes": -2, "retentionSizeInMB": 5},
            {"retentionTimeInMinutes": 7},
            {},
            [],
        ),
        True,
        True,
    ),
    "messageTTL": ("POST", 60, NUMBERS, True, True),
    "subscriptionExpirationTime": ("POST", 60, NUMBERS, True, True),
    "deduplication": ("POST", True, TRUTHS, True, True),
    "deduplicationSnapshotInterval": ("POST", 60, (0, -1, 1.5, "x"), False, True),
    "autoTopicCreation": (
        "POST",
        {"allowAutoTopicCreation": False},
        (
            TOPICS | {"topicType": "partitioned"},
            TOPICS | {"topicType": "partitioned", "defaultNumPartitions": 3},
            TOPICS | {"topicType": "partitioned", "defaultNumPartitions": 0},
            TOPICS | {"topicType": "non-partitioned"},
            TOPICS | {"topicType": "non-partitioned", "defaultNumPartitions": 3},
            TOPICS | {"topicType": "other"},
            {},
        ),
        True,
        True,
    ),
    "autoSubscriptionCreation": (
        "POST",
        {"allowAutoSubscriptionCreation": False},
        ({"allowAutoSubscriptionCreation": True}, {}, 1),
        True,
        True,
    ),
    "persistence": (
        "POST",
        SAVING | {"managedLedgerMaxMarkDeleteRate": 0.5},
        (
            {},
            SAVING | {"bookkeeperWriteQuorum": 2},
            SAVING | {"bookkeeperAckQuorum": 0},
            SAVING | {"managedLedgerMaxMarkDeleteRate": -3},
        ),
        True,
        True,
    ),
    "delayedDelivery": (
        "POST",
        {"active": True, "tickTime": 2000},
        ({}, {"active": True, "tickTime": -5}, {"active": True, "tickTime": 5, "maxDeliveryDelayInMillis": 50}),
        True,
        True,
    ),
    "inactiveTopicPolicies": (
        "POST",
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 100,
            "deleteWhileInactive": True,
        },
        (
            {},
            {"inactiveTopicDeleteMode": "other"},
            {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "deleteWhileInactive": True},
        ),
        True,
        True,
    ),
    "dispatchRate": ("POST", RATE, RATES, True, True),
    "subscriptionDispatchRate": ("POST", RATE, RATES, True, True),
    "replicatorDispatchRate": ("POST", RATE, RATES, True, True),
    "publishRate": (
        "POST",
        {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": 2000},
        ({}, {"publishThrottlingRateInMsg": 5}),
        True,
        True,
    ),
    "subscribeRate": (
        "POST",
        {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 20},
        ({}, {"subscribeThrottlingRatePerConsumer": -1}, {"subscribeThrottlingRatePerConsumer": 5}),
        True,
        True,
    ),
    "compactionThreshold": ("PUT", 1000, WIDE, True, True),
    "maxProducersPerTopic": ("POST", 3, NUMBERS, True, True),
    "maxConsumersPerTopic": ("POST", 3, NUMBERS, True, True),
    "maxConsumersPerSubscription": ("POST", 3, NUMBERS, True, True),
    "maxUnackedMessagesPerConsumer": ("POST", 3, NUMBERS, True, True),
    "maxUnackedMessagesPerSubscription": ("POST", 3, NUMBERS, True, True),
    "maxSubscriptionsPerTopic": ("POST", 3, NUMBERS, True, True),
    "maxTopicsPerNamespace": ("POST", 3, NUMBERS, True, True),
    "encryptionRequired": ("POST", True, TRUTHS, False, True),
    "isAllowAutoUpdateSchema": ("POST", False, TRUTHS, False, True),
    "schemaValidationEnforced": ("POST", True, TRUTHS, False, True),
    "schemaCompatibilityStrategy": ("PUT", "FULL", ("other", "ALWAYS_COMPATIBLE", "UNDEFINED"), False, True),
    "schemaAutoUpdateCompatibilityStrategy": ("PUT", "Full", ("other", "AutoUpdateDisabled"), False, True),
    "subscriptionAuthMode": ("POST", "Prefix", ("None", "other", "prefix"), False, True),
    "subscriptionTypesEnabled": (
        "POST",
        ["Exclusive"],
        (["Shared", "Shared"], ["Shared", "Key_Shared", "Failover", "Exclusive"], ["other"], []),
        True,
        False,
    ),
    "offloadThreshold": ("PUT", 1000, WIDE, False, True),
    "offloadThresholdInSeconds": ("PUT", 1000, WIDE, False, True),
    "offloadDeletionLagMs": ("PUT", 1000, WIDE, True, True),
    "entryFilters": ("POST", {"entryFilterNames": "none"}, ({"entryFilterNames": ""}, {}), True, True),
    "allowedTopicPropertyKeysForMetrics": ("POST", ["a"], ([],), True, True),
    "replication": ("POST", ["standalone"], ([], ["nowhere"], ["standalone", "standalone"]), False, True),
    "dispatcherPauseOnAckStatePersistent": ("POST", None, (), True, False),
}


def in_order(value):
    """Sets come in any order."""
    return sorted(value) if isinstance(value, list) else value


def round_of_a_policy(s, base, path, verb, value, others, removable, nullable):
    """Unset, set, nonsense, removed, with a read after each step."""
    policy = f"{base}/{path}"
    s.call("GET", policy, keep=True)
    s.call(verb, policy, value)
    s.call("GET", policy, keep=True)
    for other in others:
        s.call(verb, policy, other)
        s.call("GET", policy, keep=in_order)
    if nullable:
        s.call(verb, policy, raw=b"null")
        s.call("GET", policy, keep=True)
    if value is not None:
        s.call(verb, policy, raw=b"{bad")
        s.call(verb, policy, raw=b"1", headers={"Content-Type": "text/plain"})
        s.call(verb, policy, value)
    if removable:
        s.call("DELETE", policy)
        s.call("GET", policy, keep=True)
        s.call("DELETE", policy)


def _declare(path, row):
    def run(s):
        base = "/admin/v2/namespaces/" + s.namespace()
        s.http("PUT", base, {}, quietly=True)
        round_of_a_policy(s, base, path, *row)

    run.__name__ = run.__qualname__ = f"namespace_policy_{path}"
    scenario(run)


for _path, _row in POLICIES.items():
    _declare(_path, _row)


@scenario
def namespace_policies_show_in_the_namespace(s):
    """The name of each policy there."""
    base = "/admin/v2/namespaces/" + s.namespace()
    s.http("PUT", base, {}, quietly=True)
    for path, (verb, value, *_) in POLICIES.items():
        if path not in ("subscriptionTypesEnabled", "entryFilters"):
            s.call(verb, f"{base}/{path}", value)
    s.call("GET", base, keep=True)
    for path, (_, _, _, removable, _) in POLICIES.items():
        if removable:
            s.call("DELETE", f"{base}/{path}")
    s.call("GET", base, keep=True)


@scenario
def namespace_backlog_quota_in_every_form(s):
    base = "/admin/v2/namespaces/" + s.namespace()
    s.http("PUT", base, {}, quietly=True)
    for body in (
        {"limitSize": 1000, "policy": "producer_exception"},
        {"policy": "consumer_backlog_eviction"},
        {"limit": 7, "policy": "producer_request_hold"},
        {"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"},
        {"policy": "other"},
        {},
    ):
        s.call("POST", base + "/backlogQuota", body)
        s.call("GET", base + "/backlogQuotaMap", keep=True)
    s.call("POST", base + "/backlogQuota?backlogQuotaType=other", {"policy": "producer_exception"})
    s.call("DELETE", base + "/backlogQuota?backlogQuotaType=other")
    s.call("DELETE", base + "/backlogQuota")
    s.call("GET", base + "/backlogQuotaMap", keep=True)


@scenario
def namespace_quota_and_retention_must_fit(s):
    base = "/admin/v2/namespaces/" + s.namespace()
    s.http("PUT", base, {}, quietly=True)
    s.call("POST", base + "/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1})
    s.call("POST", base + "/backlogQuota", {"limitSize": 1 << 20, "policy": "producer_exception"})
    s.call("POST", base + "/backlogQuota", {"limitSize": 1000, "policy": "producer_exception"})
    s.call("POST", base + "/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2})
    s.call("GET", base + "/retention", keep=True)
    s.call("GET", base + "/backlogQuotaMap", keep=True)


@scenario
def namespace_offload_policies(s):
    base = "/admin/v2/namespaces/" + s.namespace()
    s.http("PUT", base, {}, quietly=True)
    bucket = {"s3ManagedLedgerOffloadBucket": "b", "s3ManagedLedgerOffloadRegion": "r"}
    s.call("GET", base + "/offloadPolicies", keep=True)
    for body in (
        {},
        {"managedLedgerOffloadDriver": "other"},
        {"managedLedgerOffloadDriver": "aws-s3"},
        {"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadThresholdInBytes": 100} | bucket,
    ):
        s.call("POST", base + "/offloadPolicies", body)
        s.call("GET", base + "/offloadPolicies", keep=True)
    s.call("GET", base + "/offloadThreshold", keep=True)
    s.call("DELETE", base + "/removeOffloadPolicies")
    s.call("GET", base + "/offloadPolicies", keep=True)
    s.call("GET", base + "/offloadThreshold", keep=True)


@scenario
def namespace_created_with_policies(s):
    base = "/admin/v2/namespaces/" + s.namespace()
    for i, (body, keep) in enumerate(
        (
            ({"bundles": {"numBundles": 1}}, ["bundles"]),
            ({"bundles": {"numBundles": 3}}, ["bundles"]),
            ({"bundles": {"numBundles": 0}}, ["bundles"]),
            ({"bundles": {"numBundles": 2, "boundaries": ["0x00000000", "0x10000000", "0xffffffff"]}}, ["bundles"]),
            ({"message_ttl_in_seconds": 5, "max_producers_per_topic": 5}, ["message_ttl_in_seconds"]),
            ({"message_ttl_in_seconds": -1}, ["message_ttl_in_seconds"]),
            ({"retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}}, ["retention_policies"]),
            ({"persistence": SAVING | {"bookkeeperWriteQuorum": 2}}, ["persistence"]),
            ({"properties": {"a": "b"}, "deduplicationEnabled": True}, ["properties", "deduplicationEnabled"]),
            (
                {"backlog_quota_map": {"destination_storage": {"limitSize": 5, "policy": "producer_exception"}}},
                ["backlog_quota_map"],
            ),
            ({"autoTopicCreationOverride": {"allowAutoTopicCreation": False}}, ["autoTopicCreationOverride"]),
            ({"auth_policies": {"namespace_auth": {"r": ["produce"]}}}, ["auth_policies"]),
            ({"unknown": 1}, ["properties"]),
            ({"schema_compatibility_strategy": "other"}, ["schema_compatibility_strategy"]),
            ({"replication_clusters": []}, ["replication_clusters"]),
            ({"replication_clusters": ["nowhere"]}, ["replication_clusters"]),
        )
    ):
        s.call("PUT", f"{base}-{i}", body)
        s.call("GET", f"{base}-{i}", keep=keep)
