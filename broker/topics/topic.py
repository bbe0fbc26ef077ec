"""A persistent topic: one managed ledger, its producers and its subscriptions.

States: open (the usual one), fenced (an append failed; until what is under way has drained, publishes are refused),
closing and closed (unload, deletion, shutdown). All state belongs to the event loop; methods that do not wait are plain
functions.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections import deque
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.compaction.compacted_ledger import last_batch_index
from magnetar.broker.compaction.key_table import KEYS_IN_MEMORY
from magnetar.broker.compaction.topic_compaction import CompactionSettings, TopicCompaction
from magnetar.broker.errors import (
    MetadataError,
    ServiceNotReadyError,
    TopicTerminatedError,
)
from magnetar.broker.meters.distributions import TopicMeters
from magnetar.broker.meters.rates import RateMeter
from magnetar.broker.topics.deduplication_cursor import DeduplicationSettings, TopicDeduplication
from magnetar.broker.topics.delay_indexes import open_delay_index
from magnetar.broker.topics.producer import Producer
from magnetar.broker.topics.producers import TopicProducers
from magnetar.broker.topics.rates_in_force import TopicPublishRate
from magnetar.broker.topics.subscriptions import TopicSubscriptions
from magnetar.delayed.delivery_time import DelayPolicy
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.errors import StorageError
from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.network.connection import Connection
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.settings import Settings
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.context import TopicContext
    from magnetar.broker.topics.delay_indexes import DelayIndex
    from magnetar.broker.topics.producer import ProducerRequest
    from magnetar.broker.topics.rates_in_force import AnyPublishThrottle
    from magnetar.protocol.runs import EntryRun
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.managed.append_result import AppendPiece
    from magnetar.storage.managed.managed_ledger import AppendResult, ManagedLedger

log = structlog.get_logger(__name__)
FRAME_PADDING_BYTES = 10 * 1024
"""What a frame may hold beyond maxMessageSize for commands and headers."""
TOPIC_EPOCH_PROPERTY = "pulsar.topic.epoch"
USER_PROPERTY = "user."


class TopicState(enum.Enum):
    """Where a topic is in its life."""

    OPEN = "open"
    FENCED = "fenced"
    CLOSING = "closing"
    CLOSED = "closed"


class Topic:
    """A loaded persistent topic."""

    persistent = True
    receipt_step = 1
    """Entries of a run get ids one after the other."""

    def __init__(self, name: TopicName, ledger: ManagedLedger, context: TopicContext, tasks: TaskSet) -> None:
        self.name = name
        self.ledger = ledger
        self.context = context
        self.tasks = tasks
        self.state = TopicState.OPEN
        self.config: TopicConfig = context.effective(name)
        self.created_ms = ledger.created_ms
        self.index_as_kept = ledger.confirmed_index  # when it was last written among the log's properties
        self.last_publish_ms = 0
        self.last_used_s = context.monotonic()
        self.rate_in = RateMeter()
        self.chunks_in = 0
        self.max_message_bytes = 0
        self.encryption_required = False
        self.max_delay_ms = 0
        self.publish_rate = TopicPublishRate(context.rates)
        self.publish_throttle: AnyPublishThrottle | None = None
        epoch = ledger.properties.get(TOPIC_EPOCH_PROPERTY)
        self.producers = TopicProducers(None if epoch is None else int(epoch), self._save_epoch)
        self.deduplication = TopicDeduplication(ledger, _deduplication_settings(context), tasks, context.monotonic)
        self.converting = None if context.converting is None else context.converting.topic(name, self.user_properties)
        self.subscriptions = TopicSubscriptions(self)
        self.delay_index: DelayIndex | None = None
        self.quota_evictions_size = 0
        self.quota_evictions_age = 0
        self._oldest_backlog_ms = 0
        self._begun: deque[float] = deque()
        """When each of them began, by the monotonic clock."""
        self.meters = TopicMeters(context.publish_latency)
        self._drained: list[asyncio.Future[None]] = []
        self.compaction = TopicCompaction(
            name, ledger, ledger.store, _compaction_settings(context), self.subscriptions.adopt
        )

    async def open(self) -> None:
        """Bring up what the log knows of this topic; nothing is served before this returns."""
        self._apply_config()
        await self.deduplication.switch(on=self.config.deduplication_enabled)
        policy = delay_policy(self.context.settings, self.config)
        self.delay_index = await open_delay_index(self.ledger, policy, self.context, self.tasks)
        await self.compaction.open()
        await self.subscriptions.open_existing()
        if self.ledger.cursors:
            await self.ledger.trim(self.context.now_ms())  # what was consumed before is not seen after a load
        self.ledger.add_listener(self.subscriptions.entries_available)

    # --- publishing ----------------------------------------------------------------------------------------------

    def takes_publishes(self, producer: Producer, run: EntryRun) -> bool:
        """Whether publishes are taken now; if not, the producer has been answered.

        Of an end or a close it hears by CLOSE_PRODUCER, which may be still to come: the next PRODUCER says why. A
        SEND_ERROR before it would make the Go client forget the producer and leave what is in flight to time out.
        """
        if self.state is TopicState.OPEN and not self.ledger.terminated:
            return True
        if self.state is TopicState.FENCED and not self.ledger.terminated:
            text = "topic does not take publishes now"
            for i in range(run.count):
                producer.answer(replies.send_error(producer.producer_id, run.high(i), pb.PersistenceError, text))
        return False

    def append(self, run: EntryRun, done: Callable[[AppendResult], None]) -> None:
        self._begun.append(self.context.monotonic())
        self.ledger.append(run, done)

    def stored(self, producer: Producer, run: EntryRun, count: int, pieces: list[AppendPiece]) -> None:
        """`count` entries of a run are on the disk and will be seen by the subscriptions."""
        self.meters.stored(run.count, run.size_bytes, self._run_ended())
        self.rate_in.add(run.total_messages, run.size_bytes)
        self.last_publish_ms = self.context.now_ms()
        ledger_id, first_entry_id, i, j = pieces[-1]
        if self.deduplication.enabled:
            self.deduplication.stored(producer.name, run, count, Position(ledger_id, first_entry_id + j - i - 1))
        if run.deliver_at is not None and self.delay_index is not None:
            self.delay_index.published(run, pieces)

    def append_failed(self, producer: Producer, run: EntryRun, stored: int, error: StorageError) -> None:
        """An append failed: its producer hears of the first entry, all producers are closed and come back when we are
        ready.

        Clients send again, in order, whatever has no receipt.
        """
        if not stored:
            self._run_ended()
        if self.ledger.terminated or self.state is TopicState.CLOSING:
            return  # CLOSE_PRODUCER is its answer
        producer.answer(replies.send_error(producer.producer_id, run.high(stored), pb.PersistenceError, str(error)))
        if self.state is TopicState.OPEN:
            self.state = TopicState.FENCED
            log.warning("topic.fenced", topic=str(self.name), reason=str(error))
            self.tasks.spawn(self._unfence(), "topic.unfence")

    async def _unfence(self) -> None:
        self.producers.disconnect_all()
        await self.wait_drained()
        if self.state is not TopicState.FENCED:
            return
        self.deduplication.table.reset_pushed()
        self.ledger.ready_to_create_new_ledger()
        self.state = TopicState.OPEN
        log.info("topic.unfenced", topic=str(self.name))

    def _run_ended(self) -> float:
        """Runs end in the order in which they began; returns the seconds it took."""
        seconds = self.context.monotonic() - self._begun.popleft()
        if not self._begun and self._drained:
            waiters, self._drained = self._drained, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        return seconds

    async def wait_drained(self) -> None:
        """Return when no append is under way."""
        while self._begun:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drained.append(waiter)
            await waiter

    # --- producers -----------------------------------------------------------------------------------------------

    def new_producer(self, connection: Connection, request: ProducerRequest) -> Producer:
        """A producer of this topic, not yet attached."""
        return Producer(connection, self, request, self.context.now_ms())

    def check_new_producer(self, request: ProducerRequest) -> None:
        """What can be refused before schema and subscription of the request are looked at."""
        self.check_usable()
        self.producers.check_limit(self.config.max_producers)
        self.context.check_backlog_quota(self)
        if self.encryption_required and not request.encrypted:
            raise MetadataError("Encryption is required in this topic")

    async def add_producer(self, producer: Producer, on_queued: Callable[[], None]) -> None:
        """Attach a producer by the rules of access; raises what the client is told."""
        self.check_usable()

        def check() -> None:
            if self.ledger.terminated:
                raise TopicTerminatedError("Topic was already terminated")
            self.producers.check_same_address(producer, self.context.settings.max_same_address_producers_per_topic)
            self.producers.check_limit(self.config.max_producers)

        await self.producers.admit(producer, on_queued, check)
        self.last_used_s = self.context.monotonic()
        self.deduplication.producer_joined(producer.name)

    def remove_producer(self, producer: Producer) -> None:
        self.producers.remove(producer)
        self.last_used_s = self.context.monotonic()
        self.deduplication.producer_left(producer.name)

    def check_usable(self) -> None:
        """Raise when the topic is on its way out or not in order; the client looks it up again."""
        if self.state is not TopicState.OPEN:
            raise ServiceNotReadyError(f"Topic {self.name} is temporarily unavailable")

    async def _save_epoch(self, epoch: int) -> None:
        await self.ledger.set_property(TOPIC_EPOCH_PROPERTY, str(epoch))

    # --- policies ------------------------------------------------------------------------------------------------

    async def config_changed(self) -> None:
        """Policies of the topic, its namespace or the broker changed: follow them."""
        previous, self.config = self.config, self.context.effective(self.name)
        if previous == self.config:
            return
        self._apply_config()
        if self.encryption_required:
            for producer in self.producers:
                if not producer.encrypted:
                    producer.close_from_broker()
        if previous.deduplication_enabled != self.config.deduplication_enabled:
            await self.deduplication.switch(on=self.config.deduplication_enabled)
        self.subscriptions.config_changed()
        if self.delay_index is not None:
            self.delay_index.set_policy(delay_policy(self.context.settings, self.config))

    def _apply_config(self) -> None:
        self.publish_throttle = self.publish_rate.throttle(self.config)
        self.max_delay_ms = self.config.delayed_delivery.max_delivery_delay_in_millis
        self.max_message_bytes = max_entry_bytes(self.context, self.config)
        self.encryption_required = self.config.encryption_required
        self.ledger.set_config(self.context.ledger_config(self.config))

    # --- end of its life -----------------------------------------------------------------------------------------

    async def terminate(self) -> Position:
        """No message may follow; producers are closed, subscriptions hear of the end when they have read all."""
        try:
            last = await self.ledger.terminate()
        finally:
            self.producers.terminated()  # also when the end could not be stored: SENDs wait for this answer
        self.subscriptions.terminated()
        log.info("topic.terminated", topic=str(self.name))
        return last

    async def close(self, *, disconnect: bool = True) -> None:
        """Unload: every client is told, everything is on the disk when this returns."""
        if self.state in (TopicState.CLOSING, TopicState.CLOSED):
            return
        self.state = TopicState.CLOSING
        self.producers.fail_waiting(ServiceNotReadyError("Topic is being closed"))
        if disconnect:
            self.producers.disconnect_all()
        await self.compaction.close()
        await self.wait_drained()
        await self.subscriptions.close()
        try:
            if self.delay_index is not None:
                await self.delay_index.close()
        finally:  # a log that stayed open would be shared with the topic that is loaded next
            await self.ledger.close()
            self._closed()

    async def delete(self) -> None:
        """Remove the topic and all it holds; clients are told by CLOSE_*."""
        if self.state in (TopicState.CLOSING, TopicState.CLOSED):
            raise ServiceNotReadyError(f"Topic {self.name} is being closed")
        self.state = TopicState.CLOSING
        self.producers.fail_waiting(ServiceNotReadyError("Topic is being deleted"))
        await self.subscriptions.close(save=False)
        self.producers.disconnect_all()
        await self.wait_drained()
        if self.delay_index is not None:
            await self.delay_index.delete()
        await self.compaction.delete()
        await self.ledger.delete()
        self._closed()

    def _closed(self) -> None:
        self.state = TopicState.CLOSED
        if self.converting is not None:
            self.converting.close()

    # --- facts ---------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.state is TopicState.OPEN

    @property
    def is_system(self) -> bool:
        return self.name.is_system

    @property
    def is_unused(self) -> bool:
        """Nothing is stored and nobody is connected who has a say: the first schema may still be a consumer's."""
        consumers = (c for s in self.subscriptions.by_name.values() for c in s.consumers)
        return not len(self.producers) and not self.ledger.entries and all(c.spec.auto_consume for c in consumers)

    def backlog_bytes(self) -> int:
        """Estimated bytes the slowest durable subscription has still to acknowledge; 0 without subscriptions."""
        slowest = self.subscriptions.slowest()
        return 0 if slowest is None else slowest.cursor.backlog_bytes

    def backlog_age_s(self) -> int:
        """Age of the backlog as the quota by age takes it: precise, or (the default) that of its oldest closed
        ledger.
        """
        if self.context.settings.precise_time_based_backlog_quota_check:
            return self.oldest_backlog_age_s()
        slowest = self.subscriptions.slowest()
        first = None if slowest is None else self.ledger.next_valid(slowest.cursor.mark_delete)
        if first is None:
            return 0
        closed_ms = next((s.closed_at_ms for s in self.ledger.ledgers if s.ledger_id == first.ledger_id), 0)
        return max(0, self.context.now_ms() - closed_ms) // 1000 if closed_ms else 0

    def oldest_backlog_age_s(self) -> int:
        """Age of the oldest entry not yet acknowledged by all, as of the last check; 0 when there is none."""
        if not self._oldest_backlog_ms:
            return 0
        return max(0, self.context.now_ms() - self._oldest_backlog_ms) // 1000

    async def refresh_oldest_backlog(self) -> None:
        """Read the time of the entry behind the slowest mark-delete position."""
        self._oldest_backlog_ms = 0
        slowest = self.subscriptions.slowest()
        if slowest is not None and slowest.cursor.backlog_entries:
            position = self.ledger.next_valid(slowest.cursor.mark_delete)
            self._oldest_backlog_ms = 0 if position is None else await self.entry_time_ms(position)

    async def entry_time_ms(self, position: Position) -> int:
        """Entry timestamp: the broker's if the entry has one, else the publish time; 0 for an entry that is not
        there.
        """
        try:
            span = await self.ledger.read_entry(position)
        except StorageError:
            return 0
        facts = span.slab.facts()
        stamped = memoryview(facts.broker_timestamp).cast("q")[span.start]
        published: int = memoryview(facts.publish_time).cast("q")[span.start]
        return stamped if stamped >= 0 else published

    async def last_message_id(self, *, read_compacted: bool = False) -> tuple[Position, int]:
        """Position and batch index of the last message; (-1, -1) and -1 when the topic is empty."""
        compacted = read_compacted and self.compaction.covers_all
        span = await (self.compaction.last_entry() if compacted else self.ledger.read_last_entry())
        if span is None:
            return EARLIEST, -1
        if compacted:
            return span.first_position, last_batch_index(span)
        facts = span.slab.facts()
        batched = memoryview(facts.flags).cast("I")[span.start] & EntryFlag.BATCHED
        size = memoryview(facts.batch_sizes).cast("q")[span.start]
        return span.first_position, size - 1 if batched else -1

    def user_properties(self) -> dict[str, str]:
        """What users keep with the topic."""
        return {
            key.removeprefix(USER_PROPERTY): value
            for key, value in self.ledger.properties.items()
            if key.startswith(USER_PROPERTY)
        }

    async def set_user_properties(self, properties: dict[str, str]) -> None:
        """Replace them in one transaction, durable on return."""
        gone: dict[str, str | None] = dict.fromkeys(self.user_properties().keys() - properties.keys())
        await self.ledger.set_properties({USER_PROPERTY + key: value for key, value in (gone | properties).items()})
        self.index_as_kept = self.ledger.confirmed_index

    async def recall_last_publish(self) -> None:
        """After the topic was loaded its last publish is known from the last entry, by that message's own time; while
        that entry cannot be read it stays unknown.
        """
        if self.last_publish_ms == 0:
            with contextlib.suppress(StorageError):
                if (span := await self.ledger.read_last_entry()) is not None:
                    facts = span.slab.facts()
                    self.last_publish_ms = memoryview(facts.publish_time).cast("q")[span.start]

    async def position_before_first(self) -> Position:
        """What an empty topic answers for its last message: the current ledger, entry -1."""
        return await self.ledger.ensure_ledger()

    def recheck_rights(self) -> None:
        """Policies changed: close consumers and producers whose role lost its right."""
        for subscription in list(self.subscriptions.by_name.values()):  # a reader's goes with its last consumer
            for consumer in list(subscription.consumers):
                if not consumer.outbox.may(pb.BaseCommand.SUBSCRIBE, self.name, subscription.name):
                    subscription.disconnect_all([consumer])
        for producer in self.producers:
            if not producer.connection.may(pb.BaseCommand.PRODUCER, self.name):
                producer.close_from_broker()

    def roll_rates(self, seconds: float) -> None:
        """End a stats period."""
        self.rate_in.roll(seconds)
        self.subscriptions.published(self.rate_in.rates())
        self.meters.roll(self.ledger, seconds)
        for producer in self.producers:
            producer.rate_in.roll(seconds)
            producer.chunk_rate.roll(seconds)
        for subscription in self.subscriptions.by_name.values():
            subscription.roll_rates(seconds)

    @property
    def is_idle(self) -> bool:
        """No producer and no consumer is connected."""
        return not len(self.producers) and not self.subscriptions.consumer_count


def delay_policy(settings: Settings, config: TopicConfig) -> DelayPolicy:
    """The policies of delayed delivery as the trackers take them."""
    return DelayPolicy(
        active=config.delayed_delivery.active,
        tick_ms=max(config.delayed_delivery.tick_time, 1),
        strict=settings.is_delayed_delivery_deliver_at_time_strict,
        max_delay_ms=config.delayed_delivery.max_delivery_delay_in_millis,
    )


def max_entry_bytes(context: TopicContext, config: TopicConfig) -> int:
    """The topic's own maxMessageSize; without one whatever fits a frame (clients add headers to a full payload)."""
    limit = context.settings.max_message_size
    return config.max_message_size if 0 < config.max_message_size < limit else limit + FRAME_PADDING_BYTES


def _compaction_settings(context: TopicContext) -> CompactionSettings:
    settings = context.settings
    return CompactionSettings(
        slots=context.compaction_slots,
        now_ms=context.now_ms,
        keys_in_memory=KEYS_IN_MEMORY,
        directory=settings.data_dir,
        skip_damaged=settings.auto_skip_non_recoverable_data,
    )


def _deduplication_settings(context: TopicContext) -> DeduplicationSettings:
    settings = context.settings
    return DeduplicationSettings(
        entries_interval=settings.broker_deduplication_entries_interval,
        max_producers=settings.broker_deduplication_max_number_of_producers,
        inactivity_timeout_s=settings.broker_deduplication_producer_inactivity_timeout_minutes * 60,
    )
