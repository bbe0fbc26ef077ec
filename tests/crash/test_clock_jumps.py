"""The wall clock is set a day ahead or back while the log works: nothing that was promised depends on it."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from magnetar.broker.topics import expiry
from magnetar.storage.position import EARLIEST
from tests.broker.topic_for_tests import TopicBench
from tests.crash.managed_ledger_scenario import CONFIG, Promise, Work, check
from tests.storage.engine_for_tests import World, run_until_crash
from tests.storage.managed_for_tests import KEEP, Ground, append, given

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY_S = 86_400
STEPS = 40
LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))
SEEDS = range(12 if LONG else 3)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


class Jumping(Work):
    """Work during which about every fifth step sets the wall clock; rollover and retention depend on time."""

    config = replace(CONFIG, retention_time_ms=60_000, max_rollover_ms=3_600_000, entry_timestamp=True)

    def __init__(self, world: World, promise: Promise, seed: int) -> None:
        super().__init__(world, promise, seed)
        self.jumps = random.Random(seed + 77)
        self.times_set = 0

    async def step(self) -> None:
        if self.jumps.random() < 0.2:
            self.world.clock.jump(self.jumps.choice([-DAY_S, DAY_S]))
            self.times_set += 1
        await super().step()


@pytest.mark.parametrize("mode", ["nothing", "some", "everything"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_anywhere_while_the_clock_jumps(seed: int, mode: str) -> None:
    world = World()
    clean = Jumping(world, Promise(), seed)
    assert run_until_crash(world.disk, clean.run(STEPS)) is None
    assert clean.times_set > 3
    for crash_at in range(seed, world.disk.operations, 1 if LONG else 37):
        world, promise = World(), Promise()
        world.disk.crash_at = crash_at
        run_until_crash(world.disk, Jumping(world, promise, seed).run(STEPS))
        world = world.after_crash(mode, seed)
        world.clock.jump(random.Random(crash_at).choice([-DAY_S, 0, DAY_S]))
        assert run_until_crash(world.disk, check(world, promise)) is None


@pytest.mark.parametrize("seconds", [DAY_S, -DAY_S])
async def test_no_ledger_is_rolled_for_it(seconds: int) -> None:
    ground = Ground()
    ledger = await ground.open(replace(KEEP, max_entries_per_ledger=1000, max_rollover_ms=4 * 3_600_000))
    await append(ledger, [b"x"])
    ground.clock.jump(seconds)
    ground.scheduler.advance(60)
    await append(ledger, [b"y"])
    assert len(ledger.ledgers) == 1
    ground.scheduler.advance(4 * 3600)
    await append(ledger, [b"z"])
    assert len(ledger.ledgers) == 2


async def test_seek_by_time_ends_at_a_place_where_the_stamps_pass_the_time() -> None:
    """With unordered stamps several results are right: the entry before the result is older than the wanted time, the
    entry at the result is not.
    """
    chance = random.Random(5)
    for _ in range(60):
        ground = Ground()
        ledger = await ground.open(replace(KEEP, entry_timestamp=True))
        for _ in range(chance.randint(1, 40)):
            await append(ledger, [b"x"] * chance.randint(1, 3))
            ground.clock.time_s += 1
            if chance.random() < 0.15:
                ground.clock.jump(chance.choice([-DAY_S, DAY_S]))
        spans = await given(ledger.new_read_cursor(EARLIEST).read(1000, 1 << 20))
        stamps = [t for s in spans for t in memoryview(s.slab.facts().broker_timestamp).cast("q")[s.start : s.end]]
        for wanted in [*stamps, 0, max(stamps) + 1, ground.clock.now_ms()]:
            before = ledger.entries_between(EARLIEST, (await ledger.position_for_time(wanted)).previous())
            assert before == 0 or stamps[before - 1] < wanted
            assert before == len(stamps) or stamps[before] >= wanted


@pytest.mark.parametrize("seconds", [DAY_S, -DAY_S])
async def test_deduplication_forgets_no_producer_for_it(seconds: int) -> None:
    bench = TopicBench(broker_deduplication_enabled=True)
    topic = await bench.open()
    deduplication = topic.deduplication
    deduplication.table.persisted["p"] = deduplication.table.pushed["p"] = 41
    deduplication.producer_left("p")
    bench.ground.clock.jump(seconds)
    bench.pass_time(60)
    await deduplication.purge_inactive()
    assert deduplication.table.last_sequence_id("p") == 41
    bench.pass_time(360 * 60)
    await deduplication.purge_inactive()
    assert deduplication.table.last_sequence_id("p") == -1


@pytest.mark.parametrize("seconds", [DAY_S, -DAY_S])
async def test_no_subscription_expires_for_it(seconds: int) -> None:
    bench = TopicBench(subscription_expiration_time_minutes=30)
    topic = await bench.open()
    await bench.subscribe()
    await expiry.delete_unused_subscriptions(topic)
    bench.ground.clock.jump(seconds)
    bench.pass_time(29 * 60)
    await expiry.delete_unused_subscriptions(topic)
    assert "s" in topic.subscriptions.by_name
    bench.pass_time(2 * 60)
    await expiry.delete_unused_subscriptions(topic)
    assert "s" not in topic.subscriptions.by_name


async def test_message_ttl_goes_by_the_stamps_and_never_beyond_the_end() -> None:
    """A clock set back gives new messages stamps that look old for a while; a clock set ahead makes all messages look
    old. Both effects are documented; expiry has no others.
    """
    bench = TopicBench(ttl_duration_default_in_seconds=3600)
    topic = await bench.open()
    subscription = await bench.subscribe()
    await bench.publish(b"a")
    bench.ground.clock.jump(-DAY_S)
    await bench.publish(b"b")
    await expiry.expire_by_ttl(topic)
    assert subscription.cursor.backlog_entries == 2
    bench.ground.clock.jump(DAY_S)
    await bench.publish(b"c")
    bench.pass_time(1800)
    await expiry.expire_by_ttl(topic)
    assert subscription.cursor.backlog_entries == 3, "the first message is young by its stamp"
    bench.pass_time(3600)
    await expiry.expire_by_ttl(topic)
    assert subscription.cursor.backlog_entries == 0


async def test_young_messages_do_not_expire_before_messages_from_a_time_when_the_clock_was_behind() -> None:
    bench = TopicBench(ttl_duration_default_in_seconds=3600)
    topic = await bench.open()
    subscription = await bench.subscribe()
    await bench.publish(b"a", b"b")
    bench.ground.clock.jump(-DAY_S)
    await bench.publish(b"c", b"d", b"e", b"f")
    bench.ground.clock.jump(DAY_S)
    await expiry.expire_by_ttl(topic)
    assert subscription.cursor.backlog_entries == 6
    bench.pass_time(3601)
    await expiry.expire_by_ttl(topic)
    assert subscription.cursor.backlog_entries == 0
