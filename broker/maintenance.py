"""Periodic work: a table of jobs, each with the setting of its interval (0 = never).

A job does not start while it still runs; a failed job is logged, and runs again after its interval. Jobs over many
topics give the loop a turn after some topics, and continue behind a topic that fails.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import structlog

from magnetar.broker.slices import give_way, sliced
from magnetar.broker.tasks import TaskSet
from magnetar.broker.topics import expiry, orphans, quotas
from magnetar.broker.topics.expiry import delete_if_inactive
from magnetar.broker.topics.topic import Topic
from magnetar.storage.errors import StorageError, StorageFailedError, StorageFullError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.lifecycle import TopicLifecycle
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.storage.embedded.engine import EmbeddedStorage

log = structlog.get_logger(__name__)
AnyTopic = TypeVar("AnyTopic", bound="ServedTopic")
_ROLLED_IN_ONE_TURN = 64
WEIGHT_IN_ONE_TURN = 16
ORPHANS_AFTER_S = 10.0
"""Delay between the start and the sweep of orphaned ledgers."""
DELETIONS_EVERY_S = 600.0
"""Interval at which a broker completes cut-off deletions of topics that it serves, such as those of a former owner that
died, has owners found for topics without an owner, and deletes ledgers of deleted topics that bookies could not delete
then.
"""
_OF_THE_STORE = (StorageFullError, StorageFailedError)
"""Errors that the other topics meet as well: the job ends until its next time. StorageClosedError does not belong here:
the cursor of a topic that closes meanwhile raises it too.
"""


def weight(topic: ServedTopic) -> int:
    """About how much a job has to look at, in small topics."""
    if not isinstance(topic, Topic):
        return 1
    return 1 + (len(topic.ledger.cursors) + len(topic.ledger.ledgers)) // 8


def _of_producers(_topic: Topic) -> int:
    """The weight of a topic in work on its producers' sequence ids, which may be ten thousand: each has its turn."""
    return WEIGHT_IN_ONE_TURN


class Job(NamedTuple):
    """A periodic job and its interval."""

    name: str
    interval_s: float
    run: Callable[[], Awaitable[None]]


class Maintenance:
    """The broker's timers."""

    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        lifecycle: TopicLifecycle,
        storage: EmbeddedStorage | None,
        roll_broker_rates: Callable[[float], None],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._lifecycle = lifecycle
        self._storage = storage
        self._roll_broker_rates = roll_broker_rates
        self._tasks = TaskSet()
        self.jobs = self._table()
        self._running: dict[str, tuple[float, asyncio.Task[None]]] = {}
        self._work: dict[str, asyncio.Task[None]] = {}
        """The last run of each job, which may be under way."""

    def _table(self) -> list[Job]:
        settings = self._settings
        inactivity_s = settings.broker_deduplication_producer_inactivity_timeout_minutes * 60 / 3
        return [
            Job("stats", settings.stats_update_frequency_in_secs, self._roll_stats),
            Job("retention", settings.retention_check_interval_in_seconds, self._trim),
            Job("expiry", settings.message_expiry_check_interval_in_minutes * 60, self._expire),
            Job(
                "quotas",
                settings.backlog_quota_check_interval_in_seconds if settings.backlog_quota_check_enabled else 0,
                self._quotas,
            ),
            Job("dedup_snapshot", settings.broker_deduplication_snapshot_frequency_in_seconds, self._dedup_snapshots),
            Job("dedup_inactive", inactivity_s, self._dedup_purge),
            Job(
                "inactive_topics",
                settings.broker_delete_inactive_topics_frequency_seconds
                if settings.broker_delete_inactive_topics_enabled
                else 0,
                self._inactive_topics,
            ),
            Job(
                "subscription_expiry", settings.subscription_expiry_check_interval_in_minutes * 60, self._subscriptions
            ),
            Job("compaction", settings.broker_service_compaction_monitor_interval_in_seconds, self._compact),
            Job("deletions", DELETIONS_EVERY_S, self._deletions),
        ]

    def start(self) -> None:
        for job in self.jobs:
            self._begin(job)
        self._tasks.spawn(self._sweep_orphans(), "maintenance.orphans")

    def _begin(self, job: Job) -> None:
        if job.interval_s > 0:
            task = self._tasks.spawn(self._repeat(job), f"maintenance.{job.name}")
            self._running[job.name] = job.interval_s, task

    def settings_changed(self) -> None:
        """Start the jobs whose interval changed again, with the new interval. A run under way goes on: half of its work
        would leave topics and cursors half deleted.
        """
        self.jobs = self._table()
        for job in self.jobs:
            interval_s, task = self._running.get(job.name, (0.0, None))
            if interval_s == max(0.0, job.interval_s):
                continue
            if task is not None:
                task.cancel()
                del self._running[job.name]
            self._begin(job)

    async def _deletions(self) -> None:
        await self._lifecycle.complete_deletions()

    async def _sweep_orphans(self) -> None:
        """Complete deletions that were cut off and sweep orphaned ledgers once, late enough that clients that reconnect
        after a restart no longer keep the broker busy.
        """
        await asyncio.sleep(ORPHANS_AFTER_S)
        try:
            await self._lifecycle.complete_deletions()
        except StorageError as error:  # the next load of the topic completes its deletion
            log.warning("deletions.not_completed", error=str(error))
        if self._storage is None:
            return  # the ledgers of a cluster also belong to other brokers and other users
        try:
            await orphans.sweep(self._storage, self._topics.loaded)
        except StorageError as error:  # the broker sweeps after its next start
            log.warning("orphans.not_swept", error=str(error))

    async def close(self) -> None:
        await self._tasks.close()

    async def _repeat(self, job: Job) -> None:
        while True:
            await asyncio.sleep(job.interval_s)
            work = self._work.get(job.name)
            if work is None or work.done():
                work = self._work[job.name] = self._tasks.spawn(self._run(job), f"maintenance.{job.name}.run")
            await asyncio.shield(work)

    @staticmethod
    async def _run(job: Job) -> None:
        try:
            await job.run()
        except StorageError as error:  # a full disk, for example: the job runs again after its interval
            log.warning("maintenance.not_stored", job=job.name, error=str(error))
        except Exception:
            log.exception("maintenance.failed", job=job.name)

    def _persistent(self) -> list[Topic]:
        return [topic for topic in self._topics.loaded.values() if isinstance(topic, Topic)]

    @staticmethod
    async def _for_each(
        job: str,
        topics: Sequence[AnyTopic],
        work: Callable[[AnyTopic], Awaitable[object]],
        *,
        weight_of: Callable[[AnyTopic], int] = weight,
    ) -> None:
        """Do the work for each of these topics that is open, several small topics in one turn of the loop: beside other
        work a turn takes milliseconds, and thousands of turns would delay the last topics. The failure of a topic is
        logged.
        """
        done = 0
        for topic in topics:
            if not topic.is_open:
                continue
            try:
                await work(topic)
            except _OF_THE_STORE:
                raise
            except StorageError as error:
                log.warning("maintenance.not_stored", job=job, topic=str(topic.name), error=str(error))
            except Exception:
                log.exception("maintenance.failed", job=job, topic=str(topic.name))
            done += weight_of(topic)
            if done >= WEIGHT_IN_ONE_TURN:
                done = 0
                await give_way()

    # --- jobs ----------------------------------------------------------------------------------------------------

    async def _roll_stats(self) -> None:
        seconds = self._settings.stats_update_frequency_in_secs
        async for topics in sliced(list(self._topics.loaded.values()), _ROLLED_IN_ONE_TURN):
            for topic in topics:
                topic.roll_rates(seconds)
        self._roll_broker_rates(seconds)

    async def _trim(self) -> None:
        await self._for_each(
            "retention", self._persistent(), lambda topic: topic.ledger.trim(self._topics.context.now_ms())
        )

    async def _expire(self) -> None:
        await self._for_each("expiry", self._persistent(), expiry.expire_by_ttl)

    async def _quotas(self) -> None:
        context = self._topics.context
        begun = context.monotonic()

        async def check(topic: Topic) -> None:
            await quotas.enforce(topic)
            context.quota_checks.add(context.monotonic() - begun)

        await self._for_each("quotas", self._persistent(), check)

    async def _dedup_snapshots(self) -> None:
        await self._for_each(
            "dedup_snapshot",
            self._persistent(),
            lambda topic: topic.deduplication.snapshot_if_older(topic.config.deduplication_snapshot_interval_seconds),
            weight_of=_of_producers,
        )

    async def _dedup_purge(self) -> None:
        await self._for_each(
            "dedup_inactive",
            self._persistent(),
            lambda topic: topic.deduplication.purge_inactive(),
            weight_of=_of_producers,
        )

    async def _inactive_topics(self) -> None:
        await self._for_each(
            "inactive_topics",
            list(self._topics.loaded.values()),
            lambda topic: delete_if_inactive(topic, self._lifecycle.delete_inactive),
        )

    async def _subscriptions(self) -> None:
        await self._for_each("subscription_expiry", self._persistent(), expiry.delete_unused_subscriptions)

    async def _compact(self) -> None:
        for number, topic in enumerate(self._persistent(), 1):
            if topic.is_open and topic.compaction is not None:
                topic.compaction.start_if_needed(topic.config.compaction_threshold_bytes)
            if not number % _ROLLED_IN_ONE_TURN:
                await asyncio.sleep(0)
