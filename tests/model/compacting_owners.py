"""Histories of owners on bookies whose log is compacted: ``wide_owners`` with the cursor of compaction.

Owners compact the log beside all other operations and faults, also when they have lost the log. The checks in addition, at
each opening:

- a compaction that was reported stays: the horizon never goes back;
- the compacted ledger has, at its position and with its bytes, the newest entry of each key up to the horizon;
- entries behind the horizon are in the log, acknowledged or not.

``python -m tests.model.compacting_owners FIRST COUNT`` plays more of them.
"""

from __future__ import annotations

import asyncio
import sys
from unittest import mock

from magnetar.broker.compaction.topic_compaction import COMPACTION_CURSOR, CompactionSettings, TopicCompaction
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.speed import after_prefix
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import NoSuchLedgerError
from magnetar.storage.position import EARLIEST
from magnetar.storage.zookeeper import zookeeper_metadata
from tests.model import owners_on_bookies
from tests.model.owners_on_bookies import Process
from tests.model.wide_owners import WideHistory
from tests.storage.managed_for_tests import NAME

__all__ = ["play"]

TOPIC = TopicName.parse("persistent://public/default/compacted")
KEYS = "abcd"


class CompactingHistory(WideHistory):
    """The operations, faults and checks of its parent, and compactions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.keys: dict[bytes, str] = {}
        """The key of each body."""
        self.horizon = EARLIEST
        """The horizon of the last compaction that was reported."""
        self.compactions = {}
        """Log -> its compaction."""

    async def run(self) -> int:
        losses, self.losses = self.losses, 0.0
        first = await Process(self, "compacting").factory.open(NAME, self.config)
        await first.open_cursor(COMPACTION_CURSOR, "earliest")
        await first.close()
        self.losses = losses
        return await super().run()

    def body(self) -> bytes:
        self.next_payload += 1
        key = self.chance.choice(KEYS)
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1000, partition_key=key)
        head = metadata.SerializeToString()
        body = len(head).to_bytes(4, "big") + head + b"m%d" % self.next_payload
        self.keys[body] = key
        return body

    async def open_checked(self, process):
        horizon, receipts = self.horizon, set(self.receipts)
        ledger = await super().open_checked(process)
        settings = CompactionSettings(asyncio.Semaphore(1), lambda: 0, 1000)
        compaction = TopicCompaction(TOPIC, ledger, process.store, settings)
        try:
            await compaction.open(keeps_all=True)
            await self.check_compacted(process, ledger, compaction, horizon, receipts)
        except BaseException:
            await ledger.close()  # as a topic does whose load fails; else the factory returns this log again
            raise
        self.compactions[ledger] = compaction
        return ledger

    async def check_compacted(self, process, ledger, compaction, horizon, receipts) -> None:
        current = compaction.current()
        found = EARLIEST if current is None else current.horizon
        if found < horizon:
            self.fail(f"{process.name}: the compaction up to {horizon} is lost, the horizon is {found}")
        behind = max(found, self.truncated_up_to)
        missing = [p for p in receipts if p > behind and not ledger.is_valid(p)]
        if missing:
            self.fail(f"{process.name}: {sorted(missing)[:3]} behind the horizon {found} are gone")
        if current is None:
            return
        newest = {}
        try:
            async for spans in current.ledger.scan():
                for slab, start, end in spans:
                    for k in range(start, end):
                        position, body = slab.position(k), bytes(slab.body(k))
                        body = body[after_prefix(body) :]
                        self.saw(position, body)
                        newest[self.keys[body]] = position
        except NoSuchLedgerError:
            if not await ledger.is_taken_over():
                self.fail(f"{process.name}: the compacted ledger {current.ledger.ledger_id} is gone")
            return
        for position in receipts:
            key = self.keys[self.receipts[position]]
            if self.truncated_up_to < position <= found and newest.get(key, EARLIEST) < position:
                self.fail(f"{process.name}: {position} of {key} is not in the compacted ledger up to {found}")

    async def compact(self, process, ledger) -> None:
        compaction = self.compactions[ledger]
        if not compaction.start():
            return
        await compaction.wait()
        current, status = compaction.current(), compaction.status()
        self.note(f"{process.name} has compacted: {status} {current}")
        if status.status == "SUCCESS" and current is not None and not process.wire.cut:
            self.horizon = max(self.horizon, current.horizon)

    async def publish(self, process, ledger) -> None:
        if self.chance.random() < 0.2:
            self.note(f"{process.name} compact")
            self.keep(self.carry_out(CompactingHistory.compact, process, ledger))
        await super().publish(process, ledger)

    async def leave(self, process, ledger, running) -> None:
        closing = self.keep(self.compactions[ledger].close())
        if self.chance.random() < 0.8:
            await closing
        await super().leave(process, ledger, running)


def play(seed: int) -> int:
    """Play one history; return the number of its receipts. Raises ViolationError."""
    with mock.patch.object(zookeeper_metadata, "_ATTEMPTS", 1 if seed % 2 else zookeeper_metadata._ATTEMPTS):
        return owners_on_bookies.play(seed, CompactingHistory)


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    print(sum(play(seed) for seed in range(first, first + count)), "receipts held")
