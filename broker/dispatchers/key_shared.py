"""Key_Shared: each key's messages go to one consumer, in order, while consumers join and leave (PIP-379)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyroaring import BitMap

from magnetar.broker.consumers.consumer import KEY_SHARED, KeySharedPolicy
from magnetar.broker.consumers.draining_hashes import DrainingHashes
from magnetar.broker.dispatchers.deliver import deliver_picked
from magnetar.broker.dispatchers.hash_ring import RingSelector
from magnetar.broker.dispatchers.held_entries import HeldEntries
from magnetar.broker.dispatchers.key_ranges import HASHES, KeySelector, SplitSelector, StickySelector
from magnetar.broker.dispatchers.key_shared_plan import plan_by_key
from magnetar.broker.dispatchers.keyed_spans import KeyHashes, are_plain, by_slab, runs
from magnetar.broker.dispatchers.picking import Hand, pick
from magnetar.broker.dispatchers.ports import Order
from magnetar.broker.dispatchers.read_loop import Read, ReadLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.consumers.pending_acks import PendingAck
    from magnetar.broker.dispatchers.key_ranges import Assignment
    from magnetar.broker.dispatchers.ports import DispatchContext, Transformed
    from magnetar.broker.policies.subscription_settings import SubscriptionSettings
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Slab, Span

_OWNERS_KNOWN = 8192
_SETTLING_COST_BYTES = 512 * 1024
"""Cost of a turn in which the replay queue notes hashes of many entries, or groups them by their owners."""


def policy_of(consumer: Consumer) -> KeySharedPolicy:
    """The consumer's KeySharedMeta; without one it is AUTO_SPLIT in order."""
    return consumer.spec.key_shared or KeySharedPolicy()


def make_selector(settings: SubscriptionSettings, policy: KeySharedPolicy) -> KeySelector:
    """Return a selector by the consumers' policy and the broker's settings."""
    if policy.sticky:
        return StickySelector()
    if settings.key_shared_consistent_hashing:
        return RingSelector(settings.key_shared_ring_points)
    return SplitSelector()


class KeySharedDispatcher:
    """Hands entries to the owners of their hashes; keeps the order of each key."""

    sub_type = KEY_SHARED

    def __init__(self, context: DispatchContext, policy: KeySharedPolicy) -> None:
        self.context = context
        self.loop = ReadLoop(context, self, Order.BY_KEY, delays=True)
        self.held = HeldEntries(
            context,
            self.loop,
            self.flow,
            self._replay_grew,
            self._no_longer_held,
            self._many_no_longer_held,
            lambda: bool(self.draining),
        )
        self.sticky = policy.sticky
        self.allow_out_of_order = policy.allow_out_of_order
        self.selector = make_selector(context.settings, policy)
        self.draining: DrainingHashes[Consumer] = DrainingHashes()
        self._changes = 1
        """Changes of the consumers, their permits and the replay queue, after which waiting entries may be sent."""
        self._changes_at_read = 0
        """`_changes` when the last read of waiting entries was chosen; the queue may change while it is under way."""
        self._changes_in_vain = 0
        """`_changes` when the last walk through the replay queue that found no entry to send began."""
        self._owners: dict[int, tuple[int, Consumer | None]] = {}
        """Hash and owner by Murmur hash of the key; cleared when hashes change their owner."""
        self._chosen: tuple[list[Position], int] | None = None
        """The first positions of their owners, chosen last, with the `additions` of the replay queue at that time."""
        self._parked: set[tuple[int, int]] = set()
        """Entries of the replay queue that cannot be converted now; entries with their key hash wait behind them."""

    # --- members -------------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self.held.members.consumers

    def occupant(self, _consumer: Consumer) -> None:
        """None: the dispatcher serves any number of consumers."""

    def add_consumer(self, consumer: Consumer) -> None:
        if isinstance(self.selector, StickySelector):
            self.selector.check(consumer)
        is_first, look_ahead = not self.consumers, self._look_ahead
        self.held.add_consumer(consumer)
        if is_first:
            self._forget_order()
        self._hashes_moved(self.selector.add(consumer))
        if look_ahead <= self.held.replay.entries < self._look_ahead:
            self.loop.wake()

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self.selector.remove(consumer)
            self.draining.consumer_left(consumer)
            self.held.remove_consumer(consumer)
            if not self.consumers:
                self._forget_order()
            self._hashes_moved([])

    def _hashes_moved(self, taken: list[Assignment]) -> None:
        """Note new owners of hashes: a hash drains while its former owner holds entries of it; its new owner waits."""
        self._changes += 1
        self._owners.clear()
        self.held.replay.owners_moved()
        if self.allow_out_of_order:
            return
        lost: dict[int, list[Assignment]] = {}
        for each in taken:
            lost.setdefault(id(each.owner), []).append(each)
        for ranges in lost.values():
            owner = cast("Consumer", ranges[0].owner)
            moved = bytearray(HASHES + 1)
            for each in ranges:
                moved[each.start : each.end + 1] = b"\1" * (each.end + 1 - each.start)
            for key_hash, held in {} if owner.pending_acks is None else owner.pending_acks.by_hash(moved).items():
                self.draining.drain(key_hash, owner, held)

    def remove_all(self) -> None:
        if self.consumers:
            self.selector.clear()
            self.held.remove_all()
            self._forget_order()
            self._hashes_moved([])

    def remove_for_seek(self) -> list[Consumer]:
        consumers = list(self.consumers)
        self.remove_all()
        return consumers

    def can_unsubscribe(self, consumer: Consumer) -> bool:
        return len(self.consumers) == 1 and self.consumers[0] is consumer

    def _forget_order(self) -> None:
        """Forget draining hashes and parked entries, because reading begins at another place."""
        self._parked.clear()
        self._changes += 1
        self.draining.clear()

    # --- changes -------------------------------------------------------------------------------------------------

    def flow(self, _consumer: Consumer) -> None:
        self._changes += 1
        self.loop.wake()

    def redeliver_all(self, consumer: Consumer, _epoch: int | None) -> None:
        self._changes += 1  # the consumer may have room now, though none of its entries waits
        self.held.redeliver_all(consumer)

    def redeliver(self, consumer: Consumer, entries: Mapping[int, Sequence[int]]) -> None:
        self._changes += 1
        self.held.redeliver(consumer, entries)

    def _replay_grew(self) -> None:
        self._changes += 1

    def _no_longer_held(self, consumer: Consumer, held: PendingAck) -> None:
        if self.draining and self.draining.released(held.key_hash, consumer):
            self.held.replay.may_go(held.key_hash)
            self._changes += 1
            self.loop.wake()

    def _many_no_longer_held(self, consumer: Consumer, by_hash: Mapping[int, int]) -> None:
        if freed := self.draining.many_released(by_hash, consumer):
            self.held.replay.all_may_go(freed)
            self._changes += 1
            self.loop.wake()

    def forget_read(self) -> None:
        self.loop.forget_read()

    def reset(self) -> None:
        self.held.reset()
        self._forget_order()

    def set_settings(self) -> None:
        self._changes += 1
        self.loop.set_settings()
        self.held.set_settings()

    def close(self) -> None:
        self.loop.close()

    def cut_cycles(self) -> None:
        self.loop.cut_cycles()
        self.held.cut_cycles()

    # --- entries that cannot be converted now --------------------------------------------------------------------

    def park(self, result: Transformed, _read: Read) -> None:
        for parked in result.parked:
            if parked.holds_key and not self.allow_out_of_order:
                position = parked.span.first_position
                self._parked.add(position)
                self._changes += 1  # the next walk passes over the entry, and finds entries behind it
                self.held.replay.add(*position, KeyHashes(parked.span.slab, self.selector)[parked.span.start])
        for parked in result.parked:
            self.loop.again_later(parked)

    def again(self, position: Position) -> None:
        self._parked.discard(position)
        self._changes += 1
        self.held.replay.add(position.ledger_id, position.entry_id)

    def not_again(self, position: Position) -> None:
        self._parked.discard(position)
        self.held.replay.discard(*position)
        self._changes += 1

    def dropped_up_to(self, position: Position) -> None:
        self.held.dropped_up_to(position)
        if self._parked:
            self._parked = {each for each in self._parked if each > position}
        self._changes += 1

    def _gone(self, position: Position) -> None:
        if position not in self._parked or self.context.cursor.is_deleted(position):
            self._parked.discard(position)
            self.held.replay.discard(*position)

    def receivers(self) -> Sequence[Consumer]:
        return self.consumers

    # --- dispatch ------------------------------------------------------------------------------------------------

    def _entry_permits(self, consumer: Consumer) -> int:
        """Entries that the consumer can take: its permits, limited by the room for unacked messages."""
        permits = consumer.permits
        if permits.usable <= 0 or not consumer.is_writable():
            return 0
        return min(permits.usable, -(-permits.unacked_room // max(consumer.messages_per_entry, 1)))

    def next_read(self) -> Read | None:
        permits = self.held.usable_permits()
        if permits <= 0:
            return self.loop.waiting_read() if self.loop.waits_for_entries and self.held.may_read() else None
        settings = self.context.settings
        limit = min(permits, settings.max_read_entries)
        if (throttle := self.context.throttle) is not None:
            limit = min(limit, max(throttle.room(), 1))  # a used-up rate stops the turn before
        if self.held.replay.entries and not self.held.replay.settle(self._select, self._waits):
            self.loop.note_cost(_SETTLING_COST_BYTES)
            self.loop.wake()
            return self._read_meanwhile(limit)
        waiting = self.held.replay.entries
        self.held.take_due(limit)
        in_vain = self._changes_in_vain == self._changes
        if self.held.replay.entries and (not in_vain or self.held.replay.entries > waiting):
            self._changes_at_read = self._changes
            positions = self._replayable(limit)
            if positions:
                return Read(limit, positions)
            self._changes_in_vain = self._changes
        return Read(limit) if self.held.replay.entries < self._look_ahead and self.held.may_read() else None

    def _read_meanwhile(self, limit: int) -> Read | None:
        """A read of some waiting entries while owners change in so many turns that no turn finds all groups made."""
        if self._parked:
            return None
        self._changes_at_read = 0
        found = self.held.replay.choose_meanwhile(self._select, self._entry_permits, limit, self._waits)
        return Read(limit, found) if found else None

    @property
    def _look_ahead(self) -> int:
        """The number of waiting entries at which reads of new entries stop."""
        return self.context.settings.look_ahead(len(self.consumers))

    def _first_of_owners(self, limit: int) -> list[Position] | None:
        """`_replayable` without a walk through all positions; None if parked entries matter or a hash is not known."""
        if self._parked:
            return None
        found = self.held.replay.choose(self._select, self._entry_permits, limit, self._waits)
        self._chosen = None if found is None else (found, self.held.replay.additions)
        return found

    @property
    def _waits(self) -> Callable[[int, Consumer], bool] | None:
        return self.draining.is_blocked if self.draining else None

    def _select(self, key_hash: int) -> Consumer | None:
        return cast("Consumer | None", self.selector.select(key_hash))

    def _replayable(self, limit: int) -> list[Position]:
        """The first waiting positions that can be sent now, or whose hash is not known yet."""
        found = self._first_of_owners(limit)
        if found is not None:
            return found
        if not self._parked:
            return self.held.replay.choose_with_unknown(self._select, self._entry_permits, limit, self._waits)
        chosen: list[Position] = []
        left: dict[Consumer, int] = {}
        refused: set[int] = set()
        for position in self.held.replay:
            key_hash = self.held.replay.hash_of(*position)
            if position in self._parked:
                refused.add(key_hash)
                continue
            if key_hash:
                if key_hash in refused:
                    continue
                consumer = cast("Consumer | None", self.selector.select(key_hash))
                if consumer is not None and consumer not in left:
                    left[consumer] = self._entry_permits(consumer)
                if consumer is None or left[consumer] <= 0 or self.draining.is_blocked(key_hash, consumer):
                    if not self.allow_out_of_order:
                        refused.add(key_hash)
                    continue
                left[consumer] -= 1
            chosen.append(position)
            if len(chosen) >= limit:
                break
        return chosen

    def dispatch(self, spans: list[Span], read: Read) -> int:
        waiting = self.held.replay.entries
        spans = self.held.received(spans, read, self._gone)
        if self.held.replay.entries < waiting:  # entries were acknowledged or delayed: others take their place
            self._changes += 1
        if not self.held.replay.knows_hashes:
            return self._let_wait(spans, read)
        if self._is_simple and are_plain(spans):
            return self._hand_out(spans, read)
        return self._dispatch_with_care(spans, read)

    def _let_wait(self, spans: list[Span], read: Read) -> int:
        """Send no entry of a read while the replay queue still notes hashes: an earlier entry of its key may wait."""
        self._changes += 1
        for span in spans if read.positions is None else ():
            self.held.wait_in_replay(span, KeyHashes(span.slab, self.selector))
        return 0

    @property
    def _is_simple(self) -> bool:
        """Whether only permits and the replay queue decide which entries the owner of a hash gets, and all entries go
        out unchanged.
        """
        return (
            not self.draining
            and not self.held.tracker
            and not self.context.cursor.has_partial_acks
            and all(consumer.takes_picked for consumer in self.consumers)
        )

    def _hand_out(self, spans: list[Span], read: Read) -> int:
        """Like `_dispatch_with_care`, with one call for all entries of a consumer; return the bytes queued."""
        replay = self.held.replay
        unknown = read.positions is not None and self._take_from_replay(spans)
        hand = Hand(
            self._owners,
            self._owner,
            self._entry_permits,
            {} if self._is_first(read) else replay.hashes,
            replay.first_of_hash,
            in_order=not self.allow_out_of_order,
        )
        for slab, parts in by_slab(spans):
            murmurs = slab.facts(want_hash=True).key_hashes
            assert murmurs is not None
            picked, waiting, hashes = pick(murmurs, parts, slab.ledger_id, slab.first_entry_id, hand)
            for consumer, of_consumer in picked.items():
                hand.picked.setdefault(consumer, []).append((slab, of_consumer))
            if waiting:
                replay.add_refused(slab.ledger_id, waiting, hashes)
        queued = 0
        for consumer, of_slabs in hand.picked.items():
            before = consumer.permits.unacked
            queued += sum(deliver_picked(consumer, slab, *picks) for slab, picks in of_slabs)
            self.held.unacked.add(consumer.permits.unacked - before)
            self.loop.sent_to[consumer] = None
        if read.positions is not None and not queued and not unknown:
            self._changes_in_vain = self._changes_at_read
        self._note_room(hand.left)
        return queued

    def _note_room(self, left: Mapping[Consumer, int]) -> None:
        """Have the next walk try the entries that this read refused where their consumer has room all the same: its
        room was estimated by the average number of messages in an entry. `left`: the estimates behind the read.
        """
        for consumer, entries in left.items():
            if entries <= 0 and self._entry_permits(consumer) > 0:
                self._changes += 1
                return

    def _is_first(self, read: Read) -> bool:
        """Whether the replay queue has no entry that an entry of this read could overtake."""
        chosen = self._chosen
        return chosen is not None and read.positions is chosen[0] and self.held.replay.additions == chosen[1]

    def _take_from_replay(self, spans: list[Span]) -> bool:
        """Take the read entries out of the replay queue; returns whether the hash of any was unknown."""
        taken: dict[int, BitMap] = {}
        for slab, i, j in spans:
            entry_ids = taken.get(slab.ledger_id)
            if entry_ids is None:
                entry_ids = taken[slab.ledger_id] = BitMap()
            entry_ids.add_range(slab.first_entry_id + i, slab.first_entry_id + j)
        unknown = False
        for ledger_id, entry_ids in taken.items():
            unknown |= self.held.replay.discard_all(ledger_id, entry_ids)
        return unknown

    def _owner(self, murmur: int) -> tuple[int, Consumer | None]:
        """Return the hash of a key and the consumer that serves it."""
        if len(self._owners) >= _OWNERS_KNOWN:
            self._owners.clear()
        key_hash = self.selector.hash_of(murmur)
        found = self._owners[murmur] = key_hash, cast("Consumer | None", self.selector.select(key_hash))
        return found

    def _dispatch_with_care(self, spans: list[Span], read: Read) -> int:
        """Dispatch entry by entry: entries may be batches or chunks, or were delivered or partly acknowledged before.
        Return the bytes queued.
        """
        entries: list[tuple[Slab, int]] = []
        keyed: list[tuple[tuple[int, int], int]] = []
        for slab, i, j in spans:
            hashes = KeyHashes(slab, self.selector)
            for k in range(i, j):
                entries.append((slab, k))
                keyed.append(((slab.ledger_id, slab.first_entry_id + k), hashes[k]))
        unknown = False
        if read.positions is not None:
            for position, _ in keyed:
                unknown |= not self.held.replay.hash_of(*position)
                self.held.replay.discard(*position)  # refused entries return below
        plan = plan_by_key(
            keyed,
            cast("Callable[[int], Consumer | None]", self.selector.select),
            self._entry_permits,
            None if self.allow_out_of_order else self,
        )
        for index in plan.refused:
            self.held.replay.add(*keyed[index][0], keyed[index][1])
        if read.positions is not None and not plan.given and not unknown:
            self._changes_in_vain = self._changes_at_read
        queued = sum(
            self.held.send(consumer, span, read, KeyHashes(span.slab, self.selector))
            for consumer, span in runs(plan.given, entries)
        )
        self._note_room(plan.left)
        return queued

    def drains(self, key_hash: int, consumer: object) -> bool:
        """Whether the hash must wait for its former owner (`key_shared_plan.Blocks`)."""
        return bool(self.draining) and self.draining.blocks(key_hash, cast("Consumer", consumer))

    def waits_behind(self, key_hash: int, position: tuple[int, int]) -> bool:
        """Whether an earlier entry of the hash is in the replay queue."""
        first = self.held.replay.first_of_hash(key_hash)
        return first is not None and first < position

    def key_ranges_of(self, consumer: Consumer) -> tuple[tuple[int, int], ...]:
        """The hash ranges a consumer serves now, for the stats."""
        return tuple(self.selector.ranges_of(consumer))
