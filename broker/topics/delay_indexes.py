"""Which index of delayed messages a topic gets: delayedDeliveryTrackerFactoryClassName, by Pulsar's class names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from magnetar.delayed.bitmap_shelf import BitmapShelf
from magnetar.delayed.bucket_index import BucketDelayIndex
from magnetar.delayed.delay_ports import DelayEnvironment, Log
from magnetar.delayed.delay_settings import BucketSettings
from magnetar.delayed.memory_tracker import MemoryDelayIndex

if TYPE_CHECKING:
    from typing import BinaryIO

    from magnetar.broker.settings import Settings
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.context import TopicContext
    from magnetar.delayed.delay_settings import DelayPolicy
    from magnetar.storage.interfaces import LedgerStore

DelayIndex = MemoryDelayIndex | BucketDelayIndex
_IN_MEMORY = "InMemoryDelayedDeliveryTrackerFactory"


class DelayedLog(Log, Protocol):
    """The log of a topic, and the stores of its index."""

    @property
    def name(self) -> str: ...
    @property
    def store(self) -> LedgerStore: ...


async def open_delay_index(
    ledger: DelayedLog, policy: DelayPolicy, context: TopicContext, tasks: TaskSet
) -> DelayIndex:
    """Return the index of a topic, ready to take entries; the index reads stored buckets in the background."""
    if context.settings.delayed_delivery_tracker_factory_class_name.endswith(_IN_MEMORY):
        return MemoryDelayIndex(
            policy,
            context.now_ms,
            context.call_later,
            context.settings.delayed_delivery_fixed_delay_detection_lookahead,
        )
    environment = DelayEnvironment(
        ledgers=ledger.store,
        now_ms=context.now_ms,
        call_later=context.call_later,
        spawn=tasks.spawn,
        off_loop=context.delay_thread,
        shelf=context.delay_shelf,
    )
    settings = context.shared(bucket_settings(context.settings))
    index = BucketDelayIndex(ledger.name, ledger, policy, settings, context.shared(environment))
    await index.open()
    return index


def bucket_settings(settings: Settings) -> BucketSettings:
    """Pulsar's settings as the index takes them."""
    return BucketSettings(
        min_index_count=settings.delayed_delivery_min_index_count_per_bucket,
        segment_step_ms=settings.delayed_delivery_max_time_step_per_bucket_snapshot_segment_seconds * 1000,
        max_segment_indexes=settings.delayed_delivery_max_indexes_per_bucket_snapshot_segment,
        max_buckets=settings.delayed_delivery_max_num_buckets,
    )


def bitmap_shelf(settings: Settings) -> BitmapShelf:
    """The budget of all indexes of a broker for the bitmaps of waiting entries."""

    def open_file() -> BinaryIO:
        import tempfile  # noqa: PLC0415 - not before the budget is exceeded

        return tempfile.TemporaryFile(dir=settings.data_dir)

    return BitmapShelf(settings.delayed_delivery_bitmap_memory_mb << 20, open_file)


__all__ = ["DelayIndex", "bitmap_shelf", "bucket_settings", "open_delay_index"]
