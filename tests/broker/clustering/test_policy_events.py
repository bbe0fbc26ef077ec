"""Events of topic policies: every event that Apache Pulsar wrote is read, and written again with the same bytes."""

from __future__ import annotations

import json
import pathlib

import msgspec
import pytest

from magnetar.broker.clustering.policy_events import (
    NOTHING,
    OWN_FIELDS,
    EventPolicies,
    Scopes,
    encode_event,
    event_key,
    event_schema,
    read_event,
)
from magnetar.broker.policies.effective import NO_TOPIC_POLICIES
from magnetar.broker.policies.records import TopicPolicies
from magnetar.broker.policies.values import BacklogQuota, DelayedDeliveryPolicies, DispatchRate, RetentionPolicies
from magnetar.broker.schemas.avro_values import AvroValues
from magnetar.protocol.topic_name import TopicName

VECTORS = pathlib.Path(__file__).resolve().parents[2] / "vectors" / "policy_events.json"
EVENTS = [(each["key"], bytes.fromhex(each["value"])) for each in json.loads(VECTORS.read_text())["events"]]
VALUES = AvroValues(json.loads(event_schema()))
TOPIC = TopicName.parse("persistent://t1/n1/dd")


def read(key, data):
    return read_event(key, VALUES.decode(data) if data else None)


@pytest.mark.parametrize(("key", "data"), EVENTS)
def test_events_of_pulsar_are_written_again_with_the_same_bytes(key, data):
    event = read(key, data)
    assert event_key(event.topic, all_clusters=event.all_clusters) == key
    if not data:
        assert event.policies is None
        return
    again = event.policies.changed_to(event.policies.policies, all_clusters=event.all_clusters)
    assert encode_event(event.topic, again, "c1") == data


def test_the_members_of_a_full_event():
    found = read(*EVENTS[7]).policies.policies
    assert found.retention == RetentionPolicies(10, 20)
    assert found.delayed_delivery == DelayedDeliveryPolicies(
        tick_time=2000, active=True, max_delivery_delay_in_millis=5000
    )
    assert (found.message_ttl_in_seconds, found.max_producers, found.max_consumers) == (122, 112, None)
    assert found.subscription_rates["sub1"].dispatch_throttling_rate_in_msg == 119
    assert found.schema_compatibility_strategy == "FORWARD"
    assert read(*EVENTS[6]).policies.policies.max_producers == 212


def test_every_policy_has_a_member():
    assert {field.name for field in msgspec.structs.fields(TopicPolicies)} == OWN_FIELDS | {"for_all_clusters"}


def test_policies_set_here_come_back():
    policies = TopicPolicies(
        max_producers=0,
        backlog_quota_map={"message_age": BacklogQuota(limit_time=5, limit_size=-1, policy="producer_exception")},
        subscription_rates={"s": DispatchRate(dispatch_throttling_rate_in_msg=1)},
        for_all_clusters=TopicPolicies(max_consumers=3),
    )
    changed = NOTHING.changed_to(policies)
    assert [everywhere for everywhere, _ in changed] == [False, True]
    found = []
    for everywhere, each in changed:
        assert not each.is_empty  # a limit of 0 lifts another limit
        event = read(event_key(TOPIC, all_clusters=everywhere), encode_event(TOPIC, each, "c1"))
        assert (event.topic, event.all_clusters) == (TOPIC, everywhere)
        found.append(event.policies)
    together = Scopes.of(*found).together
    assert together.max_producers == 0
    assert together.merged().max_consumers == 3
    assert together.backlog_quota_map["message_age"].limit_time == 5
    assert together.subscription_rates == policies.subscription_rates


def test_members_without_a_meaning_here_are_kept():
    before = read(*EVENTS[5])
    members = before.policies.members | {"shadowTopics": ["persistent://t1/n1/shadow"]}
    scopes = Scopes.of(EventPolicies(before.policies.policies, members), None)
    ((_, after),) = scopes.changed_to(msgspec.structs.replace(scopes.together, max_producers=7))
    assert after.members["shadowTopics"] == ["persistent://t1/n1/shadow"]
    assert after.members["maxProducerPerTopic"] == 7


def test_only_the_scope_that_changed_is_written_and_nothing_for_no_change():
    scopes = Scopes.of(read(*EVENTS[5]).policies, read(*EVENTS[6]).policies)
    assert scopes.changed_to(scopes.together) == []
    everywhere = scopes.together.with_scope(TopicPolicies(max_producers=1), all_clusters=True)
    assert [each for each, _ in scopes.changed_to(everywhere)] == [True]
    assert [each for each, _ in scopes.removed()] == [False, True]
    cleared = scopes.changed_to(NO_TOPIC_POLICIES)
    assert [each for each, _ in cleared] == [False, True]


def test_a_member_that_cannot_be_read_counts_as_not_set():
    event = VALUES.decode(EVENTS[5][1])
    event["topicPoliciesEvent"]["policies"]["retentionPolicies"] = {"retentionTimeInMinutes": "x"}
    found = read_event(EVENTS[5][0], event).policies.policies
    assert found.retention is None
    assert found.max_producers == 112


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no topic name at all/x/y/z", None),
        (None, None),
        ("k", {"eventType": "TRANSACTION_BUFFER_SNAPSHOT"}),
        ("k", {"eventType": "TOPIC_POLICY", "actionType": "NONE", "topicPoliciesEvent": {"domain": "persistent"}}),
        ("k", {"eventType": "TOPIC_POLICY", "actionType": "UPDATE", "topicPoliciesEvent": {"domain": "persistent"}}),
    ],
)
def test_an_event_about_something_else_says_nothing(key, value):
    found = read_event(key, value)
    assert found is None or found.policies is None


def test_an_event_of_an_older_broker_may_remove():
    event = VALUES.decode(EVENTS[5][1]) | {"actionType": "DELETE"}
    assert read_event(EVENTS[5][0], event).policies is None


def event_with(policies):
    event = {"domain": "persistent", "tenant": "t1", "namespace": "n1", "topic": "dd", "policies": policies}
    return {"eventType": "TOPIC_POLICY", "actionType": "UPDATE", "topicPoliciesEvent": event}


@pytest.mark.parametrize(
    "value",
    [
        "text",
        7,
        [],
        {},
        {"eventType": "TOPIC_POLICY", "actionType": "UPDATE", "topicPoliciesEvent": "text"},
        {"eventType": "TOPIC_POLICY", "topicPoliciesEvent": event_with({})["topicPoliciesEvent"]},
        event_with("text"),
        event_with([1]),
        {**event_with({}), "topicPoliciesEvent": {"domain": 1, "tenant": b"", "namespace": None, "topic": {}}},
    ],
)
def test_a_value_of_another_schema_is_no_event(value):
    assert read_event("persistent://t1/n1/dd", value) is None


@pytest.mark.parametrize(
    "members",
    [
        {"backLogQuotaMap": "text"},
        {"backLogQuotaMap": {"message_age": "text"}},
        {"subscriptionPolicies": ["s"]},
        {"subscriptionPolicies": {"s": "text"}},
        {"delayedDeliveryEnabled": "text"},
        {"delayedDeliveryEnabled": True, "delayedDeliveryTickTimeMillis": "text"},
        {"isGlobal": "text"},
        {"retentionPolicies": b"bytes"},
    ],
)
def test_members_of_another_type_count_as_not_set(members):
    found = read_event("persistent://t1/n1/dd", event_with(members | {"maxProducerPerTopic": 3}))
    assert found.policies.policies == TopicPolicies(max_producers=3)


def test_subscription_types_that_were_emptied_are_no_absent_ones():
    (change,) = NOTHING.changed_to(TopicPolicies(subscription_types_enabled=[]))
    assert not change[1].is_empty
    event = read(event_key(TOPIC, all_clusters=False), encode_event(TOPIC, change[1], "c1"))
    assert event.policies.policies.subscription_types_enabled == []
    assert NOTHING.changed_to(TopicPolicies()) == []
    assert all(each.is_empty for _, each in Scopes.of(event.policies, None).removed())
