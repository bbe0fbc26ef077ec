"""Commands of features that are off: each gets the answer Apache Pulsar 4.2 gives when its feature is off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import ConnectionFatalError, InvalidTopicNameError
from magnetar.broker.handlers.client import Client
from magnetar.broker.handlers.lookup import parse_topic
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from magnetar.protocol.topic_name import TopicName


class RefusedClient(Client, Protocol):
    """A connection whose role decides the detail of a refusal."""

    @property
    def is_super_user(self) -> bool: ...


def on_transaction(_conn: RefusedClient, _command: Message) -> None:
    """Refuse every command for a transaction coordinator."""
    raise wire_refusals.TRANSACTION_COMMANDS_DISABLED.error()


def _topic(text: str) -> TopicName:
    try:
        return parse_topic(text)
    except InvalidTopicNameError as e:
        raise ConnectionFatalError(str(e)) from e


def _refusal(conn: RefusedClient, name: TopicName) -> int:
    """The error code for an existing topic; for a super user alone the code that tells that transactions are off."""
    if not conn.is_super_user:
        return pb.TransactionNotFound
    return pb.NotAllowedError if name.persistent else pb.UnknownError


def on_end_txn_on_partition(conn: RefusedClient, command: pb.CommandEndTxnOnPartition) -> None:
    """Answer a command of other brokers: an error for a topic of this broker, success without effect for others."""
    name = _topic(command.topic)
    topics = conn.services.topics
    code = _refusal(conn, name) if topics.known(name) else None
    if code is None and topics.is_loaded_by_a_look(name) and topics.is_partition_of_nothing(name):
        code = pb.ServiceNotReady
    conn.write(
        replies.end_txn_on_partition_response(
            command.request_id, command.txnid_least_bits, command.txnid_most_bits, code
        )
    )


def on_end_txn_on_subscription(conn: RefusedClient, command: pb.CommandEndTxnOnSubscription) -> None:
    """Answer a command of other brokers: an error for a loaded subscription, success without effect for others."""
    name = _topic(command.subscription.topic)
    topic = conn.services.topics.loaded.get(str(name))
    known = topic is not None and command.subscription.subscription in topic.subscriptions.by_name
    code = _refusal(conn, name) if known else None
    conn.write(
        replies.end_txn_on_subscription_response(
            command.request_id, command.txnid_least_bits, command.txnid_most_bits, code
        )
    )
