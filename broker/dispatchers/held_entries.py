"""The common part of Shared and Key_Shared: served consumers, held entries, the replay queue, redelivery counts.

Every entry that was read is in exactly one place: held by one consumer (`pending_acks`), waiting in the replay queue,
kept by the delay view, or acknowledged in the cursor. An entry changes its place within one turn of the event loop.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from pyroaring import BitMap

from magnetar.broker.compat import wire_refusals
from magnetar.broker.consumers.permits import UnackedLimit
from magnetar.broker.dispatchers.consumer_selection import RoundRobin
from magnetar.broker.dispatchers.deliver import Target, deliver
from magnetar.broker.dispatchers.redelivery_tracker import RedeliveryTracker
from magnetar.broker.dispatchers.replay_queue import ReplayQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.consumers.pending_acks import HeldOfLedger, PendingAck
    from magnetar.broker.dispatchers.deliver import HashLookup
    from magnetar.broker.dispatchers.ports import DispatchContext
    from magnetar.broker.dispatchers.read_loop import Read, ReadLoop
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Span

_CONSUMERS_OF_A_COMMAND = 64
"""Consumers that are looked at in the time of a command."""
_CONSUMER_COST_BYTES = 64  # of a look at a consumer for due entries of a ledger that it may hold
_COMPARED_TOGETHER = 256
"""Due entries that are compared with those that consumers hold, at least."""
_NOTED_AT_ONCE = 256
"""Hashes of redelivered entries that the replay queue notes at once: a read under way need not wait for them."""
_GROUP = 16  # from so many acknowledged entries on, bitmaps are cheaper than single entries


def _no_room(_consumer: Consumer) -> None:
    """Do nothing."""


def _always() -> bool:
    return True


class HeldEntries:
    """The held entries and unacked messages of a subscription whose consumers acknowledge individually.

    on_room: called with a consumer that can take more. on_replay: called when entries went to the replay queue.
    on_released: called with a consumer and an entry that it no longer holds. on_many_released: called instead with the
    number of such entries by hash. listens: whether these two have to be called at the moment.
    """

    def __init__(
        self,
        context: DispatchContext,
        loop: ReadLoop,
        on_room: Callable[[Consumer], None],
        on_replay: Callable[[], None] | None = None,
        on_released: Callable[[Consumer, PendingAck], None] | None = None,
        on_many_released: Callable[[Consumer, Mapping[int, int]], None] | None = None,
        listens: Callable[[], bool] = _always,
    ) -> None:
        self.context = context
        self.loop = loop
        self.members: RoundRobin[Consumer] = RoundRobin()
        self.replay = ReplayQueue()
        self.tracker = RedeliveryTracker()
        limit, total = context.settings.max_unacked_per_subscription, context.unacked_total
        self.unacked = UnackedLimit(limit) if total is None else total.book(limit, loop.wake)
        self._on_room = on_room
        self._on_replay = on_replay
        self._on_released = on_released
        self._on_many_released = on_many_released
        self._listens = listens

    # --- members -------------------------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Admit a consumer; the first consumer begins at the mark-delete position. Raises ConsumerBusyError."""
        limit = self.context.settings.max_consumers
        if 0 < limit <= len(self.members.consumers):
            raise wire_refusals.TOO_MANY_CONSUMERS_OF_SUBSCRIPTION.error()
        consumer.permits.set_max_unacked(self.context.settings.max_unacked_per_consumer)
        if not self.members.consumers:
            self._forget_places()
            self._forget_due()
            self.loop.rewind()
        self.members.add(consumer)
        self.loop.has_members(len(self.members.consumers))

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; other consumers get the messages that it held."""
        self.members.remove(consumer)
        self.loop.has_members(len(self.members.consumers))
        self.unacked.remove(consumer.permits.unacked)
        consumer.permits.unacked = 0
        if not self.members.consumers:
            if consumer.pending_acks is not None:
                consumer.pending_acks.clear()
            self._forget_places()
            self._forget_due()
            self.loop.forget_read()
            return
        for of_ledger in consumer.pending_acks.take_all() if consumer.pending_acks is not None else ():
            self._put_all_to_replay(of_ledger)
        self.loop.wake()

    def remove_all(self) -> None:
        """Remove all consumers."""
        for consumer in self.members.consumers:
            consumer.permits.unacked = 0
            if consumer.pending_acks is not None:
                consumer.pending_acks.clear()
        self.members.clear()
        self.loop.has_members(0)
        self._forget_places()
        self._forget_due()
        self.loop.forget_read()

    def _forget_due(self) -> None:
        """Clear the delay view before the cursor moves back: the cursor's reads find the due entries again."""
        if self.context.delay is not None:
            self.context.delay.clear()

    def _forget_places(self) -> None:
        self.replay.clear()
        self.tracker.clear()
        self.unacked.remove(self.unacked.total)

    def reset(self) -> None:
        """Forget all held and waiting entries, redelivery counts and the current read after the cursor was moved."""
        self._forget_places()
        self.loop.forget_read()
        self._forget_due()
        for consumer in self.members.consumers:
            if consumer.pending_acks is not None:
                consumer.pending_acks.clear()
            consumer.permits.given_back(consumer.permits.unacked)
        self.loop.wake()

    def cut_cycles(self) -> None:
        """Forget the functions of the dispatcher, which is closed."""
        self._on_room, self._on_replay, self._listens = _no_room, None, _always
        self._on_released = self._on_many_released = None

    def set_settings(self) -> None:
        """Apply the settings of the context after they were replaced; the read loop takes a turn by itself."""
        settings = self.context.settings
        self.unacked.set_limit(settings.max_unacked_per_subscription)
        for consumer in self.members.consumers:
            consumer.permits.set_max_unacked(settings.max_unacked_per_consumer)

    # --- redelivery ----------------------------------------------------------------------------------------------

    def redeliver_all(self, consumer: Consumer) -> None:
        """Return all entries that the consumer holds to the replay queue, and count their redelivery."""
        assert consumer.pending_acks is not None
        self._give_back(consumer, consumer.pending_acks.take_all())

    def redeliver(self, consumer: Consumer, entries: Mapping[int, Sequence[int]]) -> None:
        """Return to the replay queue those of the entries, given by ledger, that the consumer holds. The method makes
        no call for each entry, and none for ledgers that the consumer does not hold.
        """
        pending = consumer.pending_acks
        assert pending is not None
        held = pending.take(entries)
        self._give_back(consumer, held)
        if sum(len(of_ledger.key_hashes) for of_ledger in held) <= _NOTED_AT_ONCE:
            self.replay.take_in(_NOTED_AT_ONCE)

    def _give_back(self, consumer: Consumer, held: list[HeldOfLedger]) -> None:
        """Put entries that the client returns into the replay queue, and count their redelivery."""
        for of_ledger in held:
            waiting = self._put_all_to_replay(of_ledger)
            if waiting:
                self.tracker.increment_all(of_ledger.ledger_id, waiting)
        self._tell_released(consumer, held)
        self._no_longer_unacked(consumer, sum(of_ledger.messages for of_ledger in held))

    def _tell_released(self, consumer: Consumer, held: list[HeldOfLedger]) -> None:
        if self._on_many_released is None or not self._listens():
            return
        by_hash: Counter[int] = Counter()
        for of_ledger in held:
            by_hash.update(of_ledger.key_hashes.values())
        self._on_many_released(consumer, by_hash)

    def _no_longer_unacked(self, consumer: Consumer, messages: int) -> None:
        consumer.redelivered.add(messages, 0)
        consumer.permits.given_back(messages)
        self.unacked.remove(messages)
        self.loop.wake()

    def _put_all_to_replay(self, held: HeldOfLedger) -> BitMap:
        """Put all held entries of a ledger that are not acknowledged into the replay queue; return these entries."""
        waiting, acknowledged = held.entry_ids, self.context.cursor.mark_delete
        if held.ledger_id < acknowledged.ledger_id:
            return BitMap()
        if held.ledger_id == acknowledged.ledger_id and acknowledged.entry_id >= 0:
            waiting.remove_range(0, acknowledged.entry_id + 1)
        if waiting:
            self.replay.add_held(held.ledger_id, waiting, held.key_hashes)
            if self._on_replay is not None:
                self._on_replay()
        return waiting

    # --- acknowledgements ----------------------------------------------------------------------------------------

    def acked(self, consumer: Consumer, ledger_id: int, entry_ids: list[int]) -> int:
        """Release entries that `consumer` acknowledged as a whole; return the number of their held messages.

        An acknowledged entry that another consumer holds is released from that consumer.
        """
        rest: Iterable[int] = entry_ids
        messages = 0
        if len(entry_ids) >= _GROUP and consumer.pending_acks is not None:
            every = BitMap(entry_ids)
            plain = consumer.pending_acks.remove_plain(ledger_id, every)
            messages = len(plain)
            self._released(consumer, messages)
            if self.tracker:
                self.tracker.remove_all(ledger_id, plain)
            rest = every - plain if len(plain) < len(every) else ()
            if rest and not self.tracker and not (self._on_released is not None and self._listens()):
                keyed, rest = consumer.pending_acks.remove_keyed(ledger_id, rest)
                self._released(consumer, keyed)
                messages += keyed
        of_others = []
        for entry_id in rest:
            if self.tracker:
                self.tracker.remove(ledger_id, entry_id)
            held = self._acked_one(consumer, ledger_id, entry_id)
            if held is None:
                of_others.append(entry_id)
            else:
                messages += held
        for owner, entry_id in self._holders(consumer, ledger_id, of_others) if of_others else ():
            messages += self._acked_one(owner, ledger_id, entry_id) or 0
        return messages

    def _acked_one(self, owner: Consumer, ledger_id: int, entry_id: int) -> int | None:
        """Release an entry; return the number of its held messages, None when the consumer does not hold the entry."""
        held = None if owner.pending_acks is None else owner.pending_acks.remove(ledger_id, entry_id)
        if held is None:
            return None
        self._released(owner, held.unacked)
        if self._on_released is not None:
            self._on_released(owner, held)
        return held.unacked

    def _holders(
        self, acknowledging: Consumer, ledger_id: int, entry_ids: Collection[int]
    ) -> list[tuple[Consumer, int]]:
        """The consumers that hold some of these entries, each with an entry. The method looks at each consumer
        once, since a command may name thousands of entries that no consumer holds; the connection of the command
        spends as much.
        """
        wanted = BitMap(entry_ids)
        if commands := len(self.members.consumers) // _CONSUMERS_OF_A_COMMAND:
            acknowledging.outbox.spend(commands)
        return [
            (owner, entry_id)
            for owner in self.members.consumers
            if owner.pending_acks
            for entry_id in owner.pending_acks.among(ledger_id, wanted)
        ]

    def acked_parts(self, consumer: Consumer, ledger_id: int, left: Mapping[int, int]) -> int:
        """Note how many messages of some entries remain to be acknowledged; return the number of newly acknowledged
        messages.

        A partial ack, too, resets the redelivery count (Apache Pulsar 4.2.4).
        """
        messages, of_others = 0, []
        for entry_id, remaining in left.items():
            self.tracker.remove(ledger_id, entry_id)
            if consumer.pending_acks is not None and (ledger_id, entry_id) in consumer.pending_acks:
                messages += self._acked_part(consumer, ledger_id, entry_id, remaining)
            else:
                of_others.append(entry_id)
        for owner, entry_id in self._holders(consumer, ledger_id, of_others) if of_others else ():
            messages += self._acked_part(owner, ledger_id, entry_id, left[entry_id])
        return messages

    def _acked_part(self, owner: Consumer, ledger_id: int, entry_id: int, left: int) -> int:
        messages = 0 if owner.pending_acks is None else owner.pending_acks.reduce(ledger_id, entry_id, left)
        self._released(owner, messages)
        return messages

    def _released(self, owner: Consumer, messages: int) -> None:
        if messages:
            consumer_released = owner.permits.acked(messages)
            if self.unacked.remove(messages) or consumer_released:
                self._on_room(owner)

    def dropped_up_to(self, position: Position) -> None:
        """Forget entries up to `position`, which were skipped or expired: no consumer holds or awaits them."""
        self.replay.drop_up_to(position)
        self.tracker.drop_up_to(position)
        for consumer in self.members.consumers:
            held = consumer.pending_acks.drop_up_to(position) if consumer.pending_acks else []
            self._released(consumer, sum(of_ledger.messages for of_ledger in held))
            self._tell_released(consumer, held)

    # --- dispatch ------------------------------------------------------------------------------------------------

    def usable_permits(self) -> int:
        """Count the messages that the consumers can take now; request a callback from those that are not writable."""
        total = 0
        for consumer in self.members.consumers:
            usable = consumer.permits.usable
            if usable > 0:
                if consumer.is_writable():
                    total += usable
                else:
                    consumer.when_writable(partial(self._on_room, consumer))
        return total

    def take_due(self, limit: int) -> None:
        """Move up to `limit` delayed entries that became due into the replay queue; more where consumers may hold some.

        Where they hold all of these, a further turn follows for the due entries that are left: no event announces them.
        """
        delay = self.context.delay
        if delay is None or not delay.has_due():
            return
        if not delay.may_repeat:
            self.replay.add_all(delay.take_due(limit))
            return
        due = self._without_held(delay.take_due(max(limit, _COMPARED_TOGETHER)))
        self.replay.add_all(due)
        if not due and delay.has_due():
            self.loop.wake()

    def _without_held(self, positions: list[Position]) -> list[Position]:
        """Return the positions that no consumer holds; the method looks at each consumer once."""
        by_ledger: dict[int, BitMap] = {}
        for ledger_id, entry_id in positions:
            by_ledger.setdefault(ledger_id, BitMap()).add(entry_id)
        for owner in self.members.consumers:
            if not owner.pending_acks:
                continue
            for ledger_id, free in by_ledger.items():
                free.difference_update(BitMap(owner.pending_acks.among(ledger_id, free)))
        self.loop.note_cost(_CONSUMER_COST_BYTES * len(self.members.consumers) * len(by_ledger))
        return [position for position in positions if position.entry_id in by_ledger[position.ledger_id]]

    def may_read(self) -> bool:
        """Whether the dispatcher may read new entries now: the limit of unacknowledged messages, and the delay view,
        may pause reading. Redeliveries go on meanwhile, as in Apache Pulsar.
        """
        if self.unacked.blocked:
            return False
        return self.context.delay is None or not self.context.delay.pauses_reading

    def received(self, spans: list[Span], read: Read, gone: Callable[[Position], None] | None = None) -> list[Span]:
        """Return the spans of a read that may be sent. Entries of a replay read that are gone, skipped or held back
        leave the queue.

        gone: called for a position that the read did not return (acknowledged, deleted or parked), instead of its
        removal from the queue.
        """
        if read.positions is not None and len(read.positions) != sum(s.end - s.start for s in spans):
            there = {(s.slab.ledger_id, s.slab.first_entry_id + k) for s in spans for k in range(s.start, s.end)}
            for position in read.positions:
                if position not in there:
                    if gone is None:
                        self.replay.discard(*position)
                    else:
                        gone(position)
        sifted = self.loop.sift(spans, delayed=True)
        if read.positions is not None:
            for position in (*sifted.skipped, *sifted.held):
                self.replay.discard(*position)
        return sifted.spans

    def send(self, consumer: Consumer, span: Span, read: Read, key_hashes: HashLookup | None = None) -> int:
        slab, i, j = span
        before = consumer.permits.unacked
        queued = deliver(Target(consumer, self.tracker, key_hashes), self.context.cursor, span)
        self.unacked.add(consumer.permits.unacked - before)
        self.loop.sent_to[consumer] = None
        if read.positions is not None:
            self.replay.discard_run(slab.ledger_id, slab.first_entry_id + i, j - i)
        return queued

    def wait_in_replay(self, span: Span, key_hashes: HashLookup | None = None) -> None:
        """Put new entries that no consumer can take now into the replay queue, which the next reads try first."""
        slab, i, j = span
        for k in range(i, j):
            self.replay.add(slab.ledger_id, slab.first_entry_id + k, 0 if key_hashes is None else key_hashes[k])
