"""Faults of the stores under a delayed index: failed and crashing writes of ledgers and metadata."""

from __future__ import annotations

import asyncio

from magnetar.storage.errors import StorageFullError


class Faults:
    """The outcome of the next calls of the stores: "ok", "before" (failed), "after" (done, reported as failed)."""

    def __init__(self):
        self.script = []
        self.outage = False
        self.calls = []
        self.crash_at = None

    async def around(self, name, action):
        await asyncio.sleep(0)
        self.calls.append(name)
        if self.crash_at is not None and len(self.calls) - 1 == self.crash_at[0]:
            if self.crash_at[1] == "after":
                await action()
            raise Crash
        outcome = "before" if self.outage else self.script.pop(0) if self.script else "ok"
        if outcome == "before":
            raise StorageFullError("told so")
        result = await action()
        if outcome == "after":
            raise StorageFullError("told so, but it was done")
        return result


class Crash(BaseException):
    """The process ends here."""


class FaultyWriter:
    def __init__(self, writer, faults):
        self._writer, self._faults = writer, faults

    def __getattr__(self, name):
        return getattr(self._writer, name)

    def append(self, slab, done):
        outcome = "before" if self._faults.outage else self._faults.script.pop(0) if self._faults.script else "ok"
        self._faults.calls.append("append")
        crash = self._faults.crash_at
        if crash is not None and len(self._faults.calls) - 1 == crash[0]:
            if crash[1] == "after":
                self._writer.append(slab, lambda _error: None)
            raise Crash
        if outcome == "before":
            asyncio.get_running_loop().call_soon(done, StorageFullError("told so"))
        else:
            self._writer.append(slab, done)

    async def close(self):
        return await self._faults.around("close", self._writer.close)


class FaultyLedgers:
    def __init__(self, store, faults):
        self.store, self._faults = store, faults
        self.max_record_bytes = store.max_record_bytes

    async def create(self, properties=None):
        return FaultyWriter(await self._faults.around("create", lambda: self.store.create(properties)), self._faults)

    async def read(self, *arguments):
        return await self._faults.around("read", lambda: self.store.read(*arguments))

    async def delete(self, ledger_id):
        return await self._faults.around("delete", lambda: self.store.delete(ledger_id))


class FaultyMetadata:
    def __init__(self, store, faults):
        self.store, self._faults = store, faults

    async def get(self, path):
        return await self._faults.around("get", lambda: self.store.get(path))

    async def put(self, path, value, expected_version=None, guard=None):
        return await self._faults.around("put", lambda: self.store.put(path, value, expected_version, guard))

    async def delete(self, path, expected_version=None, guard=None):
        return await self._faults.around("forget", lambda: self.store.delete(path, expected_version, guard))
