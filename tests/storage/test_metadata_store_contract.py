"""What every MetadataStore promises: in memory and the log."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.storage.embedded.lanes import InlineThreads, RealThreads
from magnetar.storage.errors import BadVersionError, NoNodeError, StorageClosedError
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


async def test_values_and_versions(metadata):
    assert await metadata.get("/a/b") is None
    assert await metadata.put("/a/b", b"1", -1) == 0
    assert await metadata.put("/a/b", b"2") == 1
    assert await metadata.put("/a/b", b"3", 1) == 2
    assert await metadata.get("/a/b") == (b"3", 2)
    assert await metadata.put("/empty", b"") == 0
    assert await metadata.get("/empty") == (b"", 0)


async def test_compare_and_set(metadata):
    await metadata.put("/a", b"1")
    for expected in (-1, 1, 7):
        with pytest.raises(BadVersionError) as caught:
            await metadata.put("/a", b"2", expected)
        assert (caught.value.path, caught.value.expected, caught.value.found) == ("/a", expected, 0)
    with pytest.raises(BadVersionError):
        await metadata.put("/none", b"2", 0)
    assert await metadata.get("/a") == (b"1", 0)
    assert await metadata.get("/none") is None


async def test_delete(metadata):
    await metadata.put("/a", b"1")
    await metadata.put("/a/child", b"2")
    with pytest.raises(BadVersionError):
        await metadata.delete("/a", 5)
    await metadata.delete("/a", 0)
    with pytest.raises(NoNodeError):
        await metadata.delete("/a")
    assert await metadata.children("/a") == ["child"]
    assert await metadata.put("/a", b"again", -1) == 0


async def test_children_are_direct_names_sorted(metadata):
    for path in ("/m/b", "/m/a/x/y", "/m/a/x/z", "/m/c", "/m2/other", "/m"):
        await metadata.put(path, b"")
    assert await metadata.children("/m") == ["a", "b", "c"]
    assert await metadata.children("/m/a") == ["x"]
    assert await metadata.children("/m/a/x") == ["y", "z"]
    assert await metadata.children("/nothing") == []
    assert await metadata.children("/") == ["m", "m2"]


async def test_sequences_never_repeat(metadata):
    assert [await metadata.next_sequence("/s") for _ in range(3)] == [0, 1, 2]
    assert await metadata.next_sequence("/s", 10) == 3
    assert await metadata.next_sequence("/s") == 13
    assert await metadata.next_sequence("/other") == 0


async def test_concurrent_writers_of_one_version(metadata):
    await metadata.put("/a", b"")
    results = await asyncio.gather(*(metadata.put("/a", b"%d" % k, 0) for k in range(10)), return_exceptions=True)
    assert [r for r in results if not isinstance(r, BadVersionError)] == [1]
    assert await metadata.get("/a") == (b"0", 1)


async def test_watch(metadata):
    seen: list[str] = []
    cancel = metadata.watch("/w", seen.append)
    await metadata.put("/w", b"")
    await metadata.put("/w/x/y", b"")
    await metadata.put("/ww", b"")
    await metadata.delete("/w/x/y")
    with pytest.raises(NoNodeError):
        await metadata.delete("/w/none")
    await asyncio.sleep(0)
    assert seen == ["/w", "/w/x/y", "/w/x/y"]
    cancel()
    cancel()
    await metadata.put("/w", b"2")
    await asyncio.sleep(0)
    assert len(seen) == 3


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b"])
async def test_paths_are_checked(metadata, path):
    with pytest.raises(ValueError, match="metadata path"):
        await metadata.put(path, b"")


async def test_closed(metadata):
    await metadata.close()
    await metadata.close()
    with pytest.raises(StorageClosedError):
        await metadata.get("/a")
    with pytest.raises(StorageClosedError):
        await metadata.put("/a", b"")


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
