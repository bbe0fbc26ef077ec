"""Failure domains, where Apache Pulsar keeps them."""

from __future__ import annotations

import pytest

from magnetar.broker.policies.failure_domains import FailureDomains
from tests.twins.memory_metadata import MemoryMetadataStore


@pytest.fixture
def metadata():
    return MemoryMetadataStore()


@pytest.fixture
def domains(metadata):
    return FailureDomains(metadata, "/admin/clusters")


async def test_each_domain_has_a_node_of_its_own(domains, metadata):
    await domains.put("c1", "east", {"brokers": ["a:1", "b:1"]})
    await domains.put("c1", "far west", {})
    assert (await metadata.get("/admin/clusters/c1/failureDomain/east"))[0] == b'{"brokers":["a:1","b:1"]}'
    assert domains.get("c1") == {"east": {"brokers": ["a:1", "b:1"]}, "far west": {}}
    assert domains.brokers("c1") == {"a:1": "east", "b:1": "east"}
    assert domains.get("c2") == domains.brokers("c2") == {}


async def test_domains_of_another_broker_are_read(domains, metadata):
    await domains.put("c1", "far west", {"brokers": ["c:1"]})
    other = FailureDomains(metadata, "/admin/clusters")
    await other.load("c1")
    assert other.get("c1") == domains.get("c1")
    await domains.delete("c1", "far west")
    await domains.delete("c1", "far west")
    await other.load("c1")
    assert other.get("c1") == {}


@pytest.mark.parametrize(
    "value", [b"junk", b'{"\xff":1}', b"5", b'{"brokers": 5}', b'{"brokers": "a:1"}', b'{"brokers": [["a:1"], 5]}']
)
async def test_a_node_that_is_no_domain_counts_for_nothing(domains, metadata, value):
    await domains.put("c1", "east", {"brokers": ["a:1"]})
    await metadata.put("/admin/clusters/c1/failureDomain/west", value)
    await domains.load("c1")
    assert domains.brokers("c1") == {"a:1": "east"}


async def test_those_of_a_deleted_cluster_are_gone(domains, metadata):
    await domains.put("c1", "east", {"brokers": ["a:1"]})
    await domains.put("c2", "east", {"brokers": ["b:1"]})
    await domains.forget("c1")
    assert await metadata.get("/admin/clusters/c1/failureDomain/east") is None
    assert (domains.get("c1"), domains.brokers("c2")) == ({}, {"b:1": "east"})
