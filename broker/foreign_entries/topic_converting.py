"""Conversion for one topic: its books, and a transformer for each of its subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from magnetar.broker.foreign_entries.topic_books import TopicBooks
from magnetar.broker.foreign_entries.transformer import SubscriptionTransformer
from magnetar.broker.foreign_entries.unstored import UnstoredConverting

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.foreign_entries.tools import ConvertingTools
    from magnetar.broker.foreign_entries.topic_books import Properties
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.slab import Slab


class TopicConverting(TopicBooks):
    """The books of a loaded topic, with a transformer for each of its subscriptions."""

    def __init__(
        self,
        tools: ConvertingTools,
        name: TopicName,
        properties: Properties,
        on_close: Callable[[TopicConverting], None] = lambda _topic: None,
    ) -> None:
        super().__init__(tools, name, properties)
        self.transformers: WeakValueDictionary[str, SubscriptionTransformer] = WeakValueDictionary()
        self._on_close = on_close

    def transformer(self, subscription: str) -> SubscriptionTransformer:
        """Make the transformer for the dispatcher of a new subscription."""
        transformer = self.transformers[subscription] = SubscriptionTransformer(self, subscription)
        return transformer

    def unstored(self, publish: Callable[[Slab], None]) -> UnstoredConverting:
        """The converter of a non-persistent topic, which converts before `publish`."""
        return UnstoredConverting(self, publish)

    def close(self) -> None:
        """Remove the books from the service: the topic closes."""
        self._on_close(self)
