"""Nodes that a deleted namespace or tenant leaves in the shared metadata."""

import pytest

from magnetar.broker.ownership.emptied_nodes import delete_emptied
from magnetar.storage.errors import NotEmptyError
from tests.twins.memory_cluster import MemoryCluster, MemorySession


class Tree(MemorySession):
    """As in ZooKeeper, every node has a parent, and a node with children cannot be deleted."""

    async def put(self, path, value, expected_version=None, guard=None):
        parent = path.rpartition("/")[0]
        if parent and await self.get(parent) is None:
            await self.put(parent, b"")
        return await super().put(path, value, expected_version, guard)

    async def delete(self, path, expected_version=None, guard=None):
        if await self.children(path):
            raise NotEmptyError(path)
        await super().delete(path, expected_version, guard)


@pytest.fixture
async def cluster():
    made = MemoryCluster()
    tree = Tree(made)
    for path in (
        *(f"/managed-ledgers/t/{namespace}/{domain}" for namespace in "ab" for domain in ("persistent",)),
        *(f"/admin/partitioned-topics/t/a/{domain}" for domain in ("persistent", "non-persistent")),
        *("/managed-ledgers/t/b/persistent/x", "/schemas/t/a", "/namespace/t/a", "/admin/local-policies/t"),
        *("/loadbalance/bundle-data/t/a", "/admin/policies/t/b", "/admin/local-policies/t/new"),
    ):
        await tree.put(path, b"")
    return made


async def test_emptied_nodes_of_a_namespace_go_and_all_others_stay(cluster):
    before = set(cluster.nodes("/"))
    await delete_emptied(Tree(cluster), "t/a")
    assert set(cluster.nodes("/")) == {path for path in before if "/t/a" not in path}
    await delete_emptied(Tree(cluster), "t/b")
    assert "/managed-ledgers/t/b/persistent/x" in cluster.nodes("/")


async def test_the_record_of_a_new_namespace_of_the_name_stays(cluster):
    await delete_emptied(Tree(cluster), "t/new")
    assert "/admin/local-policies/t/new" in cluster.nodes("/")


async def test_nodes_of_a_tenant_go_once_they_are_empty(cluster):
    await delete_emptied(Tree(cluster), "t/a")
    await Tree(cluster).delete("/admin/local-policies/t/new")
    await delete_emptied(Tree(cluster), "t")
    assert [path for path in cluster.nodes("/") if path.endswith("/t")] == ["/admin/policies/t", "/managed-ledgers/t"]
