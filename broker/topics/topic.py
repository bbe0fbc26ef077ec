"""A persistent topic: one managed ledger, its producers and its subscriptions, put together.

`publishing` has the path of a run of entries, `publish_policy` the rules for entries, `life` the state, `backlog` the
quotas. All state belongs to the event loop; methods that do not wait are plain functions.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.compaction.key_table import KEYS_IN_MEMORY
from magnetar.broker.compaction.topic_compaction import CompactionSettings, TopicCompaction
from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.topics.backlog import TopicBacklog
from magnetar.broker.topics.deduplication_cursor import DeduplicationSettings, TopicDeduplication
from magnetar.broker.topics.delay_indexes import open_delay_index
from magnetar.broker.topics.life import TopicLife, TopicState, nothing_to_forget
from magnetar.broker.topics.log_facts import LastMessage, TopicProperties, last_publish_ms
from magnetar.broker.topics.producers import TopicProducers
from magnetar.broker.topics.publish_policy import PublishPolicy
from magnetar.broker.topics.publishing import TopicPublishing
from magnetar.broker.topics.subscriptions import TopicSubscriptions
from magnetar.broker.topics.wide_topics import is_wide
from magnetar.delayed.delay_settings import DelayPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.settings import Settings
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.context import TopicContext
    from magnetar.broker.topics.delay_indexes import DelayIndex
    from magnetar.broker.topics.producer import Producer, ProducerRequest
    from magnetar.broker.topics.producer_ports import ProducerConnection
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.managed.managed_ledger import ManagedLedger
    from magnetar.storage.position import Position

log = structlog.get_logger(__name__)
TOPIC_EPOCH_PROPERTY = "pulsar.topic.epoch"
_RECEIPTS_WITHIN_S: Final = 1.0
"""How long a topic that closes keeps its producers for the receipts of appends under way."""


class Topic:
    """A loaded persistent topic."""

    persistent = True

    def __init__(self, name: TopicName, ledger: ManagedLedger, context: TopicContext, tasks: TaskSet) -> None:
        self.name = name
        self.ledger = ledger
        self.context = context
        self.config: TopicConfig = context.effective(name)
        self.created_ms = ledger.created_ms
        self.life = TopicLife(name, context.monotonic)
        self._index_at_load = ledger.confirmed_index
        self.last = LastMessage(ledger)
        epoch = ledger.properties.get(TOPIC_EPOCH_PROPERTY)
        self.producers = TopicProducers(None if epoch is None else int(epoch), self._save_epoch)
        room = context.names_room.of_topic(name.tenant, name.namespace)
        self.deduplication = TopicDeduplication(
            ledger, context.shared(_deduplication_settings(context)), tasks, context.monotonic, room
        )
        policy = PublishPolicy(context.rates, context.settings, persistent=True)
        self.publishing = TopicPublishing(ledger, self.life, policy, self.deduplication, context)
        self.publishing.on_failure(lambda: tasks.spawn(self._unfence(), "topic.unfence"))
        converting = context.converting
        self.converting = None if converting is None else converting.topic(name, self.properties.of_users)
        self.subscriptions = TopicSubscriptions(ledger, self.life, context, self.config, self.converting)
        self.backlog = TopicBacklog(
            ledger, self.subscriptions, context.settings, context.now_ms, has_quotas=not name.is_system
        )
        self.compaction = TopicCompaction(
            name,
            ledger,
            ledger.store,
            _compaction_settings(context),
            self.subscriptions,
        )
        self.subscriptions.compaction = self.compaction
        self.delay_index: DelayIndex | None = None
        self._tasks = tasks

    async def open(self) -> None:
        """Recover the state of the topic from its log; the topic is not served before the return."""
        self._apply_config()
        await self.deduplication.switch(on=self.config.deduplication_enabled)
        self.publishing.delay_index = self.delay_index = await self._open_index()
        await self.compaction.open(keeps_all=self.name.is_of_policies)
        await self.subscriptions.open_existing(self.delay_index)
        if self.ledger.cursors:
            await self.ledger.trim(self.context.now_ms())  # no later ack reports entries consumed before the load
        if self._is_compacted:
            await self.compaction.keep_all()
        self.ledger.add_listener(self.subscriptions.entries_available)
        while not self.is_current and self.config != self.context.effective(self.name):
            await self.config_changed()  # for changes since the start of the load: they reach loaded topics only

    async def open_for_deletion(self) -> None:
        """Recover the parts that ``delete`` needs of a topic whose deletion was cut off."""
        self.delay_index = await self._open_index()
        await self.compaction.open()

    async def _open_index(self) -> DelayIndex:
        policy = self.context.shared(delay_policy(self.context.settings, self.config))
        return await open_delay_index(self.ledger, policy, self.context, self._tasks)

    async def _unfence(self) -> None:
        """Take publishes again after a failed append; the closed producers come back."""
        await self.producers.disconnect_in_turns(self.context.turns)
        await self.publishing.unfence()

    # --- producers -----------------------------------------------------------------------------------------------

    def new_producer(self, connection: ProducerConnection, request: ProducerRequest) -> Producer:
        """A producer of this topic, not yet attached."""
        return self.context.make_producer(connection, self, request, self.context.now_ms())

    def check_new_producer(self, request: ProducerRequest) -> None:
        """Raise the refusals that do not depend on schema and subscription of the request."""
        self.life.check_usable()
        self.producers.check_limit(self.name, self.config.max_producers)
        self.backlog.check_quota(self.config)
        if self.config.encryption_required and not request.encrypted:
            raise wire_refusals.ENCRYPTION_REQUIRED_TO_PRODUCE.error(topic=self.name)

    async def add_producer(self, producer: Producer, on_queued: Callable[[], None]) -> None:
        """Attach a producer by the rules of access. Raises the BrokerError that answers the client."""
        self.life.check_usable()

        def check() -> None:
            self.life.check_not_ended()
            if self.ledger.terminated:
                raise wire_refusals.TOPIC_OF_PRODUCER_TERMINATED.error()
            self.producers.check_same_address(producer, self.context.settings.max_same_address_producers_per_topic)
            self.producers.check_limit(self.name, self.config.max_producers)
            self.deduplication.check_name(producer.name)

        await self.producers.admit(producer, on_queued, check)
        self.life.used()
        self.deduplication.producer_joined(producer.name)

    def remove_producer(self, producer: Producer) -> None:
        self.producers.remove(producer)
        self.life.used()
        self.deduplication.producer_left(producer.name)

    async def _save_epoch(self, epoch: int) -> None:
        await self.ledger.set_property(TOPIC_EPOCH_PROPERTY, str(epoch))

    # --- policies ------------------------------------------------------------------------------------------------

    @property
    def properties(self) -> TopicProperties:
        """Made for each use: the garbage collector would look at one object more of every topic."""
        return TopicProperties(self.ledger, self._index_at_load)

    @property
    def is_current(self) -> bool:
        """Whether the topic follows its policies as they are now; False where that takes a comparison."""
        return self.config is self.context.effective(self.name)

    async def config_changed(self) -> None:
        """Policies of the topic, its namespace or the broker changed: follow them, unless the topic ends."""
        previous, self.config = self.config, self.context.effective(self.name)
        if previous == self.config or self.life.has_ended:
            return
        self._apply_config()
        if self.config.encryption_required:
            self.producers.close_unencrypted()
        if self.delay_index is not None:
            self.delay_index.set_policy(self.context.shared(delay_policy(self.context.settings, self.config)))
        await self.subscriptions.config_changed(self.config)
        await self._switch_by_config()

    async def _switch_by_config(self) -> None:
        """Begin or end deduplication and the hold of compaction. The store may fail; the next change of policies then
        tries again.
        """
        if self.life.has_ended:
            return
        if self.deduplication.is_wanted != self.config.deduplication_enabled:
            await self.deduplication.switch(on=self.config.deduplication_enabled)
        if self._is_compacted:
            await self.compaction.keep_all()

    @property
    def _is_compacted(self) -> bool:
        """Whether a policy compacts the topic: its subscription of compaction then holds every entry until a run."""
        return self.config.compaction_threshold_bytes > 0

    def _apply_config(self) -> None:
        self.publishing.policy.apply(self.config)
        self.ledger.set_config(self.context.shared(self.context.ledger_config(self.config)))

    def recheck_rights(self) -> None:
        """Policies changed: close consumers and producers whose role lost its right."""
        self.subscriptions.recheck_rights()
        self.producers.recheck_rights(self.name)

    @property
    def is_wide(self) -> bool:
        """Whether a change for all clients and subscriptions takes more than a turn of the event loop."""
        return is_wide(len(self.producers), self.subscriptions.by_name)

    async def recheck_rights_in_turns(self) -> None:
        """Do the same for thousands of clients."""
        await self.subscriptions.recheck_rights_in_turns()
        await self.producers.recheck_rights_in_turns(self.name, self.context.turns)

    # --- end of its life -----------------------------------------------------------------------------------------

    async def terminate(self) -> Position:
        """Terminate the topic: accept no further message and close the producers. Consumers get the end of the topic
        when they have read all messages.
        """
        try:
            last = await self.ledger.terminate()
        finally:
            # even when the end is not stored: SENDs wait for CLOSE_PRODUCER
            await self.producers.terminated(self.context.turns)
        await self.subscriptions.terminated()
        log.info("topic.terminated", topic=str(self.name))
        return last

    async def close(self, *, disconnect: bool = True) -> None:
        """Unload: close every client by CLOSE_*; all entries are on the disk on return."""
        if self.life.has_ended:
            return
        self.life.state = TopicState.CLOSING
        self.producers.fail_waiting(wire_refusals.TOPIC_OF_WAITING_PRODUCER_UNAVAILABLE.error())
        self.ledger.give_up_creation()
        if disconnect:
            await self._end_publishes()
            await self.producers.disconnect_in_turns(self.context.turns)
        await self.compaction.close()
        await self.publishing.wait_drained()
        await self.subscriptions.close()
        try:
            if self.delay_index is not None:
                await self.delay_index.close()
        finally:  # a log that stayed open would be shared with the topic that is loaded next
            await self.ledger.close()
            self._closed()

    async def _end_publishes(self) -> None:
        """Return when the receipts of all appends under way are written, or after a moment. A client ignores receipts
        that follow CLOSE_PRODUCER and sends their messages again.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RECEIPTS_WITHIN_S):
                await self.publishing.wait_drained()

    async def abandon(self) -> None:
        """End the work that a failed ``open`` started."""
        self._closed()
        try:
            if self.delay_index is not None:
                await self.delay_index.close()
        finally:
            await self.ledger.close()

    async def delete(self, forget: Callable[[], Awaitable[None]] = nothing_to_forget) -> None:
        """Remove the topic and all its data; close clients by CLOSE_*. ``forget`` removes its schemas and policies when
        no client can use the topic, and its deletion is certain: behind a failure or a crash the next load completes
        the deletion.

        Where the log has another owner, the log refuses the mark of the deletion, before anything goes. The compacted
        ledger, perhaps the only copy of its messages, goes when no log is left that has a record of it.
        """
        if self.life.has_ended:
            raise ServiceNotReadyError(f"Topic {self.name} is being closed")
        self.life.state = TopicState.CLOSING
        self.producers.fail_waiting(wire_refusals.TOPIC_OF_WAITING_PRODUCER_UNAVAILABLE.error())
        self.ledger.give_up_creation()
        await self.subscriptions.close(save=False)
        await self.producers.disconnect_in_turns(self.context.turns)
        await self.publishing.wait_drained()
        try:
            await self.compaction.close()
            try:
                await self.ledger.begin_deletion(self.compaction.ledger_ids)
                await forget()
            except BaseException:
                if self.delay_index is not None:
                    await self.delay_index.close()
                raise
            if self.delay_index is not None:
                await self.delay_index.delete()
            await self.ledger.delete()
        finally:  # a failed deletion, too, must not leave an open log to the topic that is loaded next
            await self.ledger.close()
            self._closed()

    def _closed(self) -> None:
        self.life.state = TopicState.CLOSED
        self.publishing.policy.rate.end()
        self.publishing.close()
        self.producers.close()
        self.deduplication.close()
        if self.converting is not None:
            self.converting.close()

    # --- facts ---------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.life.is_open

    @property
    def is_unused(self) -> bool:
        """Whether a consumer's schema may be the topic's first: no entry is stored and no client has fixed a schema."""
        return not len(self.producers) and not self.ledger.entries and self.subscriptions.only_auto_consume

    @property
    def is_idle(self) -> bool:
        """No producer and no consumer is connected."""
        return not len(self.producers) and not self.subscriptions.consumer_count

    async def last_message_id(self, *, read_compacted: bool = False) -> tuple[Position, int]:
        """Position and batch index of the last message; (-1, -1) and -1 when the topic is empty."""
        return await self.last.message_id(self.compaction if read_compacted else None)

    async def recall_last_publish(self) -> None:
        """Set the time of the last publish from the last entry of a loaded topic; the time stays 0 while that entry is
        unreadable.
        """
        if self.publishing.last_publish_ms == 0:
            self.publishing.last_publish_ms = await last_publish_ms(self.ledger)

    async def position_before_first(self) -> Position:
        """The last message id of an empty topic: the current ledger, entry -1."""
        return await self.ledger.ensure_ledger()

    def roll_rates(self, seconds: float) -> None:
        """End a stats period."""
        publishing = self.publishing
        publishing.rate_in.roll(seconds)
        self.subscriptions.published(publishing.rate_in.rates())
        publishing.meters.roll(self.ledger, seconds)
        self.producers.roll_rates(seconds)
        self.subscriptions.roll_rates(seconds)


def delay_policy(settings: Settings, config: TopicConfig) -> DelayPolicy:
    """Return the policies of delayed delivery for the trackers."""
    return DelayPolicy(
        active=config.delayed_delivery.active,
        tick_ms=max(config.delayed_delivery.tick_time, 1),
        strict=settings.is_delayed_delivery_deliver_at_time_strict,
        max_delay_ms=config.delayed_delivery.max_delivery_delay_in_millis,
    )


def _compaction_settings(context: TopicContext) -> CompactionSettings:
    settings = context.settings
    return CompactionSettings(
        slots=context.compaction_slots,
        now_ms=context.now_ms,
        monotonic=context.monotonic,
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
