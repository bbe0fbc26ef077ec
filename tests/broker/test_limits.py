"""Bounds on the data that peers attach to producers, subscriptions, topics and namespaces."""

import pytest

from magnetar.broker import limits
from magnetar.broker.errors import InvalidTopicNameError, MetadataError, NamingError, NotAllowedError
from tests.broker.admin_fakes import open_client

A = "persistent/public/default/a"


def test_sizes_are_bytes_of_both_keys_and_values():
    assert limits.size_of({"a": "é", "": "xyz"}) == 6
    limits.check_properties("x", {"a": "b" * 9}, 10)
    with pytest.raises(MetadataError, match="11 bytes, at most 10"):
        limits.check_properties("x", {"a": "b" * 10}, 10)


def test_names():
    limits.check_client_name("Producer name", "x" * 1024)
    limits.check_subscription_name("x" * 1024)
    with pytest.raises(NamingError):
        limits.check_client_name("Producer name", "x" * 1025)
    with pytest.raises(InvalidTopicNameError):
        limits.check_subscription_name("x" * 1025)


def test_hash_ranges_of_a_consumer():
    limits.check_key_ranges(1000)
    with pytest.raises(NotAllowedError, match="1001 hash ranges"):
        limits.check_key_ranges(1001)


@pytest.mark.parametrize(("setting", "most"), [(0, 10_000), (-1, 10_000), (5, 5), (20_000, 10_000)])
def test_partitions(setting, most):
    assert limits.most_partitions(setting) == most


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", f"{A}/properties", {"a": "b" * (250 << 10)}, 204),
        ("PUT", f"{A}/properties", {f"k{i}": "b" * 10 for i in range(200_000)}, 413),
        ("PUT", "persistent/public/default/b/partitions", 10_001, 406),
        ("PUT", "namespaces/public/many", {"bundles": {"numBundles": 2**14 + 1}}, 412),
        ("PUT", f"{A}/subscription/{'s' * 1025}", None, 412),
        ("PUT", f"{A}/subscription/s/properties", {"a": "b" * (65 << 10)}, 413),
    ],
)
async def test_over_http(method, path, body, status):
    call = await open_client()
    await call("PUT", A)
    await call("PUT", f"{A}/subscription/s")
    assert (await call(method, path, body)).status == status


async def test_properties_do_not_grow_past_the_bound_by_many_calls():
    call = await open_client()
    await call("PUT", A)
    statuses = [(await call("PUT", f"{A}/properties", {f"k{i}": "b" * (100 << 10)})).status for i in range(4)]
    assert statuses == [204, 204, 413, 413]


async def test_grants_of_a_namespace():
    """A tenant's administrator could fill the memory: 60 grants of 25,000 roles each took 170 MiB."""
    call = await open_client()
    path, roles = "namespaces/public/default/permissions", [f"role-{number}" for number in range(19_000)]
    grants = [(await call("POST", f"{path}/subscription/s{number}", roles)).status for number in range(6)]
    assert grants == [204, 204, 204, 204, 413, 413]
    assert (await call("POST", f"{path}/x", ["produce"])).status == 204
    assert (await call("DELETE", f"{path}/subscription/s0/role-0")).status in (204, 404)
    assert (await call("POST", f"{path}/subscription/s1", ["one"])).status == 204
    assert (await call("POST", f"{path}/subscription/s4", roles)).status == 204


async def test_rates_of_single_subscriptions_have_a_limit(monkeypatch):
    """Each took a place in the policies of its topic, which each change copies and writes: 6.5 ms beside 4,000."""
    monkeypatch.setattr("magnetar.broker.admin.topic_policy_specials.MAX_SUBSCRIPTION_RATES", 3)
    call = await open_client()
    await call("PUT", A)

    async def set_rate(subscription, rate=5):
        body = {"dispatchThrottlingRateInMsg": rate, "dispatchThrottlingRateInByte": 5, "ratePeriodInSecond": 1}
        return (await call("POST", f"{A}/{subscription}/dispatchRate", body)).status

    assert [await set_rate(f"s{number}") for number in range(4)] == [204, 204, 204, 413]
    assert await set_rate("s0", 6) == 204
    assert (await call("DELETE", f"{A}/s1/dispatchRate")).status == 204
    assert [await set_rate("s3"), await set_rate("s" * 1025)] == [204, 412]
