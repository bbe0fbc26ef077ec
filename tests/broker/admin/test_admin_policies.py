"""Policies of namespaces and topics over REST, and the values in force."""

import pytest

from magnetar.broker.settings import Settings
from tests.broker.admin_fakes import open_client

NS = "namespaces/public/default"
TOPIC = "persistent/public/default/t"
RATE = {"dispatchThrottlingRateInMsg": 5}
FULL_RATE = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 0,
}


@pytest.fixture
async def call():
    client = await open_client()
    await client("PUT", TOPIC)
    return client


def kept(answer):
    return answer.json if answer.raw else None


@pytest.mark.parametrize(
    ("path", "verb", "given", "shown", "after_removal"),
    [
        ("messageTTL", "POST", 5, 5, None),
        ("subscriptionExpirationTime", "POST", 5, 5, None),
        ("deduplication", "POST", True, True, None),
        ("retention", "POST", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2}, ..., None),
        ("autoSubscriptionCreation", "POST", {}, {"allowAutoSubscriptionCreation": False}, None),
        (
            "autoTopicCreation",
            "POST",
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
            ...,
            None,
        ),
        ("autoTopicCreation", "POST", {}, {"allowAutoTopicCreation": False}, None),
        ("dispatchRate", "POST", RATE, FULL_RATE, None),
        ("subscriptionDispatchRate", "POST", RATE, FULL_RATE, None),
        ("replicatorDispatchRate", "POST", RATE, FULL_RATE, None),
        (
            "publishRate",
            "POST",
            {"publishThrottlingRateInMsg": 5},
            {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1},
            None,
        ),
        (
            "subscribeRate",
            "POST",
            {"subscribeThrottlingRatePerConsumer": 5},
            {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30},
            None,
        ),
        (
            "persistence",
            "POST",
            {},
            {
                "bookkeeperEnsemble": 2,
                "bookkeeperWriteQuorum": 2,
                "bookkeeperAckQuorum": 2,
                "managedLedgerMaxMarkDeleteRate": -1.0,
            },
            None,
        ),
        (
            "delayedDelivery",
            "POST",
            {"active": True, "tickTime": 5},
            {"tickTime": 5, "active": True, "maxDeliveryDelayInMillis": 0},
            None,
        ),
        (
            "inactiveTopicPolicies",
            "POST",
            {"maxInactiveDurationSeconds": 5},
            {"maxInactiveDurationSeconds": 5, "deleteWhileInactive": False},
            None,
        ),
        ("compactionThreshold", "PUT", 5, 5, None),
        ("maxProducersPerTopic", "POST", 5, 5, None),
        ("maxTopicsPerNamespace", "POST", 5, 5, 0),
        ("subscriptionTypesEnabled", "POST", ["Shared"], ["Shared"], []),
        ("antiAffinity", "POST", "g", "g", None),
        ("offloadDeletionLagMs", "PUT", 5, 5, None),
    ],
)
async def test_namespace_policy_is_set_shown_and_removed(call, path, verb, given, shown, after_removal):
    assert (await call(verb, f"{NS}/{path}", given)).status == 204
    assert kept(await call("GET", f"{NS}/{path}")) == (given if shown is ... else shown)
    assert (await call("DELETE", f"{NS}/{path}")).status == 204
    assert kept(await call("GET", f"{NS}/{path}")) == after_removal


@pytest.mark.parametrize(
    ("path", "verb", "given", "shown"),
    [
        ("encryptionRequired", "POST", True, True),
        ("isAllowAutoUpdateSchema", "POST", False, False),
        ("schemaValidationEnforced", "POST", True, True),
        ("schemaCompatibilityStrategy", "PUT", "BACKWARD", "BACKWARD"),
        ("schemaCompatibilityStrategy", "PUT", "X", "UNDEFINED"),
        ("subscriptionAuthMode", "POST", "Prefix", "Prefix"),
        ("subscriptionAuthMode", "POST", "X", "None"),
        ("deduplicationSnapshotInterval", "POST", 5, 5),
        ("offloadThreshold", "PUT", 5, 5),
    ],
)
async def test_namespace_policy_that_cannot_be_removed(call, path, verb, given, shown):
    assert (await call(verb, f"{NS}/{path}", given)).status == 204
    assert kept(await call("GET", f"{NS}/{path}")) == shown
    assert (await call("DELETE", f"{NS}/{path}")).status == 412
    assert kept(await call("GET", f"{NS}/{path}")) == shown


@pytest.mark.parametrize(
    ("path", "verb", "given", "status"),
    [
        ("messageTTL", "POST", -1, 412),
        ("messageTTL", "POST", ..., 400),
        ("messageTTL", "POST", "x", 400),
        ("deduplication", "POST", "x", 400),
        ("maxConsumersPerTopic", "POST", -1, 412),
        ("compactionThreshold", "PUT", -1, 412),
        ("retention", "POST", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}, 400),
        ("retention", "POST", {"retentionTimeInMinutes": -2, "retentionSizeInMB": 1}, 400),
        ("persistence", "POST", {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2}, 400),
        ("autoTopicCreation", "POST", {"allowAutoTopicCreation": True}, 412),
        ("autoTopicCreation", "POST", {"allowAutoTopicCreation": True, "topicType": "partitioned"}, 412),
        (
            "autoTopicCreation",
            "POST",
            {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 3},
            412,
        ),
        ("entryFilters", "POST", {"entryFilterNames": "a"}, 400),
        ("replication", "POST", ["x"], 403),
        ("replication", "POST", [], 412),
        ("allowedClusters", "POST", [], 400),
        ("offloadPolicies", "POST", {"managedLedgerOffloadDriver": "s3"}, 412),
        ("backlogQuota", "POST", {"limitSize": 5}, 400),
        ("backlogQuota?backlogQuotaType=x", "POST", {"limitSize": 5, "policy": "producer_exception"}, 404),
    ],
)
async def test_bad_namespace_policies_change_nothing(call, path, verb, given, status):
    before = (await call("GET", NS)).json
    given = None if given is ... else given
    assert (await call(verb, f"{NS}/{path}", given)).status == status
    assert (await call("GET", NS)).json == before


async def test_backlog_quotas_of_a_namespace(call):
    assert (await call("GET", NS + "/backlogQuotaMap")).json == {}
    quota = {"limitSize": 1000, "policy": "producer_exception"}
    assert (await call("POST", NS + "/backlogQuota", quota)).status == 204
    age = {"limitSize": -1, "limitTime": 100, "policy": "consumer_backlog_eviction"}
    assert (await call("POST", NS + "/backlogQuota?backlogQuotaType=message_age", age)).status == 204
    assert (await call("GET", NS + "/backlogQuotaMap")).json == {
        "destination_storage": {"limit": 1000, "limitSize": 1000, "limitTime": 0, "policy": "producer_exception"},
        "message_age": {"limit": -1, "limitSize": -1, "limitTime": 100, "policy": "consumer_backlog_eviction"},
    }
    assert (await call("DELETE", NS + "/backlogQuota?backlogQuotaType=message_age")).status == 204
    assert list((await call("GET", NS + "/backlogQuotaMap")).json) == ["destination_storage"]


async def test_a_quota_must_fit_into_the_retention_and_the_reverse(call):
    megabyte = 1024 * 1024
    await call("POST", NS + "/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10})
    too_large = {"limitSize": 11 * megabyte, "policy": "producer_exception"}
    assert (await call("POST", NS + "/backlogQuota", too_large)).status == 412
    assert (await call("POST", NS + "/backlogQuota", too_large | {"limitSize": 9 * megabyte})).status == 204
    small = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}
    assert (await call("POST", NS + "/retention", small)).status == 412


async def test_null_for_a_number_is_zero(call):
    assert (await call("POST", NS + "/messageTTL", 5)).status == 204
    assert (await call("POST", NS + "/messageTTL", raw=b"null")).status == 204
    assert (await call("GET", NS + "/messageTTL")).json == 0


async def test_unknown_namespace_is_404_for_every_policy(call):
    for path in ("retention", "messageTTL", "backlogQuotaMap", "replication", "permissions", "bundles", "properties"):
        assert (await call("GET", f"namespaces/public/none/{path}")).status == 404


# --- topics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "verb", "given", "applied_before"),
    [
        (
            "retention",
            "POST",
            {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2},
            {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
        ),
        ("maxProducers", "POST", 5, 0),
        ("maxConsumers", "POST", 5, 0),
        ("maxUnackedMessagesOnConsumer", "POST", 5, 50000),
        ("maxUnackedMessagesOnSubscription", "POST", 5, 200000),
        ("compactionThreshold", "POST", 5, 0),
        ("deduplicationEnabled", "POST", True, False),
        ("deduplicationSnapshotInterval", "POST", 5, None),
        (
            "delayedDelivery",
            "POST",
            {"tickTime": 5, "active": True, "maxDeliveryDelayInMillis": 3},
            {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0},
        ),
        (
            "inactiveTopicPolicies",
            "POST",
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 5,
                "deleteWhileInactive": True,
            },
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 60,
                "deleteWhileInactive": True,
            },
        ),
        ("dispatchRate", "POST", FULL_RATE, FULL_RATE | {"dispatchThrottlingRateInMsg": 0, "ratePeriodInSecond": 1}),
        ("schemaCompatibilityStrategy", "PUT", "BACKWARD", "FULL"),
        (
            "autoSubscriptionCreation",
            "POST",
            {"allowAutoSubscriptionCreation": False},
            {"allowAutoSubscriptionCreation": True},
        ),
        ("subscriptionTypesEnabled", "POST", ["Shared"], None),
        ("maxMessageSize", "POST", 5000, None),
        ("maxSubscriptionsPerTopic", "POST", 5, None),
        ("replication", "POST", ["standalone"], ["standalone"]),
    ],
)
async def test_topic_policy_is_set_shown_applied_and_removed(call, path, verb, given, applied_before):
    assert kept(await call("GET", f"{TOPIC}/{path}")) is None
    assert kept(await call("GET", f"{TOPIC}/{path}?applied=true")) == applied_before
    assert (await call(verb, f"{TOPIC}/{path}", given)).status == 204
    assert kept(await call("GET", f"{TOPIC}/{path}")) == given
    assert kept(await call("GET", f"{TOPIC}/{path}?applied=true")) == given
    assert (await call("DELETE", f"{TOPIC}/{path}")).status == 204
    assert not kept(await call("GET", f"{TOPIC}/{path}"))
    assert kept(await call("GET", f"{TOPIC}/{path}?applied=true")) in (applied_before, [])


async def test_namespace_policy_shows_through_to_the_topic(call):
    await call("POST", NS + "/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2})
    assert kept(await call("GET", TOPIC + "/retention")) is None
    assert (await call("GET", TOPIC + "/retention?applied=true")).json["retentionSizeInMB"] == 2
    await call("POST", TOPIC + "/retention", {"retentionTimeInMinutes": 3, "retentionSizeInMB": 4})
    assert (await call("GET", TOPIC + "/retention?applied=true")).json["retentionSizeInMB"] == 4


async def test_message_ttl_of_a_topic_is_a_query_parameter(call):
    assert (await call("GET", TOPIC + "/messageTTL?applied=true")).json == 0
    assert (await call("POST", TOPIC + "/messageTTL?messageTTL=5")).status == 204
    assert (await call("GET", TOPIC + "/messageTTL")).json == 5
    assert (await call("POST", TOPIC + "/messageTTL?messageTTL=-5")).status == 412
    assert (await call("DELETE", TOPIC + "/messageTTL")).status == 204
    assert kept(await call("GET", TOPIC + "/messageTTL")) is None


async def test_backlog_quotas_of_a_topic(call):
    unlimited = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
    applied = (await call("GET", TOPIC + "/backlogQuotaMap?applied=true")).json
    assert applied == {"destination_storage": unlimited, "message_age": unlimited}
    assert (await call("POST", TOPIC + "/backlogQuota", {"limitSize": 5, "policy": "producer_exception"})).status == 204
    assert (await call("GET", TOPIC + "/backlogQuotaMap")).json["destination_storage"]["limitSize"] == 5
    assert (await call("DELETE", TOPIC + "/backlogQuota")).status == 204
    assert (await call("GET", TOPIC + "/backlogQuotaMap")).json == {}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("maxProducers", -1, 412),
        ("maxMessageSize", 5 * 1024 * 1024 + 1, 412),
        ("maxMessageSize", -1, 412),
        ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}, 400),
        ("replication", ["other"], 412),
        ("replication", [], 412),
        ("entryFilters", {"entryFilterNames": "a"}, 400),
        ("subscriptionTypesEnabled", ["Foo"], 500),
    ],
)
async def test_bad_topic_policies(call, path, body, status):
    assert (await call("POST", f"{TOPIC}/{path}", body)).status == status
    assert kept(await call("GET", f"{TOPIC}/{path}")) is None


async def test_partitions_share_the_policies_of_their_topic(call):
    await call("PUT", "persistent/public/default/p/partitions", 2)
    assert (await call("POST", "persistent/public/default/p/maxProducers", 3)).status == 204
    assert (await call("POST", "persistent/public/default/p-partition-0/maxProducers", 3)).status == 412
    assert (await call("GET", "persistent/public/default/p-partition-0/maxProducers")).status == 412


async def test_policies_need_a_topic_that_exists(call):
    assert (await call("GET", "persistent/public/default/none/retention")).status == 404
    assert (await call("POST", "non-persistent/public/default/none/maxProducers", 3)).status == 404
    assert (await call("GET", "persistent/public/none/none/retention")).status == 404


async def test_policies_go_with_the_topic(call):
    await call("POST", TOPIC + "/maxProducers", 5)
    await call("DELETE", TOPIC)
    await call("PUT", TOPIC)
    assert kept(await call("GET", TOPIC + "/maxProducers")) is None


async def test_topic_policies_can_be_switched_off():
    call = await open_client(Settings(topic_level_policies_enabled=False))
    await call("PUT", TOPIC)
    assert (await call("GET", TOPIC + "/retention")).status == 405


@pytest.mark.parametrize("allowed", [True, False])
async def test_topics_are_not_created_with_more_partitions_than_allowed(allowed):
    call = await open_client(Settings(max_num_partitions_per_partitioned_topic=10))
    override = {"allowAutoTopicCreation": allowed, "topicType": "partitioned"}
    refused = await call("POST", NS + "/autoTopicCreation", override | {"defaultNumPartitions": 11})
    assert refused.status == 406
    assert "Number of partitions should be less than or equal to 10" in refused.json["reason"]
    assert (await call("POST", NS + "/autoTopicCreation", override | {"defaultNumPartitions": 10})).status == 204


async def test_quorums_of_the_settings_apply_to_a_topic():
    quorums = {"bookkeeperEnsemble": 4, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": 2}
    call = await open_client(
        Settings(
            managed_ledger_default_ensemble_size=4,
            managed_ledger_default_write_quorum=3,
            managed_ledger_default_ack_quorum=2,
        )
    )
    await call("PUT", TOPIC)
    applied = (await call("GET", TOPIC + "/persistence?applied=true")).json
    assert {name: applied[name] for name in quorums} == quorums


async def test_policies_of_topics_are_read_for_namespaces_that_exist(call, monkeypatch):
    """A request for an invalid name ended with 500 in a cluster, and each missing namespace stayed in the memory."""
    read = []
    monkeypatch.setattr(type(call.broker.namespaces.topics), "ready", lambda _, namespace: read.append(namespace))
    assert (await call("GET", "persistent/public/a%20b/t/retention")).status == 412
    assert (await call("GET", "persistent/public/none/t/retention")).status == 404
    assert read == []
    await call("GET", f"{TOPIC}/retention")
    assert read == ["public/default"]
