"""The life of a broker as a whole, in the process of the test."""

import asyncio
import dataclasses
import itertools
import operator

import pytest
from structlog.testing import capture_logs

from magnetar.broker import shutdown
from magnetar.broker.admin.api import MessagePosition
from magnetar.broker.broker import EXIT_STORAGE_FAILED, Broker
from magnetar.broker.errors import BrokerError, ConsumerBusyError
from magnetar.broker.maintenance import Maintenance
from magnetar.broker.schemas.compatibility import Strategy
from magnetar.broker.settings import Settings
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import DamagedFileError, StorageClosedError, StorageFullError
from magnetar.storage.managed.cursors.store import CursorStore
from magnetar.storage.managed.ledger_switch import LedgerSwitch
from magnetar.storage.position import EARLIEST
from tests.storage.managed_for_tests import append


def settings(tmp_path):
    return dataclasses.replace(Settings(), data_dir=str(tmp_path / "data"), broker_service_port=0, web_service_port=0)


async def test_a_stop_that_is_wanted_while_it_starts_happens_when_it_has_started(tmp_path):
    broker = Broker(settings(tmp_path))
    await broker.start(broker.request_stop)
    assert await broker.wait_stopped() == 0
    await broker.stop()  # a second stop has no effect


async def test_a_storage_failure_while_it_starts_ends_it_with_its_code(tmp_path):
    broker = Broker(settings(tmp_path))
    await broker.start(lambda: broker.request_stop(EXIT_STORAGE_FAILED))
    assert await broker.wait_stopped() == EXIT_STORAGE_FAILED


async def test_a_broker_may_be_asked_to_stop_any_number_of_times(tmp_path):
    broker = Broker(settings(tmp_path))
    await broker.start()
    broker.request_stop()
    broker.request_stop()
    assert await broker.wait_stopped() == 0


@pytest.mark.parametrize("part", ["maintenance", "topics", "stored.ledgers"])
@pytest.mark.parametrize("trouble", ["fails", "hangs"])
async def test_a_stop_ends_whatever_a_part_of_the_broker_does(tmp_path, monkeypatch, part, trouble):
    monkeypatch.setattr(shutdown, "LEAST_S", 1.5)  # seconds: enough for the steps that do end, on a busy machine too
    broker = Broker(dataclasses.replace(settings(tmp_path), broker_shutdown_timeout_ms=0))
    await broker.start()
    closed = operator.attrgetter(part)(broker)
    close = closed.close

    async def closes_badly():
        await close()
        if trouble == "fails":
            raise RuntimeError("a bug")
        await asyncio.Event().wait()

    monkeypatch.setattr(closed, "close", closes_badly)
    broker.request_stop()
    assert await broker.wait_stopped() == 0
    again = Broker(settings(tmp_path))  # the store was closed: its directory is free
    await again.start()
    await again.stop()


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("acknowledges", [True, False])
async def test_a_stop_that_cannot_save_acknowledgements_ends_with_a_code(tmp_path, monkeypatch, acknowledges, hangs):
    """The disk is full, or the store does not answer. A cursor without new acknowledgements needs no save."""
    monkeypatch.setattr(shutdown, "LEAST_S", 2.0)
    within_ms = 100 if hangs else Settings().broker_shutdown_timeout_ms
    broker = Broker(dataclasses.replace(settings(tmp_path), broker_shutdown_timeout_ms=within_ms))
    await broker.start()
    topic = await broker.topics.get(TopicName.parse("persistent://public/default/t"), create=True)
    cursor = await topic.ledger.open_cursor("jobs", EARLIEST)
    position = (await append(topic.ledger, [b"a", b"b"]))[0]

    async def full(*_, **__):
        if hangs:
            await asyncio.Event().wait()
        raise StorageFullError("no space")

    with monkeypatch.context() as patch, capture_logs() as logs:
        for method in ("write", "_write_to_record"):
            patch.setattr(CursorStore, method, full)
        if acknowledges:
            cursor.ack(position)
        broker.request_stop()
        assert await broker.wait_stopped() == (EXIT_STORAGE_FAILED if acknowledges else 0)
    said = [entry for entry in logs if entry["event"] == "broker.acks_not_saved"]
    assert [entry["cursors"] for entry in said] == [1] * acknowledges
    again = Broker(settings(tmp_path))
    await again.start()
    await again.stop()


@pytest.mark.parametrize("place", ["a save", "the end of a log", "the end of all logs"])
async def test_a_stop_that_ends_before_its_cursors_close_ends_with_a_code(tmp_path, monkeypatch, place):
    """The store does not answer, so no time is left for the cursors: a save has begun before the stop, or a step before
    the saves hangs.
    """
    monkeypatch.setattr(shutdown, "LEAST_S", 1.5)
    broker = Broker(dataclasses.replace(settings(tmp_path), broker_shutdown_timeout_ms=100))
    await broker.start()
    topic = await broker.topics.get(TopicName.parse("persistent://public/default/t"), create=True)
    cursor = await topic.ledger.open_cursor("jobs", EARLIEST)
    position = (await append(topic.ledger, [b"a", b"b"]))[0]
    hanging = {
        "a save": [(CursorStore, "write")],
        "the end of a log": [(LedgerSwitch, "settle")],
        "the end of all logs": [(broker.topics, "close"), (broker.stored.ledgers, "close"), (CursorStore, "write")],
    }[place]

    async def hangs(*_, **__):
        await asyncio.Event().wait()

    with monkeypatch.context() as patch, capture_logs() as logs:
        for owner, method in hanging:
            patch.setattr(owner, method, hangs)
        cursor.ack(position)
        if place == "a save":
            broker.tasks.spawn(cursor.flush(), "flush")
            await asyncio.sleep(0)
        broker.request_stop()
        assert await broker.wait_stopped() == EXIT_STORAGE_FAILED
    said = [entry["cursors"] for entry in logs if entry["event"] == "broker.acks_not_saved"]
    assert said == [1]
    again = Broker(settings(tmp_path))
    await again.start()
    await again.stop()


@pytest.mark.parametrize("part", ["on_begin", "stop_accepting"])
async def test_a_stop_that_fails_at_its_begin_closes_the_store(tmp_path, monkeypatch, part):
    """For example, the system has no memory for the thread that ends a hanging stop."""
    broker = Broker(settings(tmp_path))
    await broker.start()

    def fails():
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(broker.stopping if part == "on_begin" else broker.listeners.binary, part, fails)
        broker.request_stop()
        assert await broker.wait_stopped() == 0
    broker.listeners.binary.stop_accepting()  # the sockets of this process are still open
    again = Broker(settings(tmp_path))
    await again.start()
    await again.stop()


@pytest.mark.parametrize("web_port", [0, None])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_an_unused_topic_goes_with_its_schema(tmp_path, domain, web_port):
    name = TopicName.parse(f"{domain}://public/default/t")
    broker = Broker(dataclasses.replace(settings(tmp_path), web_service_port=web_port))
    await broker.start()
    try:
        topic = await broker.topics.get(name, create=True)
        await broker.stored.schemas.put(name, pb.Schema.String, b"", {}, Strategy.FULL)
        job = next(job for job in broker.maintenance.jobs if job.name == "inactive_topics")
        await job.run()
        assert str(name) in broker.topics.loaded, "it was used a moment ago"
        topic.life.last_used_s = float("-inf")
        await job.run()
        assert str(name) not in broker.topics.loaded
        assert not await broker.stored.schemas.live(name)
    finally:
        await broker.stop()


async def test_a_topic_that_fails_a_check_keeps_no_other_topic_from_it(tmp_path, monkeypatch):
    broker = Broker(settings(tmp_path))
    await broker.start()
    try:
        names = [TopicName.parse(f"persistent://public/default/{name}") for name in ("first", "second")]
        first, second = [await broker.topics.get(name, create=True) for name in names]
        closed = StorageClosedError("cursor is closed")
        failures = [DamagedFileError("ledger", 0, "EIO"), RuntimeError("a bug"), closed, StorageFullError("full")]
        trimmed = []

        async def fails(_now_ms):
            raise failures.pop(0)

        async def trims(_now_ms):
            trimmed.append(second)

        monkeypatch.setattr(first.ledger, "trim", fails)
        monkeypatch.setattr(second.ledger, "trim", trims)
        job = next(job for job in broker.maintenance.jobs if job.name == "retention")
        for _ in range(3):
            await job.run()
        assert trimmed == [second] * 3
        with pytest.raises(StorageFullError):
            await job.run()
    finally:
        await broker.stop()


async def test_each_topic_of_a_round_of_quota_checks_counts(tmp_path):
    broker = Broker(settings(tmp_path))
    await broker.start()
    try:
        for name in ("first", "second"):
            await broker.topics.get(TopicName.parse(f"persistent://public/default/{name}"), create=True)
        await next(job for job in broker.maintenance.jobs if job.name == "quotas").run()
        assert broker.topics.context.quota_checks.present().buckets == (2, 0, 0, 0, 0, 0)
    finally:
        await broker.stop()


@pytest.mark.parametrize(
    ("job_name", "subscriptions", "turns"),
    [("quotas", 1, 3), ("retention", 1, 3), ("quotas", 130, 48), ("dedup_snapshot", 1, 48)],
)
async def test_topics_of_a_round_share_turns_by_their_weight(tmp_path, monkeypatch, job_name, subscriptions, turns):
    """A turn for each of 4,000 topics took half a minute beside other work; a turn of heavy topics holds the loop."""
    broker = Broker(settings(tmp_path))
    await broker.start()
    try:
        for number in range(48):
            topic = await broker.topics.get(TopicName.parse(f"persistent://public/default/{number}"), create=True)
            cursor = await topic.ledger.open_cursor("a", "earliest")
            topic.ledger.cursors.update((f"a{n}", cursor) for n in range(1, subscriptions))
        taken = itertools.count()

        async def give_way():
            next(taken)

        monkeypatch.setattr("magnetar.broker.maintenance.give_way", give_way)
        await next(job for job in broker.maintenance.jobs if job.name == job_name).run()
        assert next(taken) == turns
    finally:
        await broker.stop()


async def test_a_changed_interval_ends_no_run_under_way(monkeypatch):
    """A run that ended within the deletion of a subscription left a cursor that saved nothing any more."""
    given = Settings(stats_update_frequency_in_secs=0.001)
    begun, ended = asyncio.Queue(), asyncio.Queue()
    go_on, numbers = asyncio.Event(), itertools.count()

    async def roll(_maintenance):
        number = next(numbers)
        begun.put_nowait(number)
        await go_on.wait()
        ended.put_nowait(number)

    monkeypatch.setattr(Maintenance, "_roll_stats", roll)
    maintenance = Maintenance(given, None, None, None, lambda _seconds: None)
    maintenance.start()
    assert await begun.get() == 0
    given.change("stats_update_frequency_in_secs", 0.002)
    maintenance.settings_changed()
    go_on.set()
    assert await ended.get() == 0
    assert await begun.get() == 1, "the next run comes with the new interval"
    await maintenance.close()


async def test_a_topic_that_comes_by_itself_has_no_more_partitions_than_are_allowed(tmp_path):
    given = dataclasses.replace(
        settings(tmp_path),
        allow_auto_topic_creation_type="partitioned",
        default_num_partitions=6,
        max_num_partitions_per_partitioned_topic=4,
    )
    broker = Broker(given)
    await broker.start()
    try:
        name = TopicName.parse("persistent://public/default/t")
        with pytest.raises(BrokerError, match="less than or equal to 4"):
            await broker.topics.partitions(name, auto_create=True)
        await broker.stored.dynamic_settings.change("maxNumPartitionsPerPartitionedTopic", "2")
        assert await broker.topics.partitions(name, auto_create=True) == 2, "the default goes down with the limit"
    finally:
        await broker.stop()


async def test_a_cursor_is_reset_by_one_at_a_time(tmp_path):
    broker = Broker(settings(tmp_path))
    await broker.start()
    try:
        name = TopicName.parse("persistent://public/default/t")
        await broker.topics.get(name, create=True)
        operations = broker.admin_services(None, None).operations.subscriptions
        await operations.create_subscription(name, "sub", "earliest", {}, replicated=False)
        start, resets = MessagePosition(-1, -1), operations.reset_to_message
        both = [resets(name, "sub", start, excluded=False) for _ in range(2)]
        first, second = await asyncio.gather(*both, return_exceptions=True)
        assert first is None
        assert isinstance(second, ConsumerBusyError)
        await resets(name, "sub", start, excluded=False)
    finally:
        await broker.stop()


async def test_a_broker_has_few_parts(tmp_path):
    """A new part goes into an existing part (ADR 12)."""
    assert len({*vars(Broker(settings(tmp_path))), *Broker.__annotations__}) <= 19
