"""Subscriptions of every type with converters: order, policies, waiting, parking."""

import asyncio

import pytest

from magnetar.broker.dispatchers.ports import Order, Transformed
from magnetar.broker.foreign_entries import transformer as module
from magnetar.converters.chain import ConverterChain, loaded
from magnetar.converters.entry import Entry, build_entry, replace_entry_format
from magnetar.converters.interface import Conversion
from magnetar.converters.outcome import ConversionFailure, Converted, FailureReason
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.metadata import split_entry
from tests.broker.dispatch_fakes import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, Bench, entry, slab_of
from tests.broker.foreign_entries.converting_for_tests import World, foreign, rounds

TYPES = [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED]
BAD = foreign(b"bad", messages=3, partition_key="bad")
FAILURE = ConversionFailure(FailureReason.EXCEPTION, "far", "no")


class Sub(Bench):
    """A subscription with converters; dispatch and converters share a clock."""

    def __init__(self, *remotes, policy="park", park_ordered="block", **config):
        super().__init__(failover_delay_ms=0)
        self.world = World(*remotes, failure_policy=policy, park_ordered=park_ordered, **config)
        self.subscription.context.transform = self.transform = self.world.topic.transformer("sub")

    async def later(self, seconds):
        for _ in range(round(seconds * 20)):
            self.world.now_ms += 50
            self.clock.advance(0.05)
            await rounds(3)

    async def settle(self):
        for _ in range(5):
            await rounds()
            self.clock.run()


def payloads(consumer):
    return [bytes(split_entry(m.payload)[1]) for m in consumer.outbox.take()]


@pytest.mark.parametrize("kind", TYPES)
async def test_converted_and_stored_entries_in_their_order(kind):
    sub = Sub()
    consumer = await sub.join(kind, permits=100)
    sub.publish(entry(b"0"), foreign(b"1"), foreign(b"2"), entry(b"3", batch=1), foreign(b"4"))
    messages = consumer.outbox.take()
    assert [m.position.entry_id for m in messages] == [0, 1, 2, 3, 4]
    assert [bytes(split_entry(m.payload)[1])[-1:] for m in messages] == [b"0", b"1", b"2", b"3", b"4"]
    assert [len(split_entry(m.payload)[0].properties) for m in messages] == [0, 1, 1, 0, 1]
    for message in messages:
        assert b"entry.format\x12" not in message.payload


async def test_a_read_without_foreign_entries_comes_back_as_it_is():
    sub = Sub()
    spans = [slab_of(1, 0, [entry(), entry()]).slice(0, 2)]
    assert sub.transform(spans, Order.NONE) is spans
    nobodys = [slab_of(1, 0, [foreign(b"x", "other")]).slice(0, 1)]
    assert sub.transform(nobodys, Order.TOTAL) is nobodys


@pytest.mark.parametrize("kind", TYPES)
async def test_a_worker_is_waited_for_and_order_kept(kind):
    sub = Sub("far")
    consumer = await sub.join(kind, permits=100)
    sub.publish(foreign(b"0"), foreign(b"1", "far"), foreign(b"2"))
    await sub.settle()
    assert payloads(consumer) == []
    await sub.world.pool.answer(Converted(entry(b"1"), 1))
    await sub.settle()
    assert payloads(consumer) == [b"0", b"1", b"2"]


async def test_shared_does_not_wait_for_long(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0)
    sub = Sub("far")
    consumer = await sub.join(SHARED, permits=100)
    sub.publish(foreign(b"0"), foreign(b"1", "far"), foreign(b"2"))
    assert payloads(consumer) == [b"0", b"2"]
    await sub.world.pool.answer(Converted(entry(b"1"), 1))
    await sub.later(2)
    assert payloads(consumer) == [b"1"]


async def test_holes_are_acknowledged_and_their_bits_cleared():
    sub = Sub("far")
    consumer = await sub.join(SHARED, permits=100)
    [position] = sub.publish(foreign(b"x", "far", messages=60))
    await sub.settle()
    await sub.world.pool.answer(Converted(entry(b"new", batch=60), 60, holes=(0, 59)))
    await sub.settle()
    [message] = consumer.outbox.take()
    assert message.ack_set == ((1 << 59) - 2,)
    assert consumer.permits.available == 100 - 58
    assert consumer.permits.unacked == 58
    sub.ack(consumer, position)
    assert sub.cursor.backlog_entries == 0


@pytest.mark.parametrize("kind", TYPES)
async def test_entries_of_holes_only_are_delivered_to_no_consumer(kind):
    sub = Sub("far")
    consumer = await sub.join(kind, permits=100)
    sub.publish(foreign(b"x", "far", messages=2), foreign(b"y"))
    await sub.settle()
    await sub.world.pool.answer(Converted(entry(b"new", batch=2), 2, holes=(0, 1)))
    await sub.settle()
    assert payloads(consumer) == [b"y"]
    assert sub.cursor.deleted == {0}


@pytest.mark.parametrize("kind", TYPES)
async def test_policy_raw(kind):
    sub = Sub(policy="raw")
    consumer = await sub.join(kind, permits=100)
    sub.publish(foreign(b"0"), BAD, foreign(b"2"))
    messages = consumer.outbox.take()
    assert messages[1].payload == BAD
    assert len(messages) == 3
    assert sub.world.counters().raw == 1


@pytest.mark.parametrize("kind", TYPES)
async def test_policy_skip(kind):
    sub = Sub(policy="skip")
    consumer = await sub.join(kind, permits=100)
    sub.publish(foreign(b"0"), BAD, foreign(b"2"))
    assert payloads(consumer) == [b"0", b"2"]
    assert sub.cursor.deleted == {1}
    assert sub.world.counters().skipped == 1


async def test_a_timeout_is_tried_again_before_it_is_skipped():
    sub = Sub("far", policy="skip", dead_letter_attempts=2)
    consumer = await sub.join(SHARED, permits=100)
    sub.publish(foreign(b"0", "far"))
    await sub.settle()
    await sub.world.pool.answer(ConversionFailure(FailureReason.TIMEOUT, "far", "slow"))
    await sub.later(1.2)
    assert sub.cursor.deleted == set()
    await sub.world.pool.answer(ConversionFailure(FailureReason.TIMEOUT, "far", "slow"))
    await sub.later(3)
    assert sub.cursor.deleted == {0}
    assert payloads(consumer) == []


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_park_holds_later_entries_until_the_conversion_succeeds(kind):
    sub = Sub()
    consumer = await sub.join(kind, permits=100)
    sub.publish(foreign(b"0"), BAD, foreign(b"2"))
    sub.publish(foreign(b"3"))
    assert payloads(consumer) == [b"0"]
    assert sub.transform.parked() == 1
    await sub.later(0.9)
    assert payloads(consumer) == []
    sub.world.use(ConverterChain([loaded(Tolerant())]))
    await sub.later(0.3)
    assert [m.position.entry_id for m in consumer.outbox.take()] == [1, 2, 3]
    assert sub.transform.parked() == 0


class Tolerant:
    """Converts entries that the bytes converter refuses."""

    name = "bytes"
    version = "2"
    entry_formats = frozenset(("bytes",))

    def close(self):
        pass

    def accepts(self, metadata, head):
        return True

    def convert(self, metadata, payload):
        converted = pb.MessageMetadata()
        converted.CopyFrom(metadata)
        replace_entry_format(converted, self.name)
        singles = b"".join(
            len(raw).to_bytes(4, "big") + raw + bytes(payload if k == 0 else b"")
            for k in range(metadata.num_messages_in_batch)
            for raw in [pb.SingleMessageMetadata(payload_size=len(payload) if k == 0 else 0).SerializeToString()]
        )
        return Conversion(converted, singles if metadata.HasField("num_messages_in_batch") else payload)


@pytest.mark.parametrize("kind", TYPES)
async def test_park_may_let_others_pass(kind):
    sub = Sub(park_ordered="pass")
    consumer = await sub.join(kind, permits=100)
    sub.publish(foreign(b"0"), BAD, foreign(b"2", partition_key="bad"))
    assert payloads(consumer) == [b"0", b"2"]
    sub.world.use(ConverterChain([loaded(Tolerant())]))
    await sub.later(1.2)
    assert [m.position.entry_id for m in consumer.outbox.take()] == [1]


async def test_park_holds_its_key_only():
    sub = Sub()
    consumer = await sub.join(KEY_SHARED, permits=100)
    sub.publish(BAD, foreign(b"1", partition_key="other"), foreign(b"2", partition_key="bad"))
    assert payloads(consumer) == [b"1"]
    sub.world.use(ConverterChain([loaded(Tolerant())]))
    await sub.later(1.2)
    assert [m.position.entry_id for m in consumer.outbox.take()] == [0, 2]


@pytest.mark.parametrize("how", ["skipped", "acknowledged"])
@pytest.mark.parametrize("kind", TYPES)
async def test_a_parked_entry_that_is_acknowledged_otherwise_holds_no_consumer(kind, how):
    sub = Sub()
    consumer = await sub.join(kind, permits=100)
    [position, *_] = sub.publish(BAD, foreign(b"1", partition_key="bad"))
    sub.cursor.ack_many([position])
    if how == "skipped":
        sub.subscription.backlog_dropped(position)
        await sub.later(0.1)
    else:
        await sub.later(1.2)
    assert payloads(consumer) == [b"1"]


@pytest.mark.parametrize("kind", TYPES)
async def test_dead_letters_after_so_many_attempts(kind):
    sub = Sub(policy="dlq", dead_letter_attempts=2)
    consumer = await sub.join(kind, permits=100)
    sub.publish(BAD, foreign(b"1"))
    await sub.later(0.5)
    assert sub.world.letters.sent == []
    await sub.later(1)
    [(letter, stored)] = sub.world.letters.sent
    assert letter.entry == BAD
    assert letter.failed.attempts == 2
    assert sub.cursor.deleted == set()
    stored.set_result(True)
    await sub.later(0.3)
    assert sub.cursor.deleted == {0}
    assert payloads(consumer) == [b"1"]
    assert sub.world.counters().dead_lettered == 1


async def test_a_letter_that_cannot_be_stored_is_sent_again():
    sub = Sub(policy="dlq", dead_letter_attempts=1)
    await sub.join(EXCLUSIVE, permits=100)
    sub.publish(BAD)
    await sub.settle()
    sub.world.letters.sent[0][1].set_result(False)
    await sub.later(1.2)
    assert len(sub.world.letters.sent) == 2
    sub.world.letters.sent[1][1].set_result(True)
    await sub.later(0.2)
    assert sub.cursor.deleted == {0}


async def test_a_letter_that_fails_holds_back_no_other_entry_of_the_read():
    sub = Sub(policy="dlq", dead_letter_attempts=1)
    consumer = await sub.join(SHARED, permits=100)
    sub.publish(BAD, foreign(b"1"))
    await sub.settle()
    sub.world.letters.sent[0][1].set_exception(ValueError("no such topic"))
    await sub.later(0.2)
    assert payloads(consumer) == [b"1"]
    await sub.later(1.2)
    sub.world.letters.sent[1][1].set_result(True)
    await sub.later(0.2)
    assert sub.cursor.deleted == {0}


@pytest.mark.parametrize("policy", ["park", "skip", "dlq"])
async def test_while_a_converter_rests_nothing_is_given_up(policy):
    sub = Sub("far", policy=policy, dead_letter_attempts=1)
    await sub.join(SHARED, permits=100)
    sub.world.topic._resting_ms = lambda converter: 5000
    sub.publish(foreign(b"0", "far"))
    await sub.later(1)
    assert sub.cursor.deleted == set()
    assert sub.world.letters.sent == []


async def test_while_a_converter_rests_raw_is_raw():
    sub = Sub("far", policy="raw")
    consumer = await sub.join(SHARED, permits=100)
    sub.world.topic._resting_ms = lambda converter: 5000
    sub.publish(foreign(b"0", "far"))
    assert payloads(consumer) == [b"0"]


async def test_long_reads_let_others_have_their_turn():
    sub = Sub()
    consumer = await sub.join(SHARED, permits=1000)
    ticks = iter(range(10**9))
    sub.world.service.tools.clock = lambda: next(ticks) * module.SLICE_S
    sub.publish(*[foreign(b"%d" % n) for n in range(50)])
    assert payloads(consumer) == []
    for _ in range(100):
        await sub.settle()
    assert payloads(consumer) == [b"%d" % n for n in range(50)]


async def test_a_read_that_waits_no_longer_for_workers_lets_others_have_their_turn(monkeypatch):
    """Each entry may begin with an attempt on the loop; a hundred of them held the loop for seconds."""
    monkeypatch.setattr(module, "PATIENCE_S", 0)
    sub = Sub("far")
    await sub.join(SHARED, permits=1000)
    ticks = iter(range(10**9))
    sub.world.service.tools.clock = lambda: next(ticks) * module.SLICE_S
    sub.publish(*[foreign(b"%d" % n, "far") for n in range(50)])
    assert len(sub.world.pool.jobs) == 1
    for _ in range(100):
        await sub.settle()
    assert len(sub.world.pool.jobs) == 50


async def test_raw_consumers_have_the_stored_bytes_beside_others():
    sub = Sub()
    ordinary = await sub.join(SHARED, permits=100)
    raw = await sub.join(SHARED, permits=100)
    raw.wants_raw = True
    stored = [foreign(b"%d" % n) for n in range(4)]
    for each in stored:
        sub.publish(each)
    got = raw.outbox.take()
    assert got
    assert all(m.payload in stored for m in got)
    assert all(m.payload not in stored for m in ordinary.outbox.take())
    sub.leave(ordinary)
    sub.publish(stored[0])
    assert sub.world.topic.raw_bypass == len(got) + len(raw.outbox.take())


async def test_a_subscription_may_want_the_stored_bytes_for_all():
    sub = Sub()
    sub.cursor.cursor_properties["entry.format.raw"] = "true"
    consumer = await sub.join(SHARED, permits=100)
    sub.publish(foreign(b"0"))
    [message] = consumer.outbox.take()
    assert message.payload == foreign(b"0")
    assert sub.world.topic.raw_bypass == 1


@pytest.mark.parametrize("kind", TYPES)
async def test_redelivery_and_seek_give_equal_bytes(kind):
    sub = Sub()
    consumer = await sub.join(kind, permits=100)
    sub.publish(foreign(b"0"), foreign(b"1"))
    first = [m.payload for m in consumer.outbox.take()]
    sub.redeliver(consumer)
    await sub.settle()
    assert [m.payload for m in consumer.outbox.take()] == first
    assert sub.world.counters().accepted == 2


@pytest.mark.parametrize("kind", TYPES)
async def test_whatever_goes_wrong_loses_nothing(kind):
    sub = Sub()
    consumer = await sub.join(kind, permits=100)
    begin, sub.world.topic.begin = sub.world.topic.begin, None
    sub.publish(foreign(b"0"), foreign(b"1", partition_key="k"))
    assert payloads(consumer) == []
    sub.world.topic.begin = begin
    await sub.later(1.2)
    assert sorted(payloads(consumer)) == [b"0", b"1"]


async def test_close_ends_waiting_reads():
    sub = Sub("far")
    await sub.join(EXCLUSIVE, permits=100)
    sub.publish(foreign(b"0", "far"))
    await sub.settle()
    await asyncio.wait_for(sub.subscription.close(), 30)
    assert sub.cursor.deleted == set()


def test_held_back_keeps_order_where_there_is_one():
    span = slab_of(1, 0, [entry(), entry()]).slice(0, 2)
    total = module.held_back([span], Order.TOTAL)
    assert (total.rest, len(total.parked)) == ([span], 1)
    keys = module.held_back([span], Order.BY_KEY)
    assert [each.holds_key for each in keys.parked] == [True, True]
    assert isinstance(module.held_back([span], Order.NONE), Transformed)


def test_the_tolerant_converter_makes_valid_batches():
    chain = ConverterChain([loaded(Tolerant())])
    found = chain.convert(BAD, chain.select(BAD))
    assert found.messages == 3
    assert Entry(found.entry).metadata.num_messages_in_batch == 3
    assert build_entry(b"", b"")
