"""The models behind the parts of a history find the faults that they stand for, and no others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.position import EARLIEST, Position
from tests.simulation.cancels import Cancellations, state_of
from tests.simulation.checker import may_be_skipped
from tests.simulation.chunked import Chunked, ChunkProducer, Chunks, Whole
from tests.simulation.clients import WALL_EPOCH_MS
from tests.simulation.history import Sent, SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.idle import CAUGHT_UP, Idle, IdleTopic
from tests.simulation.lone import LastReader, Lone
from tests.simulation.offline import Offline
from tests.simulation.parts import Register
from tests.simulation.plan import (
    FIRST_WITH_CHUNKS,
    FIRST_WITH_IDLE,
    FIRST_WITH_LONE,
    FIRST_WITH_OFFLINE,
    FIRST_WITH_PORTIONS,
    Plan,
)
from tests.simulation.portions import Parted, Portions
from tests.simulation.quotas import EVICTED, Quotas
from tests.simulation.shapes import SchemaHistory
from tests.simulation.threads import SimThreads
from tests.simulation.times import Seeks
from tests.simulation.world import World

PLACE = Position(3, 0)
NONE = (1 << 64) - 1


async def answer(value):
    await asyncio.sleep(0)
    return value


async def test_a_value_is_that_of_the_last_answered_request():
    register = Register("r", None)
    await register.change(1, answer(True))
    register.check(1)
    with pytest.raises(ViolationError, match="the value is None"):
        register.check(None)
    await register.change(2, answer(False))
    for value in (1, 2):
        register.check(value)


async def test_requests_beside_each_other_may_be_carried_out_in_any_order():
    register = Register("r", None)
    await asyncio.gather(register.change(1, answer(True)), register.change(2, answer(True)))
    for value in (1, 2):
        register.check(value)
    await register.change(3, answer(True))
    with pytest.raises(ViolationError):
        register.check(2)


async def test_a_request_without_an_answer_may_be_carried_out_until_the_process_ends():
    register = Register("r", None)
    await register.change(1, answer(None))
    await register.change(2, answer(True))
    register.check(1)
    register.process_ended()
    await register.change(2, answer(True))
    with pytest.raises(ViolationError):
        register.check(1)


def test_messages_of_a_batch_come_again_only_without_an_answer():
    book = Portions(SubscriptionHistory("s"))
    book.tries(PLACE, 0b001)
    assert book.delivered(PLACE, 0b110, 3, 5.0) == ""
    assert book.delivered(PLACE, 0b111, 3, 5.0) == ""
    assert book.answered(PLACE, 0b001, 6.0) == 0b001
    assert book.delivered(PLACE, 0b111, 3, 5.9) == "", "written before the answer"
    assert "come again" in book.delivered(PLACE, 0b111, 3, 6.1)
    assert "that no consumer acknowledged" in book.delivered(PLACE, 0b100, 3, 6.1)
    book.subscription.deleted(surely=True)
    assert book.delivered(PLACE, 0b111, 3, 7.0) == ""


@pytest.mark.parametrize(("surely", "holds"), [(True, False), (False, True)])
async def test_properties_may_outlive_a_deletion_with_an_unknown_outcome(surely, holds):
    parted = Parted(World(Plan.of(FIRST_WITH_PORTIONS)))
    parted.populate()
    parted._asks = lambda _name, _properties: answer(None)
    subscription = parted._topic.subscriptions["a"]
    await parted._set_properties("a", subscription)
    (value,) = parted._properties["a"][1].possible - {None}
    subscription.deleted(surely=surely)
    await parted._set_properties("a", subscription)
    assert (value in parted._properties["a"][1].possible) == holds
    parted._properties["a"][1].check(None)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_chunked_message_is_as_old_as_a_copy_of_its_last_chunk_without_a_receipt(is_seen):
    """Entries 0 and 1 make the message, 2 is a later value of the key, 3 is the copy of 1 that has the receipt."""
    chunked = Chunked(World(Plan.of(FIRST_WITH_CHUNKS)))
    chunked.populate()
    known = chunked._topic
    whole = Whole("u", b"", "a", [Sent("p", 0, 1, b"u%d" % k, 0.0) for k in range(2)], {0, 1})
    later = Sent("p", 1, 1, b"later", 0.0)
    for entry in (*whole.chunks, later):
        entry.key = "a"
        known.sends(entry)
    chunked._chunks.messages["u"] = whole
    chunked._chunks.of_body |= {each.body: (whole, k) for k, each in enumerate(whole.chunks)}
    for number, entry in ((0, whole.chunks[0]), (2, later), (3, whole.chunks[1])):
        known.receipted(entry, Position(0, number), 1.0)
    if is_seen:
        known.got(Position(0, 1), whole.chunks[1].body, None)
    reader = SimpleNamespace(name="r", found={Position(0, 2): later})
    if is_seen:
        chunked._check_newest(reader)
    else:
        with pytest.raises(ViolationError, match=r"the newest values of \{'a': Position\(ledger_id=0, entry_id=3\)\}"):
            chunked._check_newest(reader)


@pytest.fixture
def repeating():
    """A producer with two entries in flight at most: two chunks and two other messages were sent before, once."""
    plan = replace(Plan.of(FIRST_WITH_CHUNKS), deduplicates=True)
    producer = ChunkProducer(World(plan), "p", TopicHistory("t", keeps_all=True, deduplicates=False), Chunks())
    producer._cut()
    while len(producer._rest) > 2:
        producer._rest.pop()
    (whole,) = producer._chunks.messages.values()
    del whole.chunks[2:]
    producer.pending.extend([*whole.chunks, *(Sent("p", k, 1, b"%d" % k, 0.0) for k in (1, 2))])
    for entry in producer.pending:
        producer._send(entry)
    producer.in_flight = 2
    producer.on(pb.BaseCommand(type=pb.BaseCommand.PRODUCER_SUCCESS), b"")
    return producer


def receipt(sequence_id, *place):
    answer = pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT)
    answer.send_receipt.sequence_id = sequence_id
    answer.send_receipt.message_id.ledgerId, answer.send_receipt.message_id.entryId = place or (NONE, NONE)
    return answer


def test_a_producer_with_few_entries_in_flight_sends_the_next_also_behind_a_duplicate(repeating):
    entries = list(repeating.pending)
    repeating.on(receipt(0, 3, 0), b"")
    assert [each.copies for each in entries] == [2, 2, 2, 1]
    repeating.on(receipt(0), b"")
    assert [each.copies for each in entries] == [2, 2, 2, 2]
    repeating.on(receipt(1), b"")
    repeating.on(receipt(2), b"")
    assert not repeating.pending


def test_no_chunk_before_the_last_is_a_duplicate(repeating):
    with pytest.raises(ViolationError, match="taken for a duplicate"):
        repeating.on(receipt(0), b"")


def test_no_entry_is_a_duplicate_that_was_sent_once(repeating):
    first, last, *_ = repeating.pending
    last.copies = 1
    repeating.on(receipt(0, 3, 0), b"")
    assert first.position == Position(3, 0)
    with pytest.raises(ViolationError, match="taken for a duplicate and was sent 1 times"):
        repeating.on(receipt(0), b"")


def test_a_version_resolves_for_requests_behind_the_answer_with_the_version():
    schemas = SchemaHistory("t")
    schemas.asks(b"new", 1.0)
    schemas.got(0, b"new", asked_s=1.0, now_s=3.0)
    schemas.resolved(0, None, 2.0)
    with pytest.raises(ViolationError, match="does not resolve"):
        schemas.resolved(0, None, 3.5)


def test_no_schema_of_before_a_forced_deletion_is_left():
    schemas = SchemaHistory("t")
    schemas.asks(b"old", 1.0)
    schemas.answered(b"old")
    schemas.asks(b"late", 1.5)
    schemas.forces()
    schemas.resolved(0, b"old", 2.5)
    schemas.forced(2.0, 3.0, surely=True)
    schemas.resolved(0, b"late", 3.5)
    with pytest.raises(ViolationError, match="of before a forced deletion"):
        schemas.resolved(0, b"old", 3.5)
    schemas.asks(b"old", 4.0)
    schemas.resolved(0, b"old", 4.5)


def evicting(limit_bytes, limit_second):
    return {
        "backlog_quota_default_retention_policy": "consumer_backlog_eviction",
        "backlog_quota_default_limit_bytes": limit_bytes,
        "backlog_quota_default_limit_second": limit_second,
        "precise_time_based_backlog_quota_check": True,
    }


def evicted_by_age(count, sent_again_at, acked=()):
    """The evicted entries of five that were sent a second after each other, by a quota of ten seconds in the eleventh
    second; the first was sent again.
    """
    known = TopicHistory("t", keeps_all=False, deduplicates=False)
    for number in range(5):
        sent = Sent("p", number, 1 if number else count, b"%d" % number, float(number))
        known.sends(sent)
        known.receipted(sent, Position(0, number), 5.0)
    if sent_again_at:
        known.receipted(known.receipts[Position(0, 0)], sent_again_at, 10.0)
    known.subscriptions["s"] = subscription = SubscriptionHistory("s")
    subscription.acked.update(acked)
    cursor = SimpleNamespace(mark_delete=Position(0, 5))
    found = SimpleNamespace(name="s", cursor=cursor)
    subscriptions = SimpleNamespace(durable=lambda: [found], by_name={"s": found})
    topic = SimpleNamespace(subscriptions=subscriptions, is_open=True, ledger=None)
    world = SimpleNamespace(plan=SimpleNamespace(settings=evicting(-1, 10)))
    broker = SimpleNamespace(topics=SimpleNamespace(loaded={"t": topic}))
    Quotas(world).restored(broker, {"t": known}, 10.0)
    return sorted(subscription.evicted)


def test_young_entries_go_along_with_an_old_entry_behind_that_has_the_stamp_of_its_producer():
    old = [Position(0, 0), Position(0, 1)]
    assert evicted_by_age(1, None) == old
    assert evicted_by_age(0, None) == old
    assert evicted_by_age(1, Position(0, 5)) == [*old, Position(0, 5)]
    assert evicted_by_age(0, Position(0, 5)) == [Position(0, number) for number in range(6)]


def test_an_eviction_may_take_entries_whose_ack_a_crash_loses():
    old = [Position(0, 0), Position(0, 1)]
    assert evicted_by_age(1, None, acked=old[1:]) == old


@pytest.mark.parametrize(("count", "skipped"), [(1, [1]), (0, [0, 1])])
def test_a_young_message_expires_along_with_an_old_message_behind_that_has_the_stamp_of_its_producer(count, skipped):
    known, subscription = TopicHistory("t", keeps_all=False, deduplicates=False), SubscriptionHistory("s")
    for number, sent in enumerate([Sent("p", 0, 1, b"young", 9.0), Sent("q", 0, count, b"old", 1.0)]):
        known.sends(sent)
        known.receipted(sent, Position(0, number), 9.5)
    clock = SimpleNamespace(ahead_since=lambda _s: (0.0, 0.0))
    assert not any(may_be_skipped(known, subscription, place, clock) for place in known.receipts)
    subscription.expiries.append(5.0)
    assert [place.entry_id for place in known.receipts if may_be_skipped(known, subscription, place, clock)] == skipped


@pytest.mark.parametrize(("entries", "holds"), [(5, True), (6, False)])
def test_an_eviction_takes_the_share_above_nine_tenths_of_the_quota(entries, holds):
    """Ten entries of a hundred bytes, the quota is 550 bytes: more than half of the entries would be too many."""
    known = TopicHistory("t", keeps_all=False, deduplicates=False)
    for number in range(10):
        sent = Sent("p", number, 1, b"%036d" % number, 0.0)
        sent.copies = 1
        known.sends(sent)
    settings = evicting(550, -1)
    line = {"event": EVICTED, "topic": "t", "subscription": "s", "entries": entries}
    world = SimpleNamespace(
        plan=SimpleNamespace(settings=settings),
        history=SimpleNamespace(topics={"t": known}),
        logs=[line],
        broker=None,
        now_s=1.0,
        note=lambda _what: None,
    )
    if holds:
        Quotas(world)._check_evictions()
    else:
        with pytest.raises(ViolationError, match="a quota evicts 6 entries"):
            Quotas(world)._check_evictions()


def test_an_image_knows_the_evictions_since_the_last_check():
    world = World(Plan.of(FIRST_WITH_OFFLINE))
    subscription = SubscriptionHistory("s")
    known = TopicHistory("t", keeps_all=False, deduplicates=False, subscriptions={"s": subscription})
    world.history.topics["t"] = known
    world.parts = [SimpleNamespace(check=lambda _broker: subscription.evicted.add(PLACE))]
    offline = Offline(world)
    offline.act()
    assert offline.images[0].topics["t"].subscriptions["s"].evicted == {PLACE}


def test_only_a_message_from_before_a_seek_may_not_come_with_an_earlier_stamp():
    known, subscription = TopicHistory("t", keeps_all=True, deduplicates=False), SubscriptionHistory("s", since_s=0.0)
    known.receipted(Sent("p", 0, 1, b"old", 0.1), PLACE, 0.2)
    seeks = Seeks(known, subscription)
    seeks.ends(seeks.begins(), WALL_EPOCH_MS + 1500, now_s=1.0)
    seeks.check("c", PLACE.next(), WALL_EPOCH_MS + 900, 1.1)
    seeks.check("c", PLACE, WALL_EPOCH_MS + 1500, 1.1)
    with pytest.raises(ViolationError, match="comes behind a seek"):
        seeks.check("c", PLACE, WALL_EPOCH_MS + 100, 1.1)


@pytest.mark.parametrize(
    ("keeps_all", "acked", "holds"), [(False, True, True), (False, False, False), (True, True, False)]
)
def test_a_topic_names_no_last_message_where_it_may_have_dropped_all(keeps_all, acked, holds):
    world = World(Plan.of(FIRST_WITH_LONE))
    known, subscription = TopicHistory("t", keeps_all=keeps_all, deduplicates=False), SubscriptionHistory("s", 0.0)
    known.subscriptions["s"] = subscription
    known.receipted(Sent("p", 0, 1, b"last", 0.1), PLACE, 0.2)
    if acked:
        subscription.acked.add(PLACE)
    reader = LastReader(world, "r", known)
    reader._asked[2] = PLACE
    answer = pb.CommandGetLastMessageIdResponse(request_id=2)
    answer.last_message_id.ledgerId = answer.last_message_id.entryId = (1 << 64) - 1
    if holds:
        reader._answered(answer)
    else:
        with pytest.raises(ViolationError, match="the last message is"):
            reader._answered(answer)


@pytest.mark.parametrize(
    ("acked", "left", "holds"),
    [
        (True, (), True),
        (False, (), False),
        (True, (PLACE.ledger_id,), False),
        (True, (PLACE.ledger_id + 1,), True),
    ],
)
def test_a_topic_is_loaded_without_entries_where_it_may_have_dropped_all(acked, left, holds):
    world = World(Plan.of(FIRST_WITH_LONE))
    lone = Lone(world)
    lone.populate()
    known = lone._topic
    known.keeps_all, known.keeps_s = False, 0.0
    known.receipted(Sent("p", 0, 1, b"last", 0.1), PLACE, 0.2)
    subscription = known.subscriptions["a"]
    subscription.since_s = 0.0
    if acked:
        subscription.acked.add(PLACE)
    slots = [SimpleNamespace(ledger_id=ledger_id) for ledger_id in left]
    loaded = SimpleNamespace(is_open=True, ledger=SimpleNamespace(last_confirmed=EARLIEST, ledgers=slots))
    broker = SimpleNamespace(topics=SimpleNamespace(loaded={known.name: loaded}))
    if holds:
        lone.check(broker)
    else:
        with pytest.raises(ViolationError, match="the last entry is"):
            lone.check(broker)


def cancellations():
    known, subscription = TopicHistory("t", keeps_all=True, deduplicates=False), SubscriptionHistory("s", since_s=0.0)
    known.subscriptions["s"] = subscription
    known.receipted(Sent("p", 0, 1, b"later", 0.1), PLACE, 0.2)
    return Cancellations(known), known, subscription, {"s": state_of(subscription)}


def may_be_missing(known, subscription):
    return may_be_skipped(known, subscription, PLACE, SimpleNamespace(ahead_since=lambda _s: (0.0, 0.0)))


def test_a_cancelled_message_does_not_come_behind_the_answer():
    book, known, subscription, existing = cancellations()
    book.begins(PLACE)
    book.check("c", PLACE, 1.1)
    book.ends(PLACE, existing, done=True, now_s=1.0)
    book.check("c", PLACE, 1.0)
    with pytest.raises(ViolationError, match="comes behind its cancellation"):
        book.check("c", PLACE, 1.1)
    assert may_be_missing(known, subscription) and subscription.was_surely_acked(PLACE, 1.1)


@pytest.mark.parametrize(("outcomes", "missing"), [([False], False), ([None, False], True), ([True, False], True)])
def test_a_refused_cancellation_has_no_effect(outcomes, missing):
    book, known, subscription, existing = cancellations()
    for done in outcomes:
        book.begins(PLACE)
        book.ends(PLACE, existing, done=done, now_s=1.0)
    assert may_be_missing(known, subscription) == missing


@pytest.mark.parametrize("exists", [True, False])
def test_a_cancellation_says_nothing_about_a_subscription_that_changes_meanwhile_or_does_not_exist(exists):
    book, _, subscription, existing = cancellations()
    if not exists:
        subscription.deleted(surely=True)
        existing = {}
    book.begins(PLACE)
    subscription.moves += exists
    book.ends(PLACE, existing, done=True, now_s=1.0)
    subscription.moves -= exists
    assert not subscription.was_surely_acked(PLACE, 1.1)


def idle_topic():
    known = TopicHistory("t", keeps_all=False, deduplicates=False)
    known.subscriptions["a"] = SubscriptionHistory("a", since_s=0.0)
    known.receipted(Sent("p", 0, 1, b"old", 0.1), PLACE, 0.2)
    return IdleTopic(known), known


@pytest.mark.parametrize(("written_s", "holds"), [(1.0, True), (1.5, False), (2.0, True)])
def test_a_deletion_under_way_admits_no_client(written_s, holds):
    of, _ = idle_topic()
    of.begins(1.0)
    of.ends(2.0, surely=True)
    client = SimpleNamespace(name="c", written_s=written_s)
    if holds:
        of.admitted(client)
    else:
        with pytest.raises(ViolationError, match="in its deletion"):
            of.admitted(client)


@pytest.mark.parametrize("surely", [True, False])
def test_only_an_inactive_topic_that_is_surely_gone_leaves_nothing_behind(surely):
    of, known = idle_topic()
    of.begins(1.0)
    assert not known.receipts and not known.subscriptions["a"].exists
    of.ends(2.0, surely=surely)
    of.ends(3.0, surely=False)
    assert (known.gone == {PLACE}) == surely
    assert known.subscriptions["a"].absent == surely
    assert of.requested == ({"a": 0} if surely else {})


def test_a_subscription_may_be_there_behind_a_deletion_that_a_subscribe_without_an_answer_met():
    of, _ = idle_topic()
    of.unanswered["a"] = 1
    of.begins(1.0)
    of.ends(2.0, surely=True)
    assert not of.requested


async def test_an_inactive_topic_with_a_message_that_its_subscription_owes_is_no_deletion():
    world = World(Plan.of(FIRST_WITH_IDLE))
    idle = Idle(world)
    of, _ = idle_topic()
    idle._policy.possible = {(CAUGHT_UP, 1, True)}
    world.timers.now_s = 5.0
    idle._check_begin(of)
    with pytest.raises(ViolationError, match="while a owes"):
        idle.over()


async def test_a_slow_disk_that_is_soon_over_frees_no_work_of_an_earlier_slow_disk():
    threads, now_s = SimThreads(Random(1), 0.0, lambda: None), asyncio.get_running_loop().time()
    threads.stalled_until_s = long_s = now_s + 60
    threads.later(lambda: None)
    threads.stalled_until_s = now_s + 30
    threads.later(lambda: None)
    assert threads.held_until_s == long_s
