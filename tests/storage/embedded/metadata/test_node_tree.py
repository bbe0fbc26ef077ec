"""The tree against a plain dict; rolled back changes leave no trace."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.storage.embedded.metadata.changes import decode_changes, encode_changes
from magnetar.storage.embedded.metadata.node_tree import NodeTree
from magnetar.storage.errors import MetadataError
from tests.twins.memory_metadata import MemoryMetadataStore

PATHS = ["/a", "/a/b", "/a/b/c", "/a/d", "/e/f", "/e/f/g/h", "/i"]
step = st.tuples(
    st.sampled_from(["put", "delete", "sequence", "ephemeral"]), st.sampled_from(PATHS), st.binary(max_size=4)
)


@given(groups=st.lists(st.tuples(st.lists(step, max_size=6), st.booleans()), max_size=12))
@settings(max_examples=200, deadline=None)
def test_like_the_twin_with_groups_that_fail(groups):
    async def run() -> None:
        tree, twin, read = NodeTree(), MemoryMetadataStore(), NodeTree()
        for steps, kept in groups:
            tree.begin()
            for kind, path, value in steps:
                results = []
                for store in (tree, twin) if kept else (tree,):
                    results.append(await outcome(store, kind, path, value))
                assert len(set(results)) == 1
            if kept:
                read.apply(decode_changes(encode_changes(tree.pending)))
            else:
                tree.rollback()
            for path in ["/", *PATHS, "/e", "/e/f/g"]:
                assert tree.children(path) == await twin.children(path)
                assert tree.get(path) == await twin.get(path)
        after = twin.snapshot()
        for path in PATHS:
            assert read.get(path) == await after.get(path)
        nodes, sequences = tree.durable()
        assert (read.nodes, read.sequences) == (nodes, sequences)

    asyncio.run(run())


async def outcome(store, kind, path, value):
    try:
        if kind == "put":
            return await given_(store.put(path, value, None))
        if kind == "ephemeral" and isinstance(store, NodeTree):
            return store.put(path, value, None, ephemeral=True)
        if kind == "ephemeral":
            return await store.put_ephemeral(path, value)
        if kind == "delete":
            return await given_(store.delete(path, None))
        return await given_(store.next_sequence(path, 2))
    except MetadataError as error:
        return type(error)


async def given_(answer):
    return await answer if asyncio.iscoroutine(answer) else answer


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91\x94\x07\xa1/\x00\xc4\x00", b"\x91\x01"])
def test_bytes_that_are_no_changes(data):
    with pytest.raises(ValueError):
        decode_changes(data)
