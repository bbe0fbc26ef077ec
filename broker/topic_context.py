"""What a topic needs of the broker around it: plain values and a few functions, no way back to the broker itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.policies import TopicConfig
    from magnetar.broker.settings import Settings
    from magnetar.broker.topic import Topic
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.managed_ledger import ManagedLedgerConfig


@dataclass(slots=True)
class TopicContext:
    """Shared by all topics of a broker."""

    settings: Settings
    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    call_later: Callable[..., Any]
    effective: Callable[[TopicName], TopicConfig]
    ledger_config: Callable[[TopicConfig], ManagedLedgerConfig]
    check_backlog_quota: Callable[[Topic], None]
    transform: Callable[..., Any] | None = None
