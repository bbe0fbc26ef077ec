"""Commands of features that are off: each gets the answer Apache Pulsar 4.2 gives when its feature is off (reference B.16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.broker.errors import NotAllowedError
from magnetar.protocol import replies

if TYPE_CHECKING:
    from magnetar.broker.connection import Connection


def on_transaction(_conn: Connection, _command: Any) -> None:
    """Everything a client asks a transaction coordinator for."""
    raise NotAllowedError("Transactions are not enabled.")


def on_end_txn_on_partition(conn: Connection, command: Any) -> None:
    """Between brokers only: the end of a transaction nobody here takes part in is no news."""
    conn.write(
        replies.end_txn_on_partition_response(command.request_id, command.txnid_least_bits, command.txnid_most_bits)
    )


def on_end_txn_on_subscription(conn: Connection, command: Any) -> None:
    conn.write(
        replies.end_txn_on_subscription_response(command.request_id, command.txnid_least_bits, command.txnid_most_bits)
    )
