"""All metadata nodes in memory; changes that did not become durable can be undone. One thread uses the tree at a time.

Every topic needs about four nodes (ledger list, ledger, cursor record, policies); a node takes about 400 bytes beside
its value. So 100,000 topics take about 200 MB, as in the ZooKeeper of a Pulsar cluster, which keeps its tree in memory
too. ``docs/adr/0004-metadata-log.md`` has the figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.embedded.metadata.changes import DELETE, PUT, SEQUENCE, Change
from magnetar.storage.errors import BadVersionError, NoNodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["NodeTree"]

Node = tuple[bytes, int]


class NodeTree:
    """Nodes (path -> value, version) and sequences (path -> next number).

    From ``begin`` on the tree records every change, in ``pending`` for the log, and for ``rollback``.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.sequences: dict[str, int] = {}
        self.pending: list[Change] = []
        """Changes since ``begin`` that must be durable before their answers."""
        self.on_sizes: Callable[[str, int, int], None] = lambda _path, _before, _after: None
        """Called with the bytes of a node's value before and after a change; 0: no node. Not called by ``apply``."""
        self._ephemeral: set[str] = set()
        self._below: dict[str, dict[str, None]] = {}
        """Path -> names directly below the path, of nodes and of the parents of nodes."""
        self._undo: list[tuple[str, Node | None, bool, int | None]] = []
        """(path, node before, whether that node was ephemeral, next number before or None for a node)."""

    def begin(self) -> None:
        """Begin a new batch: drop the recorded changes."""
        self.pending, self._undo = [], []

    def rollback(self) -> None:
        """Restore the tree as it was at ``begin``."""
        for path, before, ephemeral, number in reversed(self._undo):
            if number is not None:
                self._set_sequence(path, number)
            else:
                self._set_node(path, before, ephemeral=ephemeral)
        self.begin()

    def get(self, path: str) -> Node | None:
        return self.nodes.get(path)

    def put(self, path: str, value: bytes, expected_version: int | None, *, ephemeral: bool = False) -> int:
        """Set the node and return its version. Raises BadVersionError."""
        before = self.nodes.get(path)
        found = before[1] if before is not None else -1
        if expected_version is not None and expected_version != found:
            raise BadVersionError(path, expected_version, found)
        if not ephemeral:
            self.pending.append((PUT, path, found + 1, value))
        elif before is not None and path not in self._ephemeral:
            self.pending.append((DELETE, path, 0, b""))
        self._note(path)
        self._set_node(path, (value, found + 1), ephemeral=ephemeral)
        return found + 1

    def delete(self, path: str, expected_version: int | None) -> None:
        """Delete the node. Raises NoNodeError, BadVersionError."""
        before = self.nodes.get(path)
        if before is None:
            raise NoNodeError(path)
        if expected_version is not None and expected_version != before[1]:
            raise BadVersionError(path, expected_version, before[1])
        if path not in self._ephemeral:
            self.pending.append((DELETE, path, 0, b""))
        self._note(path)
        self._set_node(path, None)

    def children(self, path: str) -> list[str]:
        """Names directly below, sorted."""
        return sorted(self._below.get(path, ()))

    def next_sequence(self, path: str, count: int) -> int:
        first = self.sequences.get(path, 0)
        self._undo.append((path, None, False, first))
        self.pending.append((SEQUENCE, path, first + count, b""))
        self._set_sequence(path, first + count)
        return first

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply changes read from the disk, without recording them for the log or for ``rollback``."""
        nodes, below = self.nodes, self._below
        for kind, path, number, value in changes:
            if kind == PUT:
                if path not in nodes:  # a start reads many nodes: the work of ``_set_node``, without its calls
                    parent, _, name = path.rpartition("/")
                    names = below.get(parent)
                    if names is None:
                        self._link(path)
                    else:
                        names[name] = None
                nodes[path] = (value, number)
            elif kind == DELETE:
                self._set_node(path, None)
            else:
                self._set_sequence(path, number)

    def durable(self) -> tuple[dict[str, Node], dict[str, int]]:
        """Copies of nodes (without ephemeral nodes) and sequences, for a snapshot made in another thread."""
        nodes = dict(self.nodes)
        for path in self._ephemeral:
            del nodes[path]
        return nodes, dict(self.sequences)

    def _note(self, path: str) -> None:
        self._undo.append((path, self.nodes.get(path), path in self._ephemeral, None))

    def _set_sequence(self, path: str, number: int) -> None:
        self.sequences[path] = number
        if not number:
            del self.sequences[path]

    def _set_node(self, path: str, node: Node | None, *, ephemeral: bool = False) -> None:
        before = self.nodes.get(path)
        known = before is not None
        self.on_sizes(path, 0 if before is None else len(before[0]), 0 if node is None else len(node[0]))
        if node is None:
            if known:
                del self.nodes[path]
                self._unlink(path)
        else:
            self.nodes[path] = node
            if not known:
                self._link(path)
        if ephemeral:
            self._ephemeral.add(path)
        else:
            self._ephemeral.discard(path)

    def _link(self, path: str) -> None:
        while path != "/":
            parent, name = _split(path)
            names = self._below.get(parent)
            if names is not None:
                names[name] = None
                return
            self._below[parent] = {name: None}
            path = parent

    def _unlink(self, path: str) -> None:
        """Remove the names that only this path implied, which is no longer a node."""
        while path != "/" and path not in self.nodes and path not in self._below:
            parent, name = _split(path)
            names = self._below[parent]
            del names[name]
            if names:
                return
            del self._below[parent]
            path = parent


def as_changes(nodes: dict[str, Node], sequences: dict[str, int]) -> Iterator[Change]:
    """Return these nodes and sequences as changes to an empty tree."""
    for path, (value, version) in nodes.items():
        yield PUT, path, version, value
    for path, number in sequences.items():
        yield SEQUENCE, path, number, b""


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name
