"""Frozen figures of consumers and subscriptions: the source of stats JSON, CONSUMER_STATS and /metrics.

Rates are of the last full stats period; times are wall clock milliseconds, 0 = never.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from magnetar.broker.compat.java_times import date_format

if TYPE_CHECKING:
    from magnetar.broker.consumers.draining_hashes import DrainingHash

_U64 = (1 << 64) - 1
HASHES_OF_A_CONSUMER = 128
"""Draining hashes and hash ranges that take as long as the other figures of a consumer."""


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """One consumer."""

    consumer_name: str
    consumer_id: int
    msg_rate_out: float
    msg_throughput_out: float
    bytes_out_counter: int
    msg_out_counter: int
    msg_rate_redeliver: float
    message_ack_rate: float
    chunked_message_rate: float
    available_permits: int
    unacked_messages: int
    avg_messages_per_entry: int
    blocked_on_unacked: bool
    address: str
    connected_since_ms: int
    client_version: str
    last_acked_ms: int
    last_consumed_ms: int
    first_messages_sent_ms: int
    last_consumed_flow_ms: int
    first_consumed_flow_ms: int
    type_name: str
    metadata: dict[str, str]
    key_hash_ranges: tuple[tuple[int, int], ...] = ()
    drains_hashes: bool = False
    draining_hashes: tuple[DrainingHash, ...] = ()
    draining_hashes_cleared_total: int = 0
    msg_backlog: int = 0
    msg_rate_expired: float = 0.0

    def wire(self) -> dict[str, object]:
        """Fields of CommandConsumerStatsResponse."""
        return {
            "msgRateOut": self.msg_rate_out,
            "msgThroughputOut": self.msg_throughput_out,
            "msgRateRedeliver": self.msg_rate_redeliver,
            "consumerName": self.consumer_name,
            "availablePermits": self.available_permits & _U64,
            "unackedMessages": self.unacked_messages,
            "blockedConsumerOnUnackedMsgs": self.blocked_on_unacked,
            "address": self.address,
            "connectedSince": date_format(self.connected_since_ms),
            "type": self.type_name,
            "msgRateExpired": self.msg_rate_expired,
            "msgBacklog": self.msg_backlog,
            "messageAckRate": self.message_ack_rate,
        }

    @property
    def weight(self) -> int:
        """The work of the figures, in that of a consumer without many hashes."""
        return 1 + (len(self.draining_hashes) + len(self.key_hash_ranges)) // HASHES_OF_A_CONSUMER

    @property
    def draining_hashes_unacked_messages(self) -> int:
        return sum(map(itemgetter(1), self.draining_hashes))  # of tens of thousands


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """One subscription. `type_name` is "" while no consumer has been connected.

    dispatch_limited: how often dispatch waited for a rate, by the kind of tokens (Msg, Bytes) and the level of the rate
    (Broker, Topic, Subscription).
    """

    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0
    msg_rate_redeliver: float = 0.0
    message_ack_rate: float = 0.0
    chunked_message_rate: float = 0.0
    msg_drop_rate: float = 0.0
    msg_drop_counter: int = 0
    msg_backlog: int = 0
    msg_backlog_no_delayed: int = 0
    msg_delayed: int = 0
    delayed_index_bytes: int = 0
    msg_in_replay: int = 0
    blocked_on_unacked: bool = False
    unacked_messages: int = 0
    type_name: str = ""
    active_consumer_name: str | None = None
    msg_rate_expired: float = 0.0
    msg_expired: int = 0
    total_msg_expired: int = 0
    last_expire_ms: int = 0
    last_consumed_flow_ms: int = 0
    last_consumed_ms: int = 0
    last_acked_ms: int = 0
    last_mark_delete_advanced_ms: int = 0
    consumers: tuple[ConsumerStats, ...] = ()
    is_durable: bool = True
    pinned: bool = False
    is_replicated: bool = False
    allow_out_of_order_delivery: bool = False
    key_shared_mode: str | None = None
    draining_hashes_cleared_total: int = 0
    subscription_properties: dict[str, str] = field(default_factory=dict)
    dispatch_limited: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def draining_hashes_count(self) -> int:
        return sum(len(c.draining_hashes) for c in self.consumers)

    @property
    def draining_hashes_unacked_messages(self) -> int:
        return sum(c.draining_hashes_unacked_messages for c in self.consumers)
