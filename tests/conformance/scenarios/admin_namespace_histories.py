"""All policies of a namespace in one answer, after each change, removal and refused value."""

from harness.steps import namespace
from transcript import scenario

RATE = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": 20, "ratePeriodInSecond": 1}
QUORUMS = {
    "bookkeeperEnsemble": 1,
    "bookkeeperWriteQuorum": 1,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 0.5,
}
HISTORIES = {
    "of_time_and_size": (
        ("POST", "retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}),
        ("POST", "messageTTL", 60),
        ("POST", "subscriptionExpirationTime", 5),
        ("POST", "backlogQuota", {"limitSize": 1000, "policy": "producer_exception"}),
        ("POST", "backlogQuota?backlogQuotaType=message_age", {"limitTime": 10, "policy": "consumer_backlog_eviction"}),
        ("DELETE", "backlogQuota", None),
        ("DELETE", "retention", None),
        ("DELETE", "messageTTL", None),
        ("DELETE", "subscriptionExpirationTime", None),
        ("POST", "messageTTL", 0),
        ("POST", "messageTTL", -1),
    ),
    "of_rates": (
        ("POST", "dispatchRate", RATE),
        ("POST", "subscriptionDispatchRate", RATE),
        ("POST", "replicatorDispatchRate", RATE),
        ("POST", "publishRate", {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": 6}),
        ("POST", "subscribeRate", {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 30}),
        ("DELETE", "dispatchRate", None),
        ("DELETE", "subscriptionDispatchRate", None),
        ("DELETE", "replicatorDispatchRate", None),
        ("DELETE", "publishRate", None),
        ("DELETE", "subscribeRate", None),
        ("POST", "dispatchRate", {}),
        ("POST", "publishRate", {}),
    ),
    "of_limits": (
        ("POST", "maxProducersPerTopic", 3),
        ("POST", "maxConsumersPerTopic", 0),
        ("POST", "maxConsumersPerSubscription", 2),
        ("POST", "maxSubscriptionsPerTopic", 2),
        ("POST", "maxTopicsPerNamespace", 9),
        ("POST", "maxUnackedMessagesPerConsumer", 7),
        ("POST", "maxUnackedMessagesPerSubscription", 7),
        ("POST", "maxProducersPerTopic", -1),
        ("DELETE", "maxProducersPerTopic", None),
        ("DELETE", "maxConsumersPerTopic", None),
        ("DELETE", "maxConsumersPerSubscription", None),
        ("DELETE", "maxSubscriptionsPerTopic", None),
        ("DELETE", "maxTopicsPerNamespace", None),
        ("DELETE", "maxUnackedMessagesPerConsumer", None),
        ("DELETE", "maxUnackedMessagesPerSubscription", None),
    ),
    "of_storage": (
        ("POST", "persistence", QUORUMS),
        ("POST", "persistence", QUORUMS | {"managedLedgerStorageClassName": "bookkeeper"}),
        ("POST", "persistence", QUORUMS | {"bookkeeperWriteQuorum": 2}),
        ("DELETE", "persistence", None),
        ("PUT", "compactionThreshold", 1000),
        ("DELETE", "compactionThreshold", None),
        ("PUT", "offloadThreshold", 5),
        ("PUT", "offloadDeletionLagMs", 6),
        ("PUT", "offloadThresholdInSeconds", 7),
        ("DELETE", "offloadDeletionLagMs", None),
        (
            "POST",
            "offloadPolicies",
            {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": "x", "fileSystemProfilePath": "y"},
        ),
        ("DELETE", "removeOffloadPolicies", None),
        (
            "POST",
            "inactiveTopicPolicies",
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 9,
                "deleteWhileInactive": True,
            },
        ),
        ("DELETE", "inactiveTopicPolicies", None),
    ),
    "of_switches": (
        ("POST", "deduplication", True),
        ("POST", "deduplicationSnapshotInterval", 50),
        ("POST", "encryptionRequired", True),
        ("POST", "delayedDelivery", {"active": True, "tickTime": 7}),
        ("POST", "autoTopicCreation", {"allowAutoTopicCreation": False}),
        ("POST", "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}),
        ("POST", "subscriptionTypesEnabled", ["Shared", "Failover"]),
        ("POST", "subscriptionAuthMode", "Prefix"),
        ("POST", "dispatcherPauseOnAckStatePersistent", None),
        ("DELETE", "deduplication", None),
        ("DELETE", "deduplicationSnapshotInterval", None),
        ("POST", "deduplicationSnapshotInterval", None),
        ("DELETE", "delayedDelivery", None),
        ("DELETE", "autoTopicCreation", None),
        ("DELETE", "autoSubscriptionCreation", None),
        ("DELETE", "subscriptionTypesEnabled", None),
        ("DELETE", "dispatcherPauseOnAckStatePersistent", None),
    ),
    "of_schemas_and_names": (
        ("PUT", "schemaCompatibilityStrategy", "FORWARD"),
        ("PUT", "schemaCompatibilityStrategy", "NONE_OF_THEM"),
        ("PUT", "schemaAutoUpdateCompatibilityStrategy", "Forward"),
        ("POST", "schemaValidationEnforced", True),
        ("POST", "isAllowAutoUpdateSchema", False),
        ("PUT", "properties", {"a": "b"}),
        ("PUT", "property/c/d", None),
        ("DELETE", "property/a", None),
        ("DELETE", "properties", None),
        ("POST", "permissions/role", ["produce"]),
        ("DELETE", "permissions/role", None),
        ("POST", "entryFilters", {"entryFilterNames": "x"}),
        ("DELETE", "entryFilters", None),
        ("POST", "antiAffinity", "group"),
        ("DELETE", "antiAffinity", None),
        ("POST", "replication", ["standalone"]),
        ("POST", "allowedClusters", ["standalone"]),
        ("POST", "resourcegroup/none", None),
        ("DELETE", "resourcegroup", None),
    ),
}


def declare(name, steps):
    def history(s):
        base = f"/admin/v2/namespaces/{namespace(s)}"
        before = {}
        for method, path, body in (("GET", "", None), *steps):
            if path:
                s.call(method, f"{base}/{path}", body)
            found = s.http("GET", base, quietly=True)[1]
            found = {k: v for k, v in found.items() if k != "bundles"} if isinstance(found, dict) else {"text": found}
            changed = {k: v for k, v in found.items() if before.get(k, "absent") != v}
            s.note("changed", changed | {k: "gone" for k in before if k not in found})
            before = found
        for path in dict.fromkeys(path.partition("?")[0].partition("/")[0] for _, path, _ in steps):
            s.call("GET", f"{base}/{path}", keep=True)

    history.__name__ = f"policies_of_a_namespace_{name}_along_a_history"
    scenario(history)


for each, steps_of_it in HISTORIES.items():
    declare(each, steps_of_it)


@scenario
def policies_of_a_new_namespace_given_at_once(s):
    for i, body in enumerate(
        (
            {"retention_policies": {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}, "message_ttl_in_seconds": 7},
            {"bundles": {"numBundles": 2}, "max_producers_per_topic": 3, "deduplicationEnabled": True},
            {
                "replication_clusters": ["standalone"],
                "schema_compatibility_strategy": "FULL",
                "encryption_required": True,
            },
            {"backlog_quota_map": {"destination_storage": {"limitSize": 10, "policy": "producer_exception"}}},
            {"max_producers_per_topic": "x"},
            {"unknown": 1},
            {"properties": {"a": "b"}, "is_allow_auto_update_schema": False},
        )
    ):
        base = f"/admin/v2/namespaces/{s.namespace(str(i))}"
        s.call("PUT", base, body)
        s.call("GET", base, keep=lambda found: {k: v for k, v in found.items() if k != "bundles"})
