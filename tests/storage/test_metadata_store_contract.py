"""The contract of every MetadataStore: in memory and the log."""

from __future__ import annotations

import pytest

from magnetar.storage.embedded.lanes import InlineThreads, RealThreads
from tests.storage.metadata_contract import MetadataStoreContract
from tests.storage.metadata_for_tests import open_log
from tests.twins.memory_metadata import MemoryMetadataStore


@pytest.fixture(params=["memory", "log inline", "log thread"])
async def metadata(request, tmp_path):
    if request.param == "memory":
        store = MemoryMetadataStore()
    else:
        threads = InlineThreads() if "inline" in request.param else RealThreads()
        store = open_log(tmp_path, threads)
    yield store
    await store.close()


class TestStores(MetadataStoreContract):
    """In memory, and the log on a disk."""


async def test_ephemeral_nodes_end_with_the_session(tmp_path):
    store = open_log(tmp_path, InlineThreads())
    await store.put_ephemeral("/e", b"1")
    await store.put("/durable", b"2")
    assert await store.get("/e") == (b"1", 0)
    await store.close()
    store = open_log(tmp_path, InlineThreads())
    assert await store.get("/e") is None
    assert await store.get("/durable") == (b"2", 0)
    await store.close()
    memory = MemoryMetadataStore()
    await memory.put_ephemeral("/e", b"1")
    await memory.put("/durable", b"2")
    later = memory.snapshot()
    assert await later.get("/e") is None
    assert await later.get("/durable") == (b"2", 0)
