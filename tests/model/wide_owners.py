"""Histories of owners on bookies with more operations and faults than ``owners_on_bookies``.

The operations: acknowledgements of parts of batches, seeks, skips, snapshots as of deduplication, subscriptions that
come and go, properties, reads through cursors. The fault: a bookie is lost, BookKeeper's auto-recovery copies its
entries and closes its open ledgers, and the bookie comes back, perhaps empty.

The checks in addition: parts of batches and sequence ids whose save was reported are there at the next opening, and no
others; the entries behind a snapshot exist; subscriptions and properties are those of the last reported change.

``python -m tests.model.wide_owners FIRST COUNT`` plays more of them.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from unittest import mock

from magnetar.bookkeeper.errors import BookKeeperError
from magnetar.bookkeeper.metadata.ledger_metadata import Segment
from magnetar.bookkeeper.metadata.metadata_format import decode_metadata, encode_metadata
from magnetar.protocol.message_id import bits_to_words, words_to_bits
from magnetar.storage.errors import ManagedLedgerFencedError, StorageError, StorageUnavailableError
from magnetar.storage.managed.managed_ledger import AppendState
from magnetar.storage.position import EARLIEST, Position
from magnetar.storage.zookeeper import zookeeper_metadata
from tests.bookkeeper.sim_cluster import SimCluster
from tests.model import owners_on_bookies
from tests.model.owners_on_bookies import CLIENT, CURSORS, Process
from tests.storage.managed_for_tests import NAME

__all__ = ["play"]

PARTS = 8
"""Messages of each entry, as far as acknowledgements of parts go."""
FULL = (1 << PARTS) - 1
SNAPSHOTS = "pulsar.dedup"
SUBSCRIPTIONS = ("x", "y")
_REPLACEMENT_S = 60.0
PROPERTIES = ("user.a", "user.b")


class Register:
    """A value that owners change without notice of each other: the values that the next owner may find."""

    def __init__(self, value: object) -> None:
        self.possible = {value}
        self.under_way = 0
        self.changes = 0

    async def change(self, process, value, work) -> None:
        """Await the change, whose outcome is unknown after an error or a kill."""
        self.possible.add(value)
        self.under_way += 1
        self.changes += 1
        mine = self.changes
        try:
            await work
        finally:
            self.under_way -= 1
        if not process.wire.cut and not self.under_way and self.changes == mine:
            self.possible = {value}


class WideHistory(owners_on_bookies.History):
    """The operations and faults of its parent, and more."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        latency_s, reports = self.cluster.network.latency_s, self.cluster.service.reports_changes
        self.cluster = SimCluster(self.settings.ensemble_size + self.chance.choice((0, 1, 2)), seed)
        self.cluster.network.latency_s, self.cluster.service.reports_changes = latency_s, reports
        self.config = replace(self.config, cursor_save_acks=self.chance.choice((3, 1000)))
        self.parts_tried = {name: {} for name in CURSORS}
        """Cursor -> position -> bits of the messages that an owner acknowledged by parts."""
        self.parts_stored = {name: {} for name in CURSORS}
        """The same for acknowledgements whose save was reported."""
        self.seeks = {name: [] for name in CURSORS}
        """Cursor -> (process, position) of each seek."""
        self.snapshots_tried = {0: EARLIEST}
        """Sequence id -> the position up to which it counts."""
        self.snapshot_stored = 0
        self.next_sequence = 0
        self.taking_snapshot = set()
        self.reading = set()
        self.registers = {name: Register(False) for name in SUBSCRIPTIONS} | {
            name: Register(None) for name in PROPERTIES
        }
        self.truncated_up_to = EARLIEST
        """The last entry that owners may have dropped for all cursors."""
        self.lost_bookie = None

    async def run(self) -> int:
        losses, self.losses = self.losses, 0.0
        first = await Process(self, "zeroth").factory.open(NAME, self.config)
        await first.open_cursor(SNAPSHOTS, "earliest")
        await first.close()
        self.losses = losses
        return await super().run()

    # checks

    async def open_checked(self, process):
        """Open the log: it has the state that was stored before, but for changes made meanwhile, and nothing else."""
        process.sought = {name: len(found) for name, found in self.seeks.items()}
        seeks = dict(process.sought)
        stored = {name: set(found) for name, found in self.stored.items()}
        parts = {name: dict(found) for name, found in self.parts_stored.items()}
        snapshot, receipts = self.snapshot_stored, set(self.receipts)
        registers = {name: (each.changes, each.under_way) for name, each in self.registers.items()}
        ledger = await process.factory.open(NAME, self.config)
        self.note(f"{process.name} has opened {[(s.ledger_id, s.entries, s.closed_at_ms) for s in ledger.ledgers]}")
        for name in CURSORS:
            cursor = ledger.cursors.get(name)
            if cursor is None:
                self.fail(f"cursor {name} is gone")
            sought = [position for _, position in self.seeks[name][seeks[name] :]]
            self.check_entries(process, ledger, cursor, stored[name], sought)
            self.check_parts(process, ledger, cursor, {} if sought else parts[name])
        self.check_snapshot(process, ledger, snapshot, receipts)
        self.check_registers(process, ledger, registers)
        return ledger

    def check_entries(self, process, ledger, cursor, stored, sought) -> None:
        known = [position for position in self.seen if ledger.is_valid(position)]
        found = {position for position in known if cursor.is_deleted(position)}
        due = {position for position in stored.intersection(known) if all(position < each for each in sought)}
        if due - found:
            self.fail(f"{process.name}: {cursor.name} lost {sorted(due - found)}")
        if found - self.acknowledged[cursor.name]:
            self.fail(f"{process.name}: {cursor.name} skips {sorted(found - self.acknowledged[cursor.name])}")

    def check_parts(self, process, ledger, cursor, stored) -> None:
        for position in self.seen:
            if not ledger.is_valid(position) or cursor.is_deleted(position):
                continue
            words = cursor.ack_set(position)
            found = 0 if words is None else ~words_to_bits(words) & FULL
            if found & ~self.parts_tried[cursor.name].get(position, 0):
                self.fail(f"{process.name}: {cursor.name} skips parts {found:b} of {position}")
            if stored.get(position, 0) & ~found:
                self.fail(f"{process.name}: {cursor.name} lost parts {stored[position]:b} of {position}, has {found:b}")

    def check_snapshot(self, process, ledger, stored, receipts) -> None:
        """The sequence id never goes back, counts up to its position, and the entries behind that position exist."""
        cursor = ledger.cursors.get(SNAPSHOTS)
        if cursor is None or cursor.state_lost:
            self.fail(f"{process.name}: the snapshots are lost")
        sequence = cursor.position_properties.get("p", 0)
        if sequence < stored or sequence not in self.snapshots_tried:
            self.fail(f"{process.name}: the sequence id is {sequence}, {stored} was stored")
        position = max(self.snapshots_tried[sequence], self.truncated_up_to)
        missing = [p for p in receipts if p > position and not ledger.is_valid(p)]
        if missing:
            self.fail(f"{process.name}: {sorted(missing)[:3]} behind the snapshot {sequence} of {position} are gone")
        if cursor.mark_delete > position and ledger.is_valid(cursor.mark_delete):
            self.fail(f"{process.name}: mark-delete {cursor.mark_delete} with the snapshot of {position}")

    def check_registers(self, process, ledger, before) -> None:
        for name, register in self.registers.items():
            if before[name] != (register.changes, 0):
                continue  # an owner has changed or changes the value meanwhile
            found = (name in ledger.cursors) if name in SUBSCRIPTIONS else ledger.properties.get(name)
            if found not in register.possible:
                self.fail(f"{process.name}: {name} is {found}, not {register.possible}")
            register.possible = {found}

    # operations

    async def publish(self, process, ledger) -> None:
        if self.chance.random() < 0.5:
            operation = self.chance.choice(OPERATIONS)
            self.note(f"{process.name} {operation.__name__}")
            self.keep(self.carry_out(operation, process, ledger))
        await super().publish(process, ledger)

    async def carry_out(self, operation, process, ledger) -> None:
        try:
            await operation(self, process, ledger)
        except StorageError as error:
            self.note(f"{process.name} {operation.__name__}: {type(error).__name__} {error}")

    async def truncate(self, process, ledger) -> None:
        self.truncated_up_to = max(self.truncated_up_to, ledger.last_confirmed)
        await super().truncate(process, ledger)

    def moved_elsewhere(self, process, name) -> bool:
        """Whether another owner has sought: acknowledgements that this owner knows already cause no further save."""
        return any(each is not process for each, _ in self.seeks[name][process.sought[name] :])

    async def acknowledge(self, process, ledger) -> None:
        seeks = {name: len(found) for name, found in self.seeks.items()}
        before = {name: set(found) for name, found in self.stored.items()}
        await super().acknowledge(process, ledger)
        for name in CURSORS:
            if self.moved_elsewhere(process, name):
                self.stored[name] &= before[name]
            for _, position in self.seeks[name][seeks[name] :]:
                self.stored[name] = {p for p in self.stored[name] if p < position}

    async def flushed(self, process, cursor) -> bool:
        """Save the cursor; return whether its acknowledgements so far are stored and no seek has undone them."""
        seeks = len(self.seeks[cursor.name])
        await cursor.flush()
        sought = seeks != len(self.seeks[cursor.name]) or self.moved_elsewhere(process, cursor.name)
        return not process.wire.cut and not sought

    async def acknowledge_part(self, process, ledger) -> None:
        name = self.chance.choice(CURSORS)
        known = sorted(position for position in self.seen if ledger.is_valid(position))
        if not known:
            return
        position, remaining = self.chance.choice(known[-5:]), self.chance.randrange(1, FULL)
        tried, bits = self.parts_tried[name], FULL & ~remaining
        tried[position] = tried.get(position, 0) | bits
        if tried[position] == FULL:
            self.acknowledged[name].add(position)
        ledger.cursors[name].ack(position, bits_to_words(remaining))
        if self.chance.random() < 0.6 and await self.flushed(process, ledger.cursors[name]):
            stored = self.parts_stored[name]
            stored[position] = stored.get(position, 0) | bits
            self.note(f"{process.name} has stored parts of {position} of {name}")

    async def snapshot(self, process, ledger) -> None:
        """Store the highest sequence id with the position up to which it counts, as deduplication does."""
        known = sorted(position for position in self.receipts if ledger.is_valid(position))
        if not known or ledger.state is not AppendState.OPEN or process in self.taking_snapshot:
            return
        self.taking_snapshot.add(process)
        self.next_sequence += 1
        sequence, cursor = self.next_sequence, ledger.cursors[SNAPSHOTS]
        position = self.snapshots_tried[sequence] = max(known[-1], cursor.mark_delete)
        try:
            await cursor.mark_delete_with(position, {"p": sequence})
        finally:
            self.taking_snapshot.discard(process)
        if not process.wire.cut:
            self.note(f"{process.name} has stored snapshot {sequence} at {position}")
            self.snapshot_stored = max(self.snapshot_stored, sequence)

    async def release(self, process, ledger) -> None:
        """Acknowledge for all subscriptions up to an entry, take a snapshot there, and trim at the same time."""
        known = sorted(position for position in self.receipts if ledger.is_valid(position))
        if not known:
            return
        last = self.chance.choice(known[-3:])
        for name in (*CURSORS, *SUBSCRIPTIONS):
            if name in ledger.cursors:
                if name in CURSORS:
                    self.acknowledge_up_to(name, ledger, last)
                ledger.cursors[name].ack_cumulative(last)
        snapshot = self.keep(self.carry_out(WideHistory.snapshot, process, ledger))
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        await self.trim(process, ledger)
        process.doomed = self.chance.random() < 0.3
        if not process.doomed:
            await snapshot

    async def seek(self, process, ledger) -> None:
        known = sorted(position for position in self.seen if ledger.is_valid(position))
        if not known:
            return
        name, position = self.chance.choice(CURSORS), self.chance.choice(known)
        self.seeks[name].append((process, position))
        self.stored[name] = {p for p in self.stored[name] if p < position}
        self.parts_stored[name] = {p: bits for p, bits in self.parts_stored[name].items() if p < position}
        self.acknowledge_up_to(name, ledger, position.previous())
        self.note(f"{process.name} seeks {name} to {position}")
        await ledger.cursors[name].reset(position)

    async def skip(self, process, ledger) -> None:
        name, count = self.chance.choice(CURSORS), self.chance.choice((1, 5, 1000))
        cursor = ledger.cursors[name]
        last = cursor.unacknowledged(min(count, cursor.backlog_entries) - 1)
        if last is None:
            return
        self.acknowledge_up_to(name, ledger, last)
        self.acknowledged[name].update(p for p in self.seen if p <= last)
        skipped = {p for p in self.receipts if p <= last and ledger.is_valid(p)}
        cursor.skip(count)
        if await self.flushed(process, cursor):
            self.stored[name].update(skipped)

    async def subscribe(self, process, ledger) -> None:
        name, start = self.chance.choice(SUBSCRIPTIONS), self.chance.choice(("earliest", "latest"))
        if name not in ledger.cursors:  # else the call writes nothing, also where the log has another owner
            await self.registers[name].change(process, True, ledger.open_cursor(name, start))

    async def unsubscribe(self, process, ledger) -> None:
        name = self.chance.choice(SUBSCRIPTIONS)
        cursor = ledger.cursors.get(name)
        try:
            await self.registers[name].change(process, False, ledger.delete_cursor(name))
        except StorageUnavailableError:  # the deletion may have been carried out; a save makes the subscription stay
            if ledger.cursors.get(name) is cursor:
                await self.registers[name].change(process, True, self.saved(process, ledger, cursor))
            raise

    async def saved(self, process, ledger, cursor) -> None:
        """Save the cursor; no other owner is the reason of a failure."""
        try:
            await cursor.flush()
        except ManagedLedgerFencedError as error:
            if ledger.state is not AppendState.FENCED and not await ledger.is_taken_over():
                self.fail(f"{process.name}: {cursor.name} is not saved: {error}")
            raise

    async def set_property(self, process, ledger) -> None:
        name, value = self.chance.choice(PROPERTIES), str(self.chance.random())
        await self.registers[name].change(process, value, ledger.set_property(name, value))

    async def change_property(self, process, ledger) -> None:
        await ledger.cursors["s"].set_cursor_properties({"a": str(self.chance.random())})

    async def consume(self, process, ledger) -> None:
        """Read as a dispatcher does: no entry that is acknowledged."""
        cursor = ledger.cursors[self.chance.choice(CURSORS)]
        if cursor in self.reading:
            return
        self.reading.add(cursor)
        try:
            cursor.rewind()
            for _ in range(3):
                spans = cursor.read(7, 1 << 20)
                for span in spans if isinstance(spans, list) else await spans:
                    ledger_id, first = span.first_position
                    delivered = [Position(ledger_id, first + k) for k in range(span.entries)]
                    if any(map(cursor.is_deleted, delivered)):
                        self.fail(f"{process.name}: {cursor.name} delivers acknowledged entries of {delivered}")
        finally:
            self.reading.discard(cursor)

    # faults

    async def replace_bookie(self) -> None:
        """A bookie is lost; auto-recovery copies its entries, and the bookie comes back empty.

        Auto-recovery gives up behind a minute, and the bookie comes back with its entries: recoveries of the ledgers
        that owners meanwhile open beside too few bookies could follow each other for hours.
        """
        spare = len(self.cluster.bookies) - self.settings.ensemble_size
        if not spare or self.lost_bookie is not None:
            return
        lost = self.lost_bookie = self.any_bookie()
        lost.crash()
        self.cluster.refresh()
        await asyncio.sleep(self.chance.choice((0.1, 3.0)))
        auditor = self.cluster.join(f"auditor-{self.next_payload}", **CLIENT)
        self.cluster.clients.remove(auditor)
        done, deadline_s = True, asyncio.get_running_loop().time() + _REPLACEMENT_S
        for ledger_id in sorted(self.cluster.service.nodes):
            in_time = asyncio.get_running_loop().time() < deadline_s
            done = in_time and await self.replicate(ledger_id, lost, auditor) and done
        if done and self.chance.random() < 0.7:
            self.note(f"{lost.bookie_id} comes back empty")
            lost.ledgers.clear()
        lost.start()
        self.lost_bookie = None
        self.cluster.refresh()

    async def replicate(self, ledger_id, lost, auditor) -> bool:
        service = self.cluster.service
        for _ in range(5):
            if ledger_id not in service.nodes:
                return True
            data, version = service.newest(ledger_id)
            metadata = decode_metadata(ledger_id, data)
            if not any(lost.bookie_id in s.bookies for s in metadata.segments):
                return True
            if not metadata.is_closed and lost.bookie_id in metadata.last_segment.bookies:
                self.note(f"auto-recovery closes {ledger_id}")
                try:
                    await auditor.client.recover(ledger_id)
                except BookKeeperError as error:
                    self.note(f"auto-recovery: {error}")
                    await asyncio.sleep(1)
                continue
            segments = []
            for number, segment in enumerate(metadata.segments):
                if lost.bookie_id not in segment.bookies:
                    segments.append(segment)
                    continue
                last = (
                    metadata.segments[number + 1].first - 1
                    if number + 1 < len(metadata.segments)
                    else metadata.last_entry_id
                )
                chosen = self.copy(ledger_id, metadata, segment, last, lost)
                if chosen is None:
                    return False
                segments.append(Segment(segment.first, chosen))
            if service.newest(ledger_id)[1] != version:
                continue
            moved = encode_metadata(replace(metadata, segments=tuple(segments)))
            if ledger_id in service.closed_seen:
                service.closed_seen[ledger_id] = moved
            service.store(ledger_id, moved, version + 1)
            self.note(f"auto-recovery moves {ledger_id}")
            return True
        return False

    def copy(self, ledger_id, metadata, segment, last, lost):
        network = self.cluster.network
        others = [b for b in self.cluster.bookies if b.up and b.bookie_id not in segment.bookies]
        if not others:
            return None
        target = self.chance.choice(others)
        found = {}
        for entry_id in range(segment.first, last + 1):
            places = metadata.write_set(entry_id)
            if lost.bookie_id not in places:
                continue
            holders = [network.bookies[b] for b in places if network.bookies[b] is not lost]
            holder = next((b for b in holders if b.up and b.holds(ledger_id, entry_id)), None)
            if holder is None:
                return None
            found[entry_id] = holder.ledgers[ledger_id]
        for entry_id, source in found.items():
            ledger = target.ledgers.setdefault(ledger_id, type(source)(source.key))
            ledger.entries.setdefault(entry_id, source.entries[entry_id])
            ledger.synced.add(entry_id)
        return tuple(target.bookie_id if b == lost.bookie_id else b for b in segment.bookies)

    async def disturb(self) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            await asyncio.sleep(self.chance.choice((0.01, 0.1, 1.0, 3.0)) * self.chance.random())
            fault = self.chance.choice([*owners_on_bookies.FAULTS, *[WideHistory.replace_bookie] * 4])
            self.note(fault.__name__)
            await fault(self)
        await asyncio.sleep(self.chance.uniform(0, 3))

    async def crash_bookies(self) -> None:
        count = self.chance.choice([1, 1, 1, 2, len(self.cluster.bookies)])
        crashed = self.chance.sample(self.cluster.bookies, min(count, len(self.cluster.bookies)))
        crashed = [bookie for bookie in crashed if bookie is not self.lost_bookie]
        for bookie in crashed:
            bookie.crash()
        await self.some_time(seen=True)
        for bookie in crashed:
            if bookie is not self.lost_bookie:
                bookie.start()
        self.cluster.refresh()

    async def forget_fences(self) -> None:
        for bookie in self.cluster.bookies:
            if bookie is not self.lost_bookie:
                bookie.crash()
                bookie.start()


OPERATIONS = [
    WideHistory.acknowledge_part,
    WideHistory.acknowledge_part,
    WideHistory.snapshot,
    WideHistory.snapshot,
    WideHistory.release,
    WideHistory.seek,
    WideHistory.skip,
    WideHistory.subscribe,
    WideHistory.subscribe,
    WideHistory.unsubscribe,
    WideHistory.set_property,
    WideHistory.consume,
]


def play(seed: int) -> int:
    """Play one history; return the number of its receipts. Raises ViolationError. In histories of odd seeds the store
    does not repeat a write without an answer, as behind the last of its attempts.
    """
    with mock.patch.object(zookeeper_metadata, "_ATTEMPTS", 1 if seed % 2 else zookeeper_metadata._ATTEMPTS):
        return owners_on_bookies.play(seed, WideHistory)


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    print(sum(play(seed) for seed in range(first, first + count)), "receipts held")
