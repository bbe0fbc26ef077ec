"""The stored ledger list: saves without an answer, other owners, and writes that depend on the list."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.errors import MetadataUnavailableError
from magnetar.storage.errors import GuardChangedError, ManagedLedgerFencedError, StorageUnavailableError
from magnetar.storage.managed.ledger_list import LedgerList
from magnetar.storage.managed.ledger_map import LedgerSlot
from magnetar.storage.zookeeper.zookeeper_metadata import ZooKeeperMetadataStore
from tests.storage.managed_for_tests import NAME
from tests.twins.memory_metadata import MemoryMetadataStore
from tests.twins.sim_zookeeper import SimSession, SimZooKeeper


class Lossy(MemoryMetadataStore):
    """Loses the answers of writes, or the writes too."""

    loses = ""

    async def put(self, *arguments):
        if self.loses == "write":
            raise StorageUnavailableError("no answer")
        version = await super().put(*arguments)
        if self.loses == "answer":
            raise StorageUnavailableError("no answer")
        return version

    async def delete(self, *arguments):
        await super().delete(*arguments)


async def loaded(metadata):
    made = LedgerList(NAME, metadata)
    await made.load(0, create_if_missing=True)
    return made


async def lose(owner, metadata, what, ledger_id=7):
    """Add a ledger by a save that gets no answer."""
    metadata.loses = what
    owner.ledgers.add(LedgerSlot(ledger_id))
    with pytest.raises(StorageUnavailableError):
        await owner.save()
    metadata.loses = ""


@pytest.mark.parametrize("what", ["answer", "write"])
async def test_an_owner_recognises_a_save_without_an_answer(what):
    for next_step in ("save", "is_taken_over", "delete"):
        metadata = Lossy()
        owner = await loaded(metadata)
        await lose(owner, metadata, what)
        assert not await getattr(owner, next_step)()
        if next_step != "delete":
            await owner.save()
            assert not owner.fenced


@pytest.mark.parametrize("what", ["answer", "write"])
async def test_the_second_save_without_an_answer_is_recognised_too(what):
    metadata = Lossy()
    owner = await loaded(metadata)
    await lose(owner, metadata, "write")
    await lose(owner, metadata, what, 8)
    await lose(owner, metadata, "write", 9)
    assert not await owner.is_taken_over()
    await owner.save()


@pytest.mark.parametrize("what", ["answer", "write"])
async def test_the_list_of_another_owner_is_not_taken_for_a_save_without_an_answer(what):
    metadata = Lossy()
    owner = await loaded(metadata)
    await lose(owner, metadata, what)
    other = await loaded(metadata)
    await other.save()
    for _ in range(2):
        with pytest.raises(ManagedLedgerFencedError):
            await owner.save()
    assert await owner.is_taken_over()
    await other.save()


async def test_an_unchanged_list_is_not_recognised():
    """A new owner stores the list as it found it: these bytes may be of either owner."""
    metadata = Lossy()
    owner = await loaded(metadata)
    metadata.loses = "write"
    with pytest.raises(StorageUnavailableError):
        await owner.save()
    metadata.loses = ""
    other = await loaded(metadata)
    await other.save()
    assert await owner.is_taken_over()


async def test_a_list_without_a_new_ledger_is_not_recognised():
    """A new owner recovers the empty ledger and stores the same list."""
    metadata = Lossy()
    owner = await loaded(metadata)
    owner.ledgers.add(LedgerSlot(1, 5, 500, 1000))
    owner.ahead = 2
    await owner.save()
    owner.ahead, metadata.loses = None, "write"
    with pytest.raises(StorageUnavailableError):
        await owner.save()
    metadata.loses = ""
    other = await loaded(metadata)
    other.ledgers.remove([2])
    await other.save()
    assert await owner.is_taken_over()


async def test_a_repeated_save_of_an_unchanged_list_does_not_recognise_that_of_another_owner():
    """The store repeats a write whose connection was lost, and finds the same bytes in the next version."""
    service = SimZooKeeper()

    async def ask(request):
        return request()

    async def lose_first(request):
        if not lost:
            lost.append(request)
            await (await loaded(other)).save()
            raise MetadataUnavailableError("/")
        return request()

    lost = []
    other = ZooKeeperMetadataStore(SimSession(service, ask, ask))
    await loaded(other)
    owner = await loaded(ZooKeeperMetadataStore(SimSession(service, ask, lose_first)))
    with pytest.raises(ManagedLedgerFencedError):
        await owner.save()
    assert len(lost) == 1
    assert owner.fenced


async def test_a_guarded_write_needs_the_list_of_this_owner():
    metadata = MemoryMetadataStore()
    owner = await loaded(metadata)
    write = lambda guard: metadata.put("/r", b"", None, guard)  # noqa: E731
    assert await owner.guarded(write) == 0
    await owner.save()
    assert await owner.guarded(write) == 1
    other = await loaded(metadata)
    assert await owner.guarded(write) == 2
    await other.save()
    for _ in range(2):
        with pytest.raises(ManagedLedgerFencedError):
            await owner.guarded(write)
    assert owner.fenced
    assert await other.guarded(write) == 3


async def test_a_guarded_write_waits_for_a_save_of_the_same_owner(monkeypatch):
    metadata = MemoryMetadataStore()
    owner = await loaded(metadata)
    put, goes_on = metadata.put, asyncio.Event()

    async def answer_later(*arguments):
        version = await put(*arguments)
        await goes_on.wait()
        return version

    monkeypatch.setattr(metadata, "put", answer_later)
    saving = asyncio.ensure_future(owner.save())
    await asyncio.sleep(0)
    writing = asyncio.ensure_future(owner.guarded(lambda guard: put("/r", b"", None, guard)))
    await asyncio.sleep(0)
    assert not writing.done()
    goes_on.set()
    assert await writing == 0
    await saving


async def test_a_list_that_changes_behind_the_look_fails_the_write():
    metadata = MemoryMetadataStore()
    owner = await loaded(metadata)

    async def refuse(guard):
        raise GuardChangedError(guard.path)

    with pytest.raises(GuardChangedError):
        await owner.guarded(refuse)
    assert not owner.fenced
