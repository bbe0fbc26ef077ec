"""The index of a topic that another broker takes, on the stores of a cluster: the former owner does not know yet."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.delayed.bucket_index import BucketDelayIndex
from magnetar.delayed.catalogue import catalogue_path, decode
from magnetar.delayed.delay_ports import DelayEnvironment
from magnetar.delayed.delay_settings import BucketSettings, DelayPolicy
from magnetar.storage.errors import ManagedLedgerFencedError
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.delayed.world_log import run_of
from tests.storage.managed_for_tests import NAME, Ground, settle


class Owner:
    """A broker that opens the log and its index."""

    def __init__(self, ground):
        self.ground = ground

    async def open(self):
        loop = asyncio.get_running_loop()

        async def off_loop(work):
            return work()

        self.log = await self.ground.open()
        environment = DelayEnvironment(
            ledgers=self.ground.ledgers,
            now_ms=self.ground.clock.now_ms,
            call_later=loop.call_later,
            spawn=lambda work, _name: loop.create_task(work),
            off_loop=off_loop,
        )
        settings = BucketSettings(min_index_count=3)
        self.index = BucketDelayIndex(NAME, self.log, DelayPolicy(), settings, environment)
        await self.index.open()
        return self

    async def publish(self, count):
        """Publish delayed messages, and wait for the work of the index."""
        run = run_of([self.ground.clock.now_ms() + 3_600_000 + k for k in range(count)])
        stored = asyncio.get_running_loop().create_future()
        self.log.append(run, stored.set_result)
        result = await stored
        assert result.error is None
        pieces = [(piece.ledger_id, piece.first_entry_id, piece.start, piece.end) for piece in result.pieces]
        self.index.published(run, pieces)
        for _ in range(5):
            await settle()

    async def catalogue(self):
        value, _ = await self.ground.metadata.get(catalogue_path(NAME))
        return decode(value)


async def test_a_former_owner_changes_no_catalogue_and_the_new_owner_stores_buckets():
    ground = Ground(layout=PulsarLayout())
    former = await Owner(ground).open()
    await former.publish(3)
    await former.publish(1)
    before = await former.catalogue()
    owner = await Owner(Ground(ground.ledgers, ground.metadata, PulsarLayout())).open()
    await former.index.close()
    assert await former.catalogue() == before
    await owner.publish(3)
    after = await owner.catalogue()
    assert len(before.buckets) == 1
    assert len(after.buckets) == 2
    await owner.index.close()
    await owner.log.close()


async def test_a_former_owner_that_knows_creates_no_further_ledgers():
    ground = Ground(layout=PulsarLayout())
    former = await Owner(ground).open()
    await former.publish(2)
    owner = await Owner(Ground(ground.ledgers, ground.metadata, PulsarLayout())).open()
    with pytest.raises(ManagedLedgerFencedError):
        await former.index._keeper.seal()
    before = await ground.ledgers.list_ledgers()
    former.index._work_soon()
    await settle()
    await former.index.close()
    assert await ground.ledgers.list_ledgers() == before
    await owner.index.close()
    await owner.log.close()


@pytest.mark.parametrize("step", range(9))
async def test_a_former_owner_that_deletes_the_index_leaves_every_ledger_of_the_new_owner(monkeypatch, step):
    """The log gets its new owner before one of the requests of the deletion."""
    ground = Ground(layout=PulsarLayout())
    former = await Owner(ground).open()
    await former.publish(3)
    owner, requests = Owner(Ground(ground.ledgers, ground.metadata, PulsarLayout())), []

    def watch(patch, store, name):
        method = getattr(store, name)

        async def request(*arguments):
            requests.append(name)
            if len(requests) == step + 1:
                await owner.open()
                await owner.publish(3)
            return await method(*arguments)

        patch.setattr(store, name, request)

    with monkeypatch.context() as patch:
        for name in ("get", "put", "delete"):
            watch(patch, ground.metadata, name)
        watch(patch, ground.ledgers, "delete")
        outcome = await asyncio.gather(former.index.delete(), return_exceptions=True)
    if len(requests) <= step:
        assert outcome == [None]
        assert await ground.metadata.get(catalogue_path(NAME)) is None
        assert await ground.ledgers.list_ledgers() == [slot.ledger_id for slot in former.log.ledgers]
        return
    assert isinstance(outcome[0], ManagedLedgerFencedError)
    named = {bucket.ledger_id for bucket in (await owner.catalogue()).buckets}
    assert named
    assert named <= set(await ground.ledgers.list_ledgers())
    await owner.index.close()
    await owner.log.close()
