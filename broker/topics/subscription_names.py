"""The names that a subscription may not have."""

from __future__ import annotations

from typing import Final

from magnetar.broker.compat import wire_refusals
from magnetar.broker.topics.deduplication import CURSOR_NAME as DEDUPLICATION_CURSOR

RESERVED_PREFIX: Final = "pulsar.repl"


def check_name(name: str) -> None:
    """Refuse names of consumers' subscriptions that are blank or reserved."""
    if not name.strip():
        raise wire_refusals.SUBSCRIPTION_NAME_EMPTY.error()
    check_not_reserved(name)


def check_not_reserved(name: str) -> None:
    """Refuse subscription names that the broker keeps for itself."""
    if name.startswith(RESERVED_PREFIX) or name == DEDUPLICATION_CURSOR:
        raise wire_refusals.SUBSCRIPTION_NAME_RESERVED.error()
