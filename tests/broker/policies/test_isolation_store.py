"""Isolation policies of clusters in the metadata store."""

from __future__ import annotations

from magnetar.broker.policies.isolation_store import IsolationPolicies
from tests.twins.memory_metadata import MemoryMetadataStore

NODE = "/admin/clusters/c%20x/namespaceIsolationPolicies"


async def test_policies_are_stored_read_again_and_forgotten_with_their_cluster():
    metadata = MemoryMetadataStore()
    policies, other = (IsolationPolicies(metadata, "/admin/clusters") for _ in range(2))
    await policies.update("c x", lambda old: old | {"p": {"primary": ["b1"]}}, {})
    await other.load("c x")
    assert other.get("c x") == policies.get("c x") == {"p": {"primary": ["b1"]}}
    await policies.forget("c x")
    assert await metadata.get(NODE) is None
    assert policies.get("c x") is None
    await other.forget("c x")  # deleted by another broker meanwhile
    await other.forget("c x")
    assert other.get("c x") is None
