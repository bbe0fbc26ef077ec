"""The single table of refusals on the wire in Apache Pulsar's words: clients, tools and tests look for these texts.

A row is an error, which has the ServerError code, and a text; the code names the row and supplies the values. A refusal
in Magnetar's words is next to its rule, not here. tests/broker/compat/test_refusals.py checks that the tables are
complete and every row is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from magnetar.broker import errors
from magnetar.broker.compat.java_texts import in_utf_8
from magnetar.protocol import pulsar_api_pb2 as pb

E = TypeVar("E", bound=errors.BrokerError)


@dataclass(frozen=True, slots=True)
class WireRefusal(Generic[E]):
    """The error and the text of a refusal on the wire."""

    kind: type[E]
    text: str

    def error(self, **values: object) -> E:
        """The error to raise, with these values in its text."""
        return self.kind(self._with(values))

    def answer(self, **values: object) -> tuple[int, str]:
        """Code and text, for a refusal that the caller sends as an answer and does not raise."""
        return self.kind.server_error, self._with(values)

    def _with(self, values: dict[str, object]) -> str:
        """The text with these values. Half of a surrogate pair, in the role of a token, becomes `?` as in Java."""
        return in_utf_8(self.text.format(**values))


_SERVICE: Final = "org.apache.pulsar.broker.service.BrokerServiceException$"
"""Beginning of the refusals that name the class of an exception; the same on every Apache Pulsar."""

AUTHENTICATION_FAILED: Final = WireRefusal(errors.AuthenticationError, "Failed to authenticate")
SUBSCRIPTION_NOT_FENCED: Final = WireRefusal(
    errors.BrokerError,
    "Error when resetting subscription: Failed to fence subscription",
)
TOO_MANY_PARTITIONS: Final = WireRefusal(
    errors.BrokerError,
    "Number of partitions should be less than or equal to {most}",
)
CHECKSUM_FAILED: Final = WireRefusal(errors.ChecksumError, "Checksum failed on the broker")
HASH_RANGES_MISSING: Final = WireRefusal(errors.ConsumerAssignError, "Ranges for KeyShared policy must not be empty.")
HASH_RANGE_BACKWARDS: Final = WireRefusal(
    errors.ConsumerAssignError, "Fixed hash range start > end for range: [{start},{end}]"
)
HASH_RANGES_OVERLAP: Final = WireRefusal(
    errors.ConsumerAssignError,
    "Consumer's own ranges conflict: [{start},{end}] overlaps with [{next_start},{next_end}]",
)
HASH_RANGE_CONFLICT: Final = WireRefusal(errors.ConsumerAssignError, "Range conflict with consumer {consumer}")
CONSUMERS_CONNECTED: Final = WireRefusal(errors.ConsumerBusyError, "Subscription has active connected consumers")
EXCLUSIVE_CONSUMER_CONNECTED: Final = WireRefusal(errors.ConsumerBusyError, "Exclusive consumer is already connected")
SUBSCRIPTION_NOT_FENCED_TO_DELETE: Final = WireRefusal(
    errors.ConsumerBusyError,
    "Failed for Subscription Busy: Failed to fence subscription",
)
TOO_MANY_CONSUMERS: Final = WireRefusal(errors.ConsumerBusyError, "Topic reached max consumers limit")
TOO_MANY_CONSUMERS_OF_ADDRESS: Final = WireRefusal(
    errors.ConsumerBusyError,
    "Topic reached max same address consumers limit",
)
TOO_MANY_CONSUMERS_OF_SUBSCRIPTION: Final = WireRefusal(
    errors.ConsumerBusyError,
    "Subscription reached max consumers limit",
)
PROTOBUF_ROOT_CHANGED: Final = WireRefusal(
    errors.IncompatibleSchemaError,
    "Protobuf root message change is not allowed under the '{strategy}' strategy. "
    "Original message name: '{old}', new message name: '{new}'.",
)
SCHEMA_ADDED_TO_BYTES: Final = WireRefusal(
    errors.IncompatibleSchemaError,
    "Failed to add schema to an active topic with empty(BYTES) schema: new schema type {kind}",
)
KEY_VALUE_TYPES_CHANGED: Final = WireRefusal(
    errors.IncompatibleSchemaError,
    "Key schemas or Value schemas are different schema type, from key schema type is {old_key} and to key schema is "
    "{new_key}, from value schema is {old_value} and to value schema is {new_value}",
)
STRING_SCHEMA_WITH_DATA: Final = WireRefusal(
    errors.InvalidSchemaError,
    "Invalid schema definition data for string schema : '{data}'",
)
PRIMITIVE_SCHEMA_WITH_DATA: Final = WireRefusal(
    errors.InvalidSchemaError,
    "Invalid schema definition data for primitive schemas :length of schema data should be zero, but {size} bytes is "
    "found",
)
SCHEMA_OF_CLIENTS: Final = WireRefusal(errors.InvalidSchemaError, "Schema {kind} is a client-side schema type")
SCHEMA_TYPE_CHANGED: Final = WireRefusal(
    errors.IncompatibleSchemaError,
    "Incompatible schema: exists schema type {old}, new schema type {new}",
)
SCHEMA_VERSION_EMPTY: Final = WireRefusal(errors.IncompatibleSchemaError, "Empty schema version")
SCHEMA_UNION: Final = WireRefusal(errors.InvalidSchemaError, "Avro schema typed [UNION] is not supported")
CONSUMER_UNKNOWN: Final = WireRefusal(errors.MetadataError, "Consumer not found")
CONSUMER_NOT_CONNECTED: Final = WireRefusal(errors.MetadataError, "Consumer was not connected")
ENCRYPTION_REQUIRED: Final = WireRefusal(errors.MetadataError, "Messages must be encrypted")
ENCRYPTION_REQUIRED_TO_PRODUCE: Final = WireRefusal(errors.MetadataError, "Encryption is required in {topic}")
CONSUMER_METADATA_TOO_LARGE: Final = WireRefusal(errors.MetadataError, "metadata has a max size of {most} bytes")
SUBSCRIPTION_WITHOUT_ROLE: Final = WireRefusal(
    errors.AuthorizationError,
    "org.apache.pulsar.broker.PulsarServerException: Failed to create consumer - The subscription name needs to be "
    "prefixed by the authentication role, like {role}-xxxx for topic: {topic}",
)
NAMESPACE_MISSING: Final = WireRefusal(errors.MetadataError, "Namespace {namespace} does not exist")
RECORD_UNREADABLE: Final = WireRefusal(errors.UnreadableRecordError, "Failed to deserialize payload for key '{path}'")
NAMESPACE_TO_LIST_MISSING: Final = WireRefusal(
    errors.MetadataError,
    "org.apache.pulsar.broker.web.RestException: Namespace not found",
)
SEEK_WITHOUT_TARGET: Final = WireRefusal(errors.MetadataError, "Message id and message publish time were not present")
UNSUBSCRIBE_REFUSED: Final = WireRefusal(
    errors.MetadataError,
    "Unconnected or shared consumer attempting to unsubscribe",
)
SUBSCRIPTION_NAME_EMPTY: Final = WireRefusal(errors.NamingError, "Empty subscription name")
SUBSCRIPTION_NAME_RESERVED: Final = WireRefusal(
    errors.NamingError,
    "Subscription with reserved subscription name attempted",
)
DELAY_TOO_LONG: Final = WireRefusal(
    errors.NotAllowedError,
    "Exceeds max allowed delivery delay of {most_ms} milliseconds",
)
NO_INITIAL_SUBSCRIPTION: Final = WireRefusal(
    errors.NotAllowedError,
    "Could not create the initial subscription due to the auto subscription creation is not allowed.",
)
NO_TRANSACTION_TOPIC: Final = WireRefusal(errors.NotAllowedError, "Can not create transaction system topic {topic}")
PATTERN_TOO_LONG: Final = WireRefusal(
    errors.NotAllowedError,
    "Unable to create topic list watcher: Pattern longer than maximum: {most}",
)
PATTERNS_NOT_EVALUATED: Final = WireRefusal(
    errors.NotAllowedError,
    "Unable to create topic list watcher: Evaluating subscription patterns is disabled.",
)
PATTERN_OF_UNKNOWN_SCHEME: Final = WireRefusal(
    errors.AuthorizationError,
    "Exception occurred while trying to handle command WatchTopicList",
)
READ_COMPACTED_NEEDS_ONE_READER: Final = WireRefusal(
    errors.NotAllowedError,
    "readCompacted only allowed on failover or exclusive subscriptions",
)
READ_COMPACTED_NEEDS_STORED_TOPIC: Final = WireRefusal(
    errors.NotAllowedError,
    "readCompacted only valid on persistent topics",
)
SUBSCRIBE_RATE_EXCEEDED: Final = WireRefusal(
    errors.NotAllowedError,
    "Subscribe limited by subscribe rate limit per consumer.",
)
SUBSCRIPTION_DURABILITY_DIFFERS: Final = WireRefusal(
    errors.NotAllowedError,
    "{kind} subscription with the same name already exists.",
)
SUBSCRIPTION_TYPE_DISABLED: Final = WireRefusal(
    errors.NotAllowedError,
    "Topic[{{{topic}}}] doesn't support {kind} sub type!",
)
TOO_MANY_SUBSCRIPTIONS: Final = WireRefusal(
    errors.NotAllowedError,
    "Exceed the maximum number of subscriptions of the topic: {topic}",
)
TOO_MANY_TOPICS: Final = WireRefusal(errors.NotAllowedError, "Exceed maximum number of topics in namespace.")
NOT_ALLOWED: Final = WireRefusal(errors.NotAllowedError, _SERVICE + "NotAllowedException: {problem}")
"""Where Apache Pulsar puts the class of the exception in front of its text."""
PARTITION_BEYOND_THE_LAST: Final = WireRefusal(
    errors.NotAllowedError,
    "Illegal topic partition name {topic} with max allowed {most} partitions",
)
PARTITION_OF_NOTHING: Final = WireRefusal(
    errors.NotAllowedError,
    "Partition metadata not found for the partitioned topic: {topic}",
)
TOPICS_DISABLED: Final = WireRefusal(errors.NotAllowedError, "Broker is unable to load persistent topic")
"""Also for a non-persistent topic (Apache Pulsar 4.2.4)."""
TOPIC_PARTITIONED: Final = WireRefusal(
    errors.NotAllowedError,
    "Found partitioned metadata for non-partitioned topic: {topic}",
)
MESSAGE_TOO_LARGE: Final = WireRefusal(errors.NotAllowedError, "Exceed maximum message size")
MESSAGE_ID_OF_SHADOW_TOPICS: Final = WireRefusal(
    errors.NotAllowedError,
    "Only shadow topic supports sending messages with messageId",
)
TRANSACTION_ACKS_DISABLED: Final = WireRefusal(
    errors.NotAllowedError,
    _SERVICE + "NotAllowedException: Server don't support transaction ack!",
)
TRANSACTION_BUFFER_DISABLED: Final = WireRefusal(errors.NotAllowedError, "Transaction buffer disable!")
TRANSACTION_DISABLED: Final = WireRefusal(errors.NotAllowedError, "The transaction is disabled")
TRANSACTION_OF_SUPER_USERS: Final = WireRefusal(
    errors.TransactionNotFoundError,
    "TC client ({role}) is not a super user, and is not allowed to operate on transaction ({most},{least})",
)
END_TXN_UNSUPPORTED: Final = WireRefusal(
    errors.UnsupportedOnTopicError, "Unsupported operation endTxn in non-persistent topic."
)
END_TXN_OF_SUBSCRIPTION_UNSUPPORTED: Final = WireRefusal(
    errors.UnsupportedOnTopicError, "Unsupported operation end txn for NonPersistentSubscription"
)
END_TXN_OF_SUBSCRIPTION: Final = "Handle end txn on subscription failed: {problem}"
TRANSACTION_COMMANDS_DISABLED: Final = WireRefusal(errors.NotAllowedError, "Transactions are not enabled.")
DUPLICATE_UNDECIDED: Final = WireRefusal(
    errors.PersistenceError,
    "[{topic}][{producer}]Cannot determine whether the message is a duplicate at this time",
)
PRODUCER_CLOSED: Final = WireRefusal(errors.PersistenceError, "Producer is closed")
EXCLUSIVE_PRODUCER_CONNECTED: Final = WireRefusal(
    errors.ProducerBusyError,
    _SERVICE + "ProducerBusyException: Topic has an existing exclusive producer: {producer}",
)
PRODUCER_NAME_TAKEN: Final = WireRefusal(
    errors.ProducerBusyError,
    _SERVICE + "NamingException: Producer with name '{producer}' is already connected to topic '{topic}'",
)
FENCED_BY_EXCLUSIVE_PRODUCER: Final = WireRefusal(
    errors.ProducerFencedError,
    _SERVICE + "ProducerFencedException: Topic has an existing exclusive producer: {producer}",
)
FENCED_OUT: Final = WireRefusal(errors.ProducerFencedError, _SERVICE + "ProducerFencedException: Fenced out")
FENCED_BY_SHARED_PRODUCERS: Final = WireRefusal(
    errors.ProducerFencedError,
    _SERVICE + "ProducerFencedException: Topic has existing shared producers",
)
FENCED_BY_TOPIC_EPOCH: Final = WireRefusal(
    errors.ProducerFencedError,
    _SERVICE
    + "ProducerFencedException: Topic epoch has already moved. Current epoch: {current}, Producer epoch: {wanted}",
)
TOO_MANY_PRODUCERS: Final = WireRefusal(errors.ProducerBusyError, "Topic '{topic}' reached max producers limit")
TOO_MANY_PRODUCERS_OF_ADDRESS: Final = WireRefusal(
    errors.ProducerBusyError,
    _SERVICE + "ProducerBusyException: Topic '{topic}' reached max same address producers limit",
)
_QUOTA: Final = (
    _SERVICE + "TopicBacklogQuotaExceededException: Cannot create producer on topic with backlog quota exceeded"
)
BACKLOG_QUOTA_EXCEEDED: Final = WireRefusal(
    errors.QuotaExceededError,
    _QUOTA,
)
BACKLOG_QUOTA_HOLDS: Final = WireRefusal(
    errors.QuotaHoldError,
    _QUOTA,
)
CONSUMER_PRESENT: Final = WireRefusal(errors.ServiceNotReadyError, "Consumer is already present on the connection")
LISTENER_UNKNOWN: Final = WireRefusal(errors.ServiceNotReadyError, "the broker do not have {listener} listener")
PRODUCER_PRESENT: Final = WireRefusal(errors.ServiceNotReadyError, "Producer is already present on the connection")
SUBSCRIPTION_FENCED: Final = WireRefusal(errors.ServiceNotReadyError, "Subscription is fenced")
TOPIC_UNAVAILABLE: Final = WireRefusal(errors.ServiceNotReadyError, "Topic {topic} is temporarily unavailable")
TOPIC_OF_WAITING_PRODUCER_UNAVAILABLE: Final = WireRefusal(
    errors.ServiceNotReadyError,
    _SERVICE + "TopicFencedException: Topic is temporarily unavailable",
)
NAMESPACE_NOT_SERVED: Final = WireRefusal(
    errors.ServiceNotReadyError,
    "Namespace bundle ({bundle}) for topic ({topic}) not served by this instance:{broker}. Please redo the lookup.",
)
SUBSCRIPTION_TYPE_DIFFERS: Final = WireRefusal(
    errors.SubscriptionBusyError,
    "Subscription is of different type. Active subscription type of '{active}' is different than the connecting "
    "consumer's type '{joining}'.",
)
KEY_SHARED_MODE_DIFFERS: Final = WireRefusal(
    errors.SubscriptionBusyError,
    "Subscription is of different type. Active subscription key_shared mode of '{active}' is different than the "
    "connecting consumer's key_shared mode '{joining}'.",
)
KEY_SHARED_ORDER_KEPT: Final = WireRefusal(
    errors.SubscriptionBusyError,
    "Subscription is of different type. Active subscription does not allow out of order delivery while the connecting "
    "consumer allows it.",
)
KEY_SHARED_ORDER_NOT_KEPT: Final = WireRefusal(
    errors.SubscriptionBusyError,
    "Subscription is of different type. Active subscription allows out of order delivery while the connecting "
    "consumer does not allow it.",
)
SUBSCRIPTION_MISSING: Final = WireRefusal(errors.SubscriptionNotFoundError, "Subscription does not exist")
SUBSCRIPTION_OF_TOPIC_UNKNOWN: Final = WireRefusal(
    errors.SubscriptionNotFoundError,
    "Subscription {subscription} not found for topic {topic}",
)
SUBSCRIPTION_UNKNOWN: Final = WireRefusal(errors.SubscriptionNotFoundError, "Subscription {subscription} not found")
TOO_MANY_LOOKUPS: Final = WireRefusal(errors.TooManyRequestsError, "Failed due to too many pending lookup requests")
NAMESPACE_OF_OTHER_CLUSTERS: Final = WireRefusal(
    errors.ForeignNamespaceError,
    "Namespace missing local cluster name in clusters list: local_cluster={own} ns={namespace} clusters=[{clusters}]",
)
PEER_WITHOUT_ADDRESS: Final = WireRefusal(
    errors.MetadataError, "Redirected cluster's brokerService url is not configured"
)
NAMESPACE_OF_TOPIC_MISSING: Final = WireRefusal(errors.TopicNotFoundError, "Namespace not found")
TOPIC_UNKNOWN: Final = WireRefusal(errors.TopicNotFoundError, "Topic not found {topic}")
TOPIC_NAME_INVALID: Final = WireRefusal(errors.InvalidTopicNameError, "Invalid topic name: {problem}")
TENANT_OF_TOPIC_MISSING: Final = WireRefusal(
    errors.TopicNotFoundError,
    "Tenant or namespace or topic does not exist: {namespace}",
)
SCHEMA_UNKNOWN: Final = WireRefusal(errors.TopicNotFoundError, "Topic not found or no-schema {topic}")
TOPIC_MISSING: Final = WireRefusal(errors.TopicNotFoundError, "Topic {topic} does not exist")
TOPIC_NOT_PARTITIONED: Final = WireRefusal(errors.TopicNotFoundError, "Topic {topic} is not partitioned")
TOPIC_TERMINATED: Final = WireRefusal(errors.TopicTerminatedError, "Topic was already terminated")
TOPIC_OF_PRODUCER_TERMINATED: Final = WireRefusal(
    errors.TopicTerminatedError,
    _SERVICE + "TopicTerminatedException: Topic was already terminated",
)
LAST_MESSAGE_ID_UNSUPPORTED: Final = WireRefusal(
    errors.UnsupportedOnTopicError,
    "Failed to recover Transaction Buffer.",
)
"""For a non-persistent topic."""
UNREADABLE_SCHEMA: Final = (
    "Error during schema compatibility check with strategy {strategy}: "
    "org.apache.avro.SchemaValidationException: Unable to read schema: \n{writer}\nusing schema:\n{reader}"
)
"""The text of Avro's validation: `writer` cannot be read with `reader` under this strategy."""
_INCOMPATIBLE: Final = "org.apache.pulsar.broker.service.schema.exceptions.IncompatibleSchemaException: "
"""Beginning of the refusal of a producer: applications recognize the refusal by this name."""
SCHEMA_NOT_UPDATED: Final = WireRefusal(
    errors.IncompatibleSchemaError, "Schema not found and schema auto updating is disabled."
)
SCHEMA_REQUIRED: Final = WireRefusal(
    errors.IncompatibleSchemaError,
    "Producers cannot connect or send message without a schema to topics with a schemawhen SchemaValidationEnforced is "
    "enabled",
)
SCHEMA_INCOMPATIBLE: Final = WireRefusal(
    errors.IncompatibleSchemaError, f"{_INCOMPATIBLE}{{problem}} caused by {_INCOMPATIBLE}{{problem}}"
)
SCHEMA_DEFINITION_INVALID: Final = "Invalid schema definition data for {kind} schema: {problem}"
INVALID_ROLES: Final = "Invalid roles."

_DENIED: Final = "Client is not authorized"
DENIED_COMMANDS: Final[dict[int, str]] = {
    pb.BaseCommand.LOOKUP: _DENIED + " to Lookup",
    pb.BaseCommand.PARTITIONED_METADATA: _DENIED + " to Get Partition Metadata",
    pb.BaseCommand.PRODUCER: _DENIED + " to Produce",
    pb.BaseCommand.SUBSCRIBE: _DENIED + " to subscribe",
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE: _DENIED + " to GetTopicsOfNamespace",
    pb.BaseCommand.WATCH_TOPIC_LIST: "Proxy Client is not authorized to watchTopicList",
}
"""Refusals for roles without the right to a command."""


def denied(command_type: int) -> errors.AuthorizationError:
    return errors.AuthorizationError(DENIED_COMMANDS.get(command_type, _DENIED))


TOO_MANY_CONNECTIONS: Final = "Reached the maximum number of connections"
TOO_MANY_CONNECTIONS_OF_ADDRESS: Final = "Reached the maximum number of connections on address"
"""Texts of the errors that a connection gets before its handshake."""
