"""Failures of a request, and the error code and text for its client.

    BrokerError                      UnknownError
    ├── MetadataError                MetadataError      precondition of a request; metadata store failure
    │   ├── UnreadableRecordError    MetadataError      a stored record of policies or of a topic does not parse
    │   └── ForeignNamespaceError    MetadataError      other clusters serve the namespace
    ├── PersistenceError             PersistenceError   the log refused or failed a write; fenced topic on publish
    ├── AuthenticationError          AuthenticationError
    ├── AuthorizationError           AuthorizationError
    ├── ConsumerBusyError            ConsumerBusy       exclusive consumer connected, limits of consumers
    │   └── SubscriptionBusyError    ConsumerBusy       connected consumers have another type or key-shared policy
    ├── ServiceNotReadyError         ServiceNotReady    fenced or unloading; the client looks up again
    ├── QuotaHoldError               ProducerBlockedQuotaExceededError
    ├── QuotaExceededError           ProducerBlockedQuotaExceededException
    ├── ChecksumError                ChecksumError
    ├── UnsupportedVersionError      UnsupportedVersionError
    ├── TopicNotFoundError           TopicNotFound
    ├── SubscriptionNotFoundError    SubscriptionNotFound
    ├── ConsumerNotFoundError        ConsumerNotFound
    ├── TooManyRequestsError         TooManyRequests
    ├── TopicTerminatedError         TopicTerminatedError
    ├── ProducerBusyError            ProducerBusy       name taken; limits of producers
    │   └── NamingError              ProducerBusy       reserved or empty names
    ├── InvalidTopicNameError        InvalidTopicName
    ├── IncompatibleSchemaError      IncompatibleSchema
    │   └── InvalidSchemaError       IncompatibleSchema the definition itself does not parse
    ├── SchemaDefaultError           UnknownError       a default in a schema is no value of its type
    ├── ConsumerAssignError          ConsumerAssignError  key ranges overlap or are missing
    ├── TransactionNotFoundError     TransactionNotFound
    ├── NotAllowedError              NotAllowedError
    ├── UnsupportedOnTopicError      UnknownError       the kind of topic has no answer to the request
    ├── ProducerFencedError          ProducerFenced
    └── ConnectionFatalError         UnknownError       the request breaks the protocol: no reply, the connection closes

Each class carries its ServerError code (PulsarApi ``enum ServerError``); only `RequestTasks.failed` turns an error into
a reply. Any other exception is a bug: the peer gets UnknownError without details.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from magnetar.protocol import pulsar_api_pb2 as pb

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of a record that is no JSON of its type, no UTF-8, or nested too deep."""


class BrokerError(Exception):
    """Root of the errors of requests to the broker."""

    server_error: ClassVar[int] = pb.UnknownError
    closes_connection: ClassVar[bool] = False


class MetadataError(BrokerError):
    server_error = pb.MetadataError


class UnreadableRecordError(MetadataError):
    """A record of the metadata store does not parse; only requests that need the record fail."""


class ForeignNamespaceError(MetadataError):
    """Other clusters serve the namespace, in place of the broker's own cluster."""

    peer: str | None = None
    """The cluster among them that replaces this cluster, if any: clients go there."""


class PersistenceError(BrokerError):
    server_error = pb.PersistenceError


class AuthenticationError(BrokerError):
    server_error = pb.AuthenticationError
    closes_connection = True


class AuthorizationError(BrokerError):
    server_error = pb.AuthorizationError


class ConsumerBusyError(BrokerError):
    server_error = pb.ConsumerBusy


class SubscriptionBusyError(ConsumerBusyError):
    """The connected consumers use another subscription type or key-shared policy."""


class ServiceNotReadyError(BrokerError):
    server_error = pb.ServiceNotReady


class QuotaHoldError(BrokerError):
    server_error = pb.ProducerBlockedQuotaExceededError


class QuotaExceededError(BrokerError):
    server_error = pb.ProducerBlockedQuotaExceededException


class ChecksumError(BrokerError):
    server_error = pb.ChecksumError


class UnsupportedVersionError(BrokerError):
    server_error = pb.UnsupportedVersionError


class TopicNotFoundError(BrokerError):
    server_error = pb.TopicNotFound


class SubscriptionNotFoundError(BrokerError):
    server_error = pb.SubscriptionNotFound


class ConsumerNotFoundError(BrokerError):
    server_error = pb.ConsumerNotFound


class TooManyRequestsError(BrokerError):
    server_error = pb.TooManyRequests


class TopicTerminatedError(BrokerError):
    server_error = pb.TopicTerminatedError


class ProducerBusyError(BrokerError):
    server_error = pb.ProducerBusy


class NamingError(ProducerBusyError):
    """A producer or subscription name that is empty, reserved or has characters that are not allowed."""


class InvalidTopicNameError(BrokerError):
    server_error = pb.InvalidTopicName


class IncompatibleSchemaError(BrokerError):
    server_error = pb.IncompatibleSchema


class InvalidSchemaError(IncompatibleSchemaError):
    """The schema's own definition does not parse."""


class ImpossibleSchemaError(InvalidSchemaError):
    """The definition of an Avro type parses, but names an undefined type or a field twice."""


class SchemaDefaultError(BrokerError):
    """A default value in the schema, or in a stored schema of the topic, is no value of its type."""


class BrokenKeyValueError(BrokerError):
    """The definition of a KeyValue schema does not hold two parts."""


class ConsumerAssignError(BrokerError):
    server_error = pb.ConsumerAssignError


class TransactionNotFoundError(BrokerError):
    server_error = pb.TransactionNotFound


class NotAllowedError(BrokerError):
    server_error = pb.NotAllowedError


class UnsupportedOnTopicError(BrokerError):
    """This kind of topic does not support the request (for example GET_LAST_MESSAGE_ID of a non-persistent topic)."""


class ProducerFencedError(BrokerError):
    server_error = pb.ProducerFenced


class ConnectionFatalError(BrokerError):
    """The peer broke the protocol; Apache Pulsar closes such a connection without an answer, and so does Magnetar."""

    closes_connection = True


class RestError(Exception):
    """Ends a request with this status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class NoSuchPathError(RestError):
    """The path names a subject that cannot exist: the answer is the same as for an unknown path."""

    def __init__(self, reason: str) -> None:
        super().__init__(404, reason)
