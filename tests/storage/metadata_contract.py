"""The contract of every MetadataStore. A test class per store inherits it and brings the fixture ``metadata``."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.storage.errors import BadVersionError, GuardChangedError, NoNodeError, NotEmptyError, StorageClosedError
from magnetar.storage.interfaces import Guard
from tests.waiting import until

__all__ = ["MetadataStoreContract"]


class MetadataStoreContract:
    parents_may_go = True
    """Whether a node may be deleted before its children."""

    @staticmethod
    async def watching(_store):
        """Until the watches of the store are in place."""

    async def test_values_and_versions(self, metadata):
        assert await metadata.get("/a/b") is None
        assert await metadata.put("/a/b", b"1", -1) == 0
        assert await metadata.put("/a/b", b"2") == 1
        assert await metadata.put("/a/b", b"3", 1) == 2
        assert await metadata.get("/a/b") == (b"3", 2)
        assert await metadata.put("/empty", b"") == 0
        assert await metadata.get("/empty") == (b"", 0)

    async def test_compare_and_set(self, metadata):
        await metadata.put("/a", b"1")
        for expected in (-1, 1, 7):
            with pytest.raises(BadVersionError) as caught:
                await metadata.put("/a", b"2", expected)
            assert (caught.value.path, caught.value.expected, caught.value.found) == ("/a", expected, 0)
        with pytest.raises(BadVersionError):
            await metadata.put("/none", b"2", 0)
        assert await metadata.get("/a") == (b"1", 0)
        assert await metadata.get("/none") is None

    async def test_a_guard(self, metadata):
        await metadata.put("/g", b"")
        await metadata.put("/g", b"")
        for guard in (Guard("/g", 0), Guard("/g", 2), Guard("/none", 0)):
            for expected in (-1, None):
                with pytest.raises(GuardChangedError):
                    await metadata.put("/g/a", b"1", expected, guard)
        assert await metadata.children("/g") == []
        assert await metadata.put("/g/a", b"1", -1, Guard("/g", 1)) == 0
        assert await metadata.put("/g/a", b"2", 0, Guard("/g", 1)) == 1
        assert await metadata.put("/g/a", b"3", None, Guard("/g", 1)) == 2
        assert await metadata.put("/g/b", b"1", None, Guard("/g", 1)) == 0
        for expected in (-1, None):
            path = f"/new{expected}/below/a"
            with pytest.raises(GuardChangedError):
                await metadata.put(path, b"1", expected, Guard("/g", 0))
            assert await metadata.put(path, b"1", expected, Guard("/g", 1)) == 0
            assert await metadata.get(path) == (b"1", 0)
        for expected in (-1, 1):
            with pytest.raises(BadVersionError) as caught:
                await metadata.put("/g/a", b"4", expected, Guard("/g", 1))
            assert (caught.value.path, caught.value.expected, caught.value.found) == ("/g/a", expected, 2)
        for expected in (None, 1, 2):
            with pytest.raises(GuardChangedError):
                await metadata.delete("/g/a", expected, Guard("/g", 0))
        with pytest.raises(GuardChangedError):
            await metadata.delete("/g/none", None, Guard("/g", 0))
        with pytest.raises(BadVersionError):
            await metadata.delete("/g/a", 1, Guard("/g", 1))
        with pytest.raises(NoNodeError):
            await metadata.delete("/g/none", None, Guard("/g", 1))
        assert await metadata.get("/g/a") == (b"3", 2)
        await metadata.delete("/g/a", 2, Guard("/g", 1))
        await metadata.delete("/g/b", None, Guard("/g", 1))
        assert await metadata.children("/g") == []
        assert await metadata.get("/g") == (b"", 1)

    async def test_delete(self, metadata):
        await metadata.put("/a", b"1")
        await metadata.put("/a/child", b"2")
        with pytest.raises(BadVersionError):
            await metadata.delete("/a", 5)
        if self.parents_may_go:
            await metadata.delete("/a", 0)
            assert await metadata.children("/a") == ["child"]
        else:
            with pytest.raises(NotEmptyError):
                await metadata.delete("/a", 0)
            assert await metadata.get("/a") == (b"1", 0)
            await metadata.delete("/a/child")
            await metadata.delete("/a", 0)
        with pytest.raises(NoNodeError):
            await metadata.delete("/a")
        assert await metadata.put("/a", b"again", -1) == 0

    async def test_children_are_direct_names_sorted(self, metadata):
        for path in ("/m/b", "/m/a/x/y", "/m/a/x/z", "/m/c", "/m2/other", "/m"):
            await metadata.put(path, b"")
        assert await metadata.children("/m") == ["a", "b", "c"]
        assert await metadata.children("/m/a") == ["x"]
        assert await metadata.children("/m/a/x") == ["y", "z"]
        assert await metadata.children("/nothing") == []
        assert await metadata.children("/") == ["m", "m2"]

    async def test_sequences_never_repeat(self, metadata):
        assert [await metadata.next_sequence("/s") for _ in range(3)] == [0, 1, 2]
        assert await metadata.next_sequence("/s", 10) == 3
        assert await metadata.next_sequence("/s") == 13
        assert await metadata.next_sequence("/other") == 0

    async def test_concurrent_writers_of_one_version(self, metadata):
        await metadata.put("/a", b"")
        results = await asyncio.gather(*(metadata.put("/a", b"%d" % k, 0) for k in range(10)), return_exceptions=True)
        assert [r for r in results if not isinstance(r, BadVersionError)] == [1]
        assert await metadata.get("/a") == (b"0", 1)

    async def test_watch(self, metadata):
        seen: list[str] = []
        cancel = metadata.watch("/w", seen.append)
        await self.watching(metadata)
        await metadata.put("/w", b"")
        await until(lambda: seen == ["/w"])
        await metadata.put("/w/x/y", b"")
        await until(lambda: seen[-1] == "/w/x/y")
        await metadata.put("/ww", b"")
        await metadata.put("/w/x/y", b"2")
        await until(lambda: seen[-2:] == ["/w/x/y", "/w/x/y"])
        await metadata.delete("/w/x/y")
        with pytest.raises(NoNodeError):
            await metadata.delete("/w/none")
        await until(lambda: seen[-3:] == ["/w/x/y"] * 3)
        assert [path for path in seen if path != "/w/x"] == ["/w", *["/w/x/y"] * 3]
        cancel()
        cancel()
        count = len(seen)
        await metadata.put("/w", b"2")
        await self.watching(metadata)
        await asyncio.sleep(0)
        assert len(seen) == count

    async def test_put_ephemeral_replaces(self, metadata):
        assert await metadata.put_ephemeral("/e/1", b"1") == 0
        assert await metadata.put_ephemeral("/e/1", b"2") == 1
        assert await metadata.get("/e/1") == (b"2", 1)
        await metadata.delete("/e/1", 1)
        assert await metadata.get("/e/1") is None

    @pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b"])
    async def test_paths_are_checked(self, metadata, path):
        with pytest.raises(ValueError, match="metadata path"):
            await metadata.put(path, b"")

    async def test_closed(self, metadata):
        await metadata.close()
        await metadata.close()
        with pytest.raises(StorageClosedError):
            await metadata.get("/a")
        with pytest.raises(StorageClosedError):
            await metadata.put("/a", b"")
