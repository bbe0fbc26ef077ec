"""Chunks of one message on a Shared subscription: one consumer gets them all, as in Apache Pulsar 4.2.4."""

from __future__ import annotations

import asyncio
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.consumers.permits import Permits
from magnetar.broker.dispatchers import chunks, shared
from magnetar.broker.dispatchers.chunks import Chunk, ChunkOwners
from magnetar.broker.dispatchers.consumer_selection import RoundRobin
from magnetar.broker.policies.subscription_settings import SubscriptionSettings
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.broker.dispatch_fakes import SHARED, Bench, entry, got


def chunk(uuid, chunk_id, of=3):
    return entry(uuid=uuid, chunk_id=chunk_id, num_chunks_from_msg=of, total_chunk_msg_size=of)


def interleaved():
    return [chunk(uuid, chunk_id) for chunk_id in range(3) for uuid in "AB"]


async def test_chunks_wait_for_the_permits_of_their_consumer():
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=3)
    b = await bench.join(SHARED, "b", permits=9)
    bench.publish(*interleaved())
    assert (got(a), got(b)) == ([0, 1, 2], [])
    bench.publish(entry(), entry())
    assert (got(a), got(b)) == ([], [6, 7])
    bench.flow(a, 3)
    bench.clock.run()
    assert (got(a), got(b)) == ([3, 4, 5], [])


async def test_chunks_of_different_messages_are_divided():
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=3)
    b = await bench.join(SHARED, "b", permits=3)
    bench.publish(*[chunk(uuid, chunk_id) for uuid in "AB" for chunk_id in range(3)])
    assert (got(a), got(b)) == ([0, 1, 2], [3, 4, 5])


async def test_the_last_chunk_alone_in_a_read_follows_the_others():
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=9)
    b = await bench.join(SHARED, "b", permits=9)
    for chunk_id in range(3):
        bench.publish(chunk("A", chunk_id))
    bench.publish(entry())
    assert (got(a), got(b)) in (([0, 1, 2], [3]), ([0, 1, 2, 3], []))


async def test_a_long_uuid_is_kept_by_its_digest():
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=1)
    b = await bench.join(SHARED, "b", permits=9)
    long = "u" * 1_000_000
    bench.publish(chunk(long, 0), chunk(long, 1))
    assert (got(a), got(b)) == ([0], [])
    kept = [*bench.subscription.dispatcher._chunks._owners, *bench.subscription.dispatcher._waiting_chunks.all()]
    assert len(kept) == 2
    assert sum(map(len, map(repr, kept))) < 1000
    bench.flow(a, 3)
    bench.clock.run()
    bench.publish(chunk(long, 2))
    assert (got(a), got(b)) == ([1, 2], [])


async def test_a_chunk_with_metadata_of_megabytes_counts_as_a_message():
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=1)
    b = await bench.join(SHARED, "b", permits=9)
    large = "v" * (1 << 20)
    bench.publish(*[entry(uuid="A", chunk_id=k, num_chunks_from_msg=3, partition_key=large) for k in range(2)])
    assert (got(a), got(b)) == ([0], [1])


async def test_long_uuids_that_differ_at_their_end_are_two():
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=1)
    b = await bench.join(SHARED, "b", permits=9)
    bench.publish(chunk("u" * 5000 + "1", 0), chunk("u" * 5000 + "2", 0))
    assert (got(a), got(b)) == ([0], [1])


async def test_chunks_whose_uuid_is_not_utf8_follow_each_other():
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=9)
    b = await bench.join(SHARED, "b", permits=9)
    for chunk_id in range(3):
        bench.publish(chunk("uuid", chunk_id).replace(b"uuid", b"\xff\xfe\xfd\xfc"))
    bench.publish(entry())
    assert (got(a), got(b)) in (([0, 1, 2], [3]), ([0, 1, 2, 3], []))


async def test_all_chunks_go_to_another_when_their_consumer_leaves():
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=2)
    b = await bench.join(SHARED, "b", permits=9)
    bench.publish(*[chunk("A", chunk_id) for chunk_id in range(3)])
    assert (got(a), got(b)) == ([0, 1], [])
    bench.leave(a)
    bench.clock.run()
    assert got(b) == [0, 1, 2]


@pytest.mark.parametrize("closed", [True, False])
async def test_chunks_that_waited_are_sent_in_their_turn_when_all_consumers_left(closed):
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=1)
    b = await bench.join(SHARED, "b", permits=1)
    bench.publish(chunk("A", 0), chunk("A", 1), entry())
    bench.publish(chunk("A", 2), entry())
    assert (got(a), got(b)) == ([0], [2])
    if closed:
        bench.subscription.disconnect_all()
    else:
        bench.leave(a)
        bench.leave(b)
    c = await bench.join(SHARED, "c", permits=9)
    bench.clock.run()
    assert got(c) == [0, 1, 2, 3, 4]


async def test_a_seek_forgets_the_consumers_of_chunks():
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=1)
    bench.publish(*[chunk("A", chunk_id) for chunk_id in range(2)])
    bench.publish(chunk("A", 2))
    assert got(a) == [0]
    last, owners = [bench.log.span(2)], bench.subscription.dispatcher._chunks
    assert owners.concern(last)
    bench.subscription.dispatcher.reset()
    assert not owners.concern(last)


async def test_a_turn_that_finds_only_waiting_chunks_has_its_cost(monkeypatch):
    monkeypatch.setattr(shared, "_MAX_WAITING", 0)
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=1)
    await bench.join(SHARED, "b", permits=9)
    bench.publish(chunk("A", 0), chunk("A", 1))
    assert got(a) == [0]
    loop = bench.subscription.dispatcher.loop
    assert [loop.entries_available() for _ in range(3)] == [shared._MESSAGE_COST_BYTES] * 3


class Seat:
    priority_level = 0

    def __init__(self, permits):
        self.permits = Permits()
        self.permits.flow(permits)

    def is_writable(self):
        return True


@given(st.lists(st.tuples(st.sampled_from("ABCDE"), st.integers(0, 3)), max_size=30), st.integers(1, 6))
def test_a_message_has_one_owner_at_a_time_and_waiting_chunks_are_not_overtaken(order, permits):
    seats = RoundRobin()
    for _ in range(3):
        seats.add(Seat(permits))
    entries = [Chunk(uuid, chunk_id, 5) for uuid, chunk_id in order]
    given_to = ChunkOwners().plan(seats, entries, None)
    assert len(given_to) == len(entries)
    for _, group in groupby(sorted(range(len(entries)), key=lambda k: entries[k].uuid), lambda k: entries[k].uuid):
        owners = [given_to[k] for k in group]
        assert len({id(o) for o in owners if o is not None}) <= 1
        assert owners == sorted(owners, key=lambda o: o is None)
    assert all(sum(g is seat for g in given_to) <= permits for seat in seats.consumers)


def test_of_too_many_unfinished_messages_the_oldest_is_forgotten(monkeypatch):
    monkeypatch.setattr(chunks, "MAX_UNFINISHED", 2)
    seats, owners = RoundRobin(), ChunkOwners()
    first, second = Seat(3), Seat(9)
    seats.add(first)
    seats.add(second)
    assert owners.plan(seats, [Chunk(uuid, 0, 2) for uuid in "ABC"], None) == [first] * 3
    first.permits = Permits()
    assert owners.plan(seats, [Chunk(uuid, 1, 2) for uuid in "ABC"], None) == [second, None, None]


async def test_messages_behind_waiting_chunks_come_again_and_expired_chunks_do_not():
    bench = Bench(max_read_entries=2)
    a = await bench.join(SHARED, "a", permits=1)
    b = await bench.join(SHARED, "b", permits=9)
    chunks_of_a = bench.publish(*[chunk("A", chunk_id) for chunk_id in range(3)])
    returned = bench.publish(entry())
    assert (got(a), got(b)) == ([0], [3])
    bench.redeliver(b, *returned)
    assert got(b) == [3]
    bench.cursor.ack_cumulative(chunks_of_a[-1])
    bench.subscription.backlog_dropped(chunks_of_a[-1])
    bench.redeliver(b, *returned)
    bench.flow(a, 1)
    assert got(a) + got(b) == [3]


async def test_an_unfinished_message_costs_later_messages_no_look_at_their_metadata(monkeypatch):
    """Each later entry cost six microseconds more."""
    bench = Bench()
    a = await bench.join(SHARED, "a", permits=9)
    b = await bench.join(SHARED, "b", permits=9)
    bench.publish(chunk("producer-a-0", 0))
    bench.publish(chunk("producer-b-0", 0, of=2))
    looks = []
    monkeypatch.setattr(shared, "chunk_in", lambda body: looks.append(body) or chunks.chunk_in(body))
    bench.publish(entry(b"x" * 100), entry(), entry())
    assert not looks
    bench.publish(chunk("producer-b-0", 1, of=2), entry(b"producer"))
    assert len(looks) == 2
    bench.publish(entry(b"x" * (1 << 14)))
    assert len(looks) == 3
    assert sorted(got(a) + got(b)) == list(range(8))


async def test_of_many_unfinished_messages_every_last_chunk_finds_its_consumer():
    bench = Bench()
    consumers = [await bench.join(SHARED, name, permits=99) for name in "ab"]
    names = [f"message-{number}" for number in range(chunks._FEW_UNFINISHED + 2)]
    for name in names:
        bench.publish(chunk(name, 0, of=2))
    firsts = [got(consumer) for consumer in consumers]
    for name in names:
        bench.publish(chunk(name, 1, of=2))
    assert [got(consumer) for consumer in consumers] == [[k + len(names) for k in mine] for mine in firsts]


async def test_messages_behind_waiting_chunks_go_to_other_consumers():
    """The permits suffice for fewer entries than wait for the consumer of the chunks."""
    bench = Bench()
    owner = await bench.join(SHARED, "owner", permits=1)
    bench.publish(chunk("A", 0))
    leaver = await bench.join(SHARED, "leaver", permits=9)
    bench.publish(chunk("A", 1), chunk("A", 2), entry())
    assert (got(owner), got(leaver)) == ([0], [3])
    heir = await bench.join(SHARED, "heir", permits=1)
    bench.leave(leaver)
    assert (got(owner), got(heir)) == ([], [3])
    bench.flow(owner, 2)
    assert (got(owner), got(heir)) == ([1, 2], [])


async def test_entries_behind_many_waiting_chunks_come_again(monkeypatch):
    """The dispatcher read nothing again while more than a thousand chunks waited for the permits of a consumer."""
    monkeypatch.setattr(shared, "_MAX_WAITING", 4)
    bench = Bench(max_read_entries=2)
    owner = await bench.join(SHARED, "owner", permits=30)
    held = bench.publish(*[chunk("A", chunk_id, of=41) for chunk_id in range(30)])
    bench.clock.run()
    assert got(owner) == list(range(30))
    other = await bench.join(SHARED, "other", permits=9)
    others = bench.publish(entry(), entry(), entry())
    assert got(other) == [30, 31, 32]
    bench.redeliver(owner, *held)
    bench.redeliver(other, *others)
    bench.clock.run()
    assert (got(owner), got(other)) == ([], [30, 31, 32])
    bench.publish(entry())
    assert got(other) == [], "new entries wait while so many chunks wait"
    bench.flow(owner, 30)
    bench.clock.run()
    assert (got(owner), got(other)) == (list(range(30)), [33])


async def test_a_turn_looks_at_a_bounded_number_of_waiting_chunks():
    bench = Bench(max_read_entries=100)
    owner = await bench.join(SHARED, "owner", permits=3000)
    held = bench.publish(*[chunk("A", chunk_id, of=4001) for chunk_id in range(3000)])
    bench.clock.run()
    await bench.join(SHARED, "other", permits=1000)
    reads = bench.cursor.reads
    bench.subscription.on_redeliver(owner, [pb.MessageIdData(ledgerId=p[0], entryId=p[1]) for p in held], None)
    _, _, first_round, _ = bench.clock._queue.pop(0)
    first_round()
    assert 0 < bench.cursor.reads - reads <= 8
    bench.clock.advance(1)
    assert bench.cursor.reads - reads >= 30


async def test_consumers_that_leave_together_leave_no_chunk_that_waits():
    bench = Bench()
    owner = await bench.join(SHARED, "owner", permits=1)
    await bench.join(SHARED, "other", permits=9)
    bench.publish(chunk("A", 0), chunk("A", 1))
    assert got(owner) == [0]
    bench.subscription.disconnect_all()
    assert not bench.subscription.dispatcher._waiting_chunks
    heir = await bench.join(SHARED, "heir", permits=9)
    bench.publish(chunk("A", 2))
    bench.clock.run()
    assert got(heir) == [0, 1, 2]


async def test_a_raised_limit_of_unacked_messages_sends_the_chunks_that_waited():
    bench = Bench(max_unacked_per_consumer=1)
    owner = await bench.join(SHARED, "owner", permits=9)
    await bench.join(SHARED, "other", permits=9)
    bench.publish(*[chunk("A", chunk_id) for chunk_id in range(3)])
    assert got(owner) == [0]
    bench.subscription.set_settings(SubscriptionSettings(max_unacked_per_consumer=0))
    bench.clock.run()
    assert got(owner) == [1, 2]


async def test_a_new_chunk_does_not_overtake_a_waiting_chunk():
    """The consumer sends FLOW while a chunk is read whose predecessor waits for that FLOW."""
    bench = Bench(cold=True)
    owner = await bench.join(SHARED, "owner", permits=1)
    bench.publish(chunk("A", 0))
    await bench.settle()
    await bench.join(SHARED, "other", permits=9)
    bench.publish(chunk("A", 1))
    await bench.settle()
    assert got(owner) == [0]
    bench.publish(chunk("A", 2))
    bench.flow(owner, 5)
    await bench.settle()
    assert got(owner) == [1, 2]


async def test_a_chunk_that_comes_again_does_not_overtake_a_waiting_chunk():
    """The FLOW of their consumer comes during the read of the second chunk."""
    bench = Bench(cold=True)
    a = await bench.join(SHARED, "a", permits=2)
    bench.publish(chunk("A", 0), chunk("A", 1))
    await bench.settle()
    assert got(a) == [0, 1]
    bench.redeliver(a)
    await bench.join(SHARED, "b", permits=1)
    while not bench.subscription.dispatcher._waiting_chunks:
        await asyncio.sleep(0)
        bench.clock.run()
    bench.flow(a, 9)
    await bench.settle()
    assert got(a) == [0, 1]
