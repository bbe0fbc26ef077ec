"""The MetadataStore on a ZooKeeper in memory: cases that a real ZooKeeper does not show at will."""

from __future__ import annotations

from magnetar.bookkeeper.errors import NodeExistsError, NodeVersionError, NoSuchNodeError
from magnetar.bookkeeper.zookeeper.values import Node, NodeStat
from magnetar.storage.zookeeper.zookeeper_metadata import ZooKeeperMetadataStore


class Tree:
    """The nodes of the service: path -> (value, id of the session that owns the node)."""

    def __init__(self):
        self.nodes = {}

    def expire(self, session):
        """End the session; the client opens a new session."""
        self.nodes = {path: node for path, node in self.nodes.items() if node[1] != session.session_id}
        session.session_id += 100


class Session:
    def __init__(self, tree, session_id):
        self._tree, self.session_id = tree, session_id

    async def create(self, path, value, *, ephemeral, make_parents):
        if path in self._tree.nodes:
            raise NodeExistsError(path)
        self._tree.nodes[path] = value, self.session_id if ephemeral else 0

    async def get(self, path):
        if path not in self._tree.nodes:
            raise NoSuchNodeError(path)
        value, owner = self._tree.nodes[path]
        return Node(value, NodeStat(0, 0, owner, 0, 0, owner, owner, 0))

    async def delete(self, path, version=-1):
        node = await self.get(path)
        if version not in (-1, node.version):
            raise NodeVersionError(path)
        del self._tree.nodes[path]


async def test_the_end_of_a_store_deletes_its_own_ephemeral_nodes_alone():
    tree = Tree()
    session = Session(tree, 1)
    store, other = ZooKeeperMetadataStore(session), ZooKeeperMetadataStore(Session(tree, 2))
    await store.create_ephemeral("/taken", b"1")
    tree.expire(session)
    await other.create_ephemeral("/taken", b"2")
    await store.create_ephemeral("/own", b"1")
    await store.close()
    assert tree.nodes == {"/taken": (b"2", 2)}
