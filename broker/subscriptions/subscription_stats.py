"""The figures of a subscription and its consumers, gathered on request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.broker.consumers.consumer_stats import HASHES_OF_A_CONSUMER, ConsumerStats, SubscriptionStats
from magnetar.broker.dispatchers.key_shared import KeySharedDispatcher
from magnetar.broker.dispatchers.single_active import SingleActiveDispatcher
from magnetar.broker.slices import WeighedTurn, sliced
from magnetar.broker.subscriptions.non_persistent_subscription import NonPersistentSubscription
from magnetar.broker.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.broker.consumers.consumer import Consumer, ServingSubscription

AnySubscription = Subscription | NonPersistentSubscription
CONSUMERS_IN_ONE_TURN = 128
SUBSCRIPTIONS_IN_ONE_TURN = 64


def told_stats(subscription: ServingSubscription, consumer: Consumer) -> ConsumerStats:
    """One consumer, with the figures of CONSUMER_STATS_RESPONSE alone, which clients may request by the thousand: no
    hash ranges and no draining hashes, of which a consumer may have tens of thousands.
    """
    if not isinstance(subscription, Subscription):
        return consumer.stats()
    return replace(
        consumer.stats(),
        msg_backlog=subscription.cursor.backlog_entries,
        msg_rate_expired=subscription.expired.rates().messages_per_second,
    )


def consumer_stats(subscription: AnySubscription, consumer: Consumer) -> ConsumerStats:
    """One consumer, with its subscription's figures."""
    stats = told_stats(subscription, consumer)
    if not isinstance(subscription, Subscription):
        return stats
    dispatcher = subscription.dispatcher
    if not isinstance(dispatcher, KeySharedDispatcher):
        return stats
    return replace(
        stats,
        key_hash_ranges=dispatcher.key_ranges_of(consumer),
        drains_hashes=not (dispatcher.sticky or dispatcher.allow_out_of_order),
        draining_hashes=tuple(dispatcher.draining.of(consumer)),
        draining_hashes_cleared_total=dispatcher.draining.cleared_total(consumer),
    )


def subscription_stats(subscription: AnySubscription) -> SubscriptionStats:
    """The figures of the subscription and all its consumers for the stats JSON and the metrics."""
    return _stats(subscription, tuple(consumer_stats(subscription, each) for each in subscription.consumers))


async def stats_in_slices(subscriptions: Sequence[AnySubscription]) -> dict[str, SubscriptionStats]:
    """Gather the figures of all subscriptions in slices, when they take too long for a turn of the event loop: those of
    many subscriptions, consumers or hashes. A consumer that leaves meanwhile counts among the consumers that have left.
    """
    found: dict[str, SubscriptionStats] = {}
    few = len(subscriptions) <= SUBSCRIPTIONS_IN_ONE_TURN
    if few and sum(map(_weight, subscriptions)) <= CONSUMERS_IN_ONE_TURN:
        return found
    turn = WeighedTurn(CONSUMERS_IN_ONE_TURN)
    async for some in sliced(subscriptions, SUBSCRIPTIONS_IN_ONE_TURN):
        for subscription in some:
            found[subscription.name] = await _in_turns(subscription, turn)
    return found


def _weight(subscription: AnySubscription) -> int:
    """The sum of the weights of its consumers; at least their number."""
    consumers, dispatcher = subscription.consumers, subscription.dispatcher
    if not isinstance(dispatcher, KeySharedDispatcher) or len(consumers) > CONSUMERS_IN_ONE_TURN:
        return len(consumers)
    hashes = len(dispatcher.draining) + sum(len(each.sticky_ranges) for each in consumers)
    return len(consumers) + hashes // HASHES_OF_A_CONSUMER


async def _in_turns(subscription: AnySubscription, turn: WeighedTurn) -> SubscriptionStats:
    gathered: dict[Consumer, ConsumerStats] = {}
    for each in list(subscription.consumers):
        gathered[each] = consumer_stats(subscription, each)
        await turn.spend(gathered[each].weight)
    return _stats(subscription, tuple(gathered[each] for each in subscription.consumers if each in gathered))


def _stats(subscription: AnySubscription, consumers: tuple[ConsumerStats, ...]) -> SubscriptionStats:
    if isinstance(subscription, Subscription):
        return _stored(subscription, consumers)
    return _unstored(subscription, consumers)


def _unstored(subscription: NonPersistentSubscription, consumers: tuple[ConsumerStats, ...]) -> SubscriptionStats:
    return SubscriptionStats(
        msg_rate_out=sum((c.msg_rate_out for c in consumers), 0.0),
        msg_throughput_out=sum((c.msg_throughput_out for c in consumers), 0.0),
        bytes_out_counter=subscription.gone.total_bytes + sum(c.bytes_out_counter for c in consumers),
        msg_out_counter=subscription.gone.total_messages + sum(c.msg_out_counter for c in consumers),
        message_ack_rate=sum((c.message_ack_rate for c in consumers), 0.0),
        msg_drop_rate=subscription.dropped.rates().messages_per_second,
        msg_drop_counter=subscription.dropped.total_messages,
        type_name=subscription.type_name,
        consumers=consumers,
        is_durable=False,
    )


def _stored(subscription: Subscription, consumers: tuple[ConsumerStats, ...]) -> SubscriptionStats:
    dispatcher, acknowledger = subscription.dispatcher, subscription.acknowledger
    multiple = None if dispatcher is None else dispatcher.held
    key_shared = dispatcher if isinstance(dispatcher, KeySharedDispatcher) else None
    single = dispatcher if isinstance(dispatcher, SingleActiveDispatcher) else None
    delay = subscription.context.delay
    backlog = subscription.cursor.backlog_entries
    delayed = 0 if delay is None or multiple is None else delay.pending_count
    mode = None if key_shared is None else "STICKY" if key_shared.sticky else "AUTO_SPLIT"
    return SubscriptionStats(
        msg_rate_out=sum((c.msg_rate_out for c in consumers), 0.0),
        msg_throughput_out=sum((c.msg_throughput_out for c in consumers), 0.0),
        bytes_out_counter=subscription.gone.total_bytes + sum(c.bytes_out_counter for c in consumers),
        msg_out_counter=subscription.gone.total_messages + sum(c.msg_out_counter for c in consumers),
        msg_rate_redeliver=sum((c.msg_rate_redeliver for c in consumers), 0.0),
        message_ack_rate=sum((c.message_ack_rate for c in consumers), 0.0),
        chunked_message_rate=sum((c.chunked_message_rate for c in consumers), 0.0),
        msg_backlog=backlog,
        msg_backlog_no_delayed=max(backlog - delayed, 0),
        msg_delayed=delayed,
        delayed_index_bytes=0 if delay is None or multiple is None else delay.memory_bytes,
        msg_in_replay=0 if multiple is None else len(multiple.replay),
        blocked_on_unacked=multiple is not None and multiple.unacked.blocked,
        unacked_messages=0 if multiple is None else multiple.unacked.total,
        type_name=subscription.type_name,
        active_consumer_name=None if single is None else single.active_name,
        msg_rate_expired=subscription.expired.rates().messages_per_second,
        msg_expired=subscription.expired.last_messages,
        total_msg_expired=subscription.expired.total_messages,
        last_expire_ms=subscription.last_expire_ms,
        last_consumed_flow_ms=subscription.last_flow_ms,
        last_consumed_ms=max((c.last_consumed_ms for c in consumers), default=0),
        last_acked_ms=max((c.last_acked_ms for c in consumers), default=0),
        last_mark_delete_advanced_ms=acknowledger.last_mark_delete_advanced_ms,
        consumers=consumers,
        is_durable=subscription.durable,
        pinned=subscription.pinned,
        is_replicated=subscription.replicated,
        allow_out_of_order_delivery=key_shared is not None and key_shared.allow_out_of_order,
        key_shared_mode=mode,
        draining_hashes_cleared_total=sum(c.draining_hashes_cleared_total for c in consumers),
        subscription_properties=dict(subscription.cursor.cursor_properties),
        dispatch_limited=dict(subscription.dispatch_limited or {}),
    )
