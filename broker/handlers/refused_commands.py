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


Refusal = tuple[int, str]
"""Pulsar's error code and text."""
EndTxn = pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription


class RefusedClient(Client, Protocol):
    """A connection whose role decides the detail of a refusal."""

    @property
    def role(self) -> str | None: ...
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


def _denied(conn: RefusedClient, command: EndTxn) -> Refusal | None:
    """The refusal of a role that is no super user; only super users learn that transactions are off."""
    if conn.is_super_user:
        return None
    return wire_refusals.TRANSACTION_OF_SUPER_USERS.answer(
        role=conn.role, most=command.txnid_most_bits, least=command.txnid_least_bits
    )


def _of_partition(conn: RefusedClient, command: pb.CommandEndTxnOnPartition, name: TopicName) -> Refusal | None:
    topics = conn.services.topics
    if topics.known(name):
        if (denied := _denied(conn, command)) is not None:
            return denied
        if name.persistent:
            return wire_refusals.TRANSACTION_BUFFER_DISABLED.answer()
        return wire_refusals.END_TXN_UNSUPPORTED.answer()
    if topics.is_loaded_by_a_look(name) and (missing := topics.partition_refusal(name)) is not None:
        problem = wire_refusals.NOT_ALLOWED.error(problem=missing)
        return pb.ServiceNotReady, str(problem)
    return None


def on_end_txn_on_partition(conn: RefusedClient, command: pb.CommandEndTxnOnPartition) -> None:
    """Answer a command of other brokers: an error for a topic of this broker, success without effect for others."""
    refusal = _of_partition(conn, command, _topic(command.topic))
    conn.write(
        replies.end_txn_on_partition_response(
            command.request_id, command.txnid_least_bits, command.txnid_most_bits, refusal
        )
    )


def on_end_txn_on_subscription(conn: RefusedClient, command: pb.CommandEndTxnOnSubscription) -> None:
    """Answer a command of other brokers: an error for a loaded subscription, success without effect for others."""
    name = _topic(command.subscription.topic)
    topic = conn.services.topics.loaded.get(str(name))
    known = topic is not None and command.subscription.subscription in topic.subscriptions.by_name
    refusal = None
    if known:
        off = (
            wire_refusals.TRANSACTION_DISABLED.answer()
            if name.persistent
            else wire_refusals.END_TXN_OF_SUBSCRIPTION_UNSUPPORTED.answer()
        )
        code, problem = _denied(conn, command) or off
        refusal = code, wire_refusals.END_TXN_OF_SUBSCRIPTION.format(problem=problem)
    conn.write(
        replies.end_txn_on_subscription_response(
            command.request_id, command.txnid_least_bits, command.txnid_most_bits, refusal
        )
    )
