"""Policies of a topic in both scopes."""

import pytest

from magnetar.broker.policies.records import TopicPolicies


@pytest.mark.parametrize("all_clusters", [False, True])
def test_a_scope_with_any_policy_has_an_empty_list_of_subscription_types(all_clusters):
    """Verified against Apache Pulsar 4.2.4."""

    def types(found):
        return found.of_scope(all_clusters=all_clusters).subscription_types_enabled

    found = TopicPolicies().with_scope(TopicPolicies(), all_clusters=all_clusters)
    assert types(found) is None
    found = found.with_scope(TopicPolicies(max_producers=3), all_clusters=all_clusters)
    assert types(found) == []
    assert TopicPolicies().of_scope(all_clusters=not all_clusters).subscription_types_enabled is None
    kept = TopicPolicies(subscription_types_enabled=["Shared"])
    assert types(found.with_scope(kept, all_clusters=all_clusters)) == ["Shared"]


def test_an_empty_list_of_types_covers_no_types_of_all_clusters():
    found = TopicPolicies().with_scope(TopicPolicies(subscription_types_enabled=["Failover"]), all_clusters=True)
    found = found.with_scope(TopicPolicies(max_producers=3), all_clusters=False)
    assert found.subscription_types_enabled == []
    assert found.merged().subscription_types_enabled == ["Failover"]
    found = found.with_scope(TopicPolicies(subscription_types_enabled=["Shared"]), all_clusters=False)
    assert found.merged().subscription_types_enabled == ["Shared"]
