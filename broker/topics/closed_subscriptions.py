"""The end of the subscriptions of a persistent topic, in slices: a topic may have thousands."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.slices import give_way
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    import weakref

    from magnetar.broker.subscriptions.subscription import Subscription
    from magnetar.protocol.topic_name import TopicName

log = structlog.get_logger(__name__)
_CLOSED_TOGETHER = 64


async def close_subscriptions(
    by_name: dict[str, Subscription], in_order: list[Subscription], topic: TopicName, *, save: bool
) -> None:
    """Disconnect all consumers and close every subscription, even when the store or the close of another fails. Then
    remove them from ``by_name``, and from ``in_order``, so that their objects end in slices too.

    On return the acks are durable; where the store failed, consumers get the entries of lost acks again.
    """
    for start in range(0, len(in_order), _CLOSED_TOGETHER):
        closing = (_close(each, topic, save=save) for each in in_order[start : start + _CLOSED_TOGETHER])
        await asyncio.gather(*closing)
    in_order.clear()
    while by_name:
        for _ in range(min(_CLOSED_TOGETHER, len(by_name))):
            by_name.popitem()
        if by_name:
            await give_way()


async def _close(subscription: Subscription, topic: TopicName, *, save: bool) -> None:
    try:
        await subscription.close(disconnect=True)
        if save and subscription.durable:
            await subscription.cursor.flush()
    except StorageError as error:
        log.warning("acks.not_saved", topic=str(topic), subscription=subscription.name, error=str(error))
    except Exception:  # a bug in one subscription must not leave the consumers of the others connected
        log.exception("subscription.close_failed", topic=str(topic), subscription=subscription.name)


def wake(reference: weakref.ReferenceType[Subscription]) -> None:
    """Ask for a turn of a subscription that has not ended."""
    subscription = reference()
    if subscription is not None:
        subscription.wake()
