"""Calls about all subscriptions give no more than calls about each of them."""

import pytest

from magnetar.broker.policies.records import bundle_of, even_bundles
from tests.broker.admin.test_admin_security import as_role, call, secured  # noqa: F401 - the fixture
from tests.broker.admin.test_bundles_in_cluster import Cluster

A = "persistent/t/n/a"
BUNDLE = bundle_of("persistent://t/n/a", even_bundles(4))
BULK = [
    (f"{A}/all_subscription/expireMessages/5", 401),
    ("namespaces/t/n/clearBacklog", 403),
    (f"namespaces/t/n/{BUNDLE}/clearBacklog", 403),
    ("namespaces/t/n/clearBacklog/theirs", 403),
]


@pytest.fixture
async def reader(call):  # noqa: F811
    """A role that may consume in the namespace, but not through the subscription `theirs`."""
    boss = as_role("boss")
    assert (await call("POST", "namespaces/t/n/permissions/reader", ["consume"], **boss)).status == 204
    for subscription in ("mine", "theirs"):
        assert (await call("PUT", f"{A}/subscription/{subscription}", **boss)).status == 204
    assert (await call("POST", "namespaces/t/n/permissions/subscription/theirs", ["other"], **boss)).status == 204
    return call


def moved(call):  # noqa: F811
    found = call.broker.operations.directory.plain["persistent://t/n/a"]["subscriptions"]
    return {name for name, each in found.items() if {"skipped", "expired"} & each.keys()}


@pytest.mark.parametrize(("path", "status"), BULK)
async def test_nothing_is_emptied_when_one_subscription_is_not_the_callers(reader, path, status):
    assert (await reader("POST", path, **as_role("reader"))).status == status
    assert moved(reader) == set()


@pytest.mark.parametrize(("path", "_status"), BULK)
async def test_a_role_with_rights_on_all_subscriptions_empties_them(reader, path, _status):
    assert (await reader("POST", path, **as_role("boss"))).status == 204
    assert "theirs" in moved(reader)


async def test_a_prefix_of_the_role_counts_too(reader):
    boss = as_role("boss")
    assert (await reader("POST", "namespaces/t/n/subscriptionAuthMode", "Prefix", **boss)).status == 204
    for path, status in BULK:
        assert (await reader("POST", path, **as_role("reader"))).status == status
    assert moved(reader) == set()


async def test_ones_own_subscription_is_emptied(reader):
    assert (await reader("POST", "namespaces/t/n/clearBacklog/mine", **as_role("reader"))).status == 204
    assert moved(reader) == {"mine"}


@pytest.mark.parametrize("limit", ["permissions/subscription/theirs", "subscriptionAuthMode"])
async def test_in_a_cluster_the_rights_are_those_of_the_caller_not_of_the_broker(call, limit):  # noqa: F811
    boss, reader = as_role("boss"), as_role("reader")
    assert (await call("POST", "namespaces/t/n/permissions/reader", ["consume"], **boss)).status == 204
    cluster = call.broker.peers = call.broker.ownership.current = Cluster()
    assert (await call("POST", "namespaces/t/n/clearBacklog", **reader)).status == 204
    assert cluster.calls
    cluster.calls.clear()
    value = "Prefix" if limit == "subscriptionAuthMode" else ["other"]
    assert (await call("POST", f"namespaces/t/n/{limit}", value, **boss)).status == 204
    assert (await call("POST", "namespaces/t/n/clearBacklog", **reader)).status == 403
    assert cluster.calls == []
    assert (await call("POST", "namespaces/t/n/clearBacklog", **boss)).status == 204
    assert cluster.calls
