"""The interface between the HTTP side and the broker. The broker implements `BrokerApi`; admin/ uses nothing else.

Callers call on the broker's loop, with parsed topic names whose namespace exists. The errors are in broker/errors.py;
`responses.STATUS_OF` maps each error to an HTTP status:

    TopicNotFoundError, SubscriptionNotFoundError   404     ConsumerBusyError, ProducerBusyError (still in use)   412
    NotAllowedError                                 405     MetadataError, InvalidTopicNameError                  412
    ConflictError (topics/lifecycle.py)             409     ServiceNotReadyError                                  503
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.broker.admin.peer_calls import PeerCalls
    from magnetar.broker.advertised import AdvertisedUrls
    from magnetar.broker.auth.authenticator import Authenticator
    from magnetar.broker.auth.authorizer import Authorizer
    from magnetar.broker.compaction.compaction_stats import CompactionStatus
    from magnetar.broker.descriptors import DescriptorShares
    from magnetar.broker.dynamic_settings import DynamicSettings
    from magnetar.broker.errors import BrokerError
    from magnetar.broker.handlers.client import LookupCounters
    from magnetar.broker.load_reports import LoadReports
    from magnetar.broker.memory_account import MemoryAccount
    from magnetar.broker.ownership.ownership import Ownership
    from magnetar.broker.policies.namespace_store import NamespaceStore
    from magnetar.broker.policies.values import BookieAffinity
    from magnetar.broker.prometheus.exposition import BrokerMetrics
    from magnetar.broker.schemas.registry import SchemaRegistry
    from magnetar.broker.schemas.schema_store import StoredSchema
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.lifecycle import TopicLifecycle
    from magnetar.broker.topics.news import News
    from magnetar.broker.topics.topic_stats import TopicStats
    from magnetar.broker.websocket.web_socket_service import WebSocketService
    from magnetar.protocol import pulsar_api_pb2 as pb
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.position import Position

Domain = Literal["persistent", "non-persistent"]
Start = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class MessagePosition:
    """The id of a message in REST. `batch_index` -1: the whole entry; `batch_size` 0: unknown."""

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1
    batch_size: int = 0


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """An entry for peeking: its position and the stored bytes.

    entry: as stored: broker entry metadata (if any), checksum, MessageMetadata, payload. conversion: the result of a
    converter (see `as_delivered`).
    """

    position: "Position"
    entry: bytes
    conversion: str = ""


@dataclass(frozen=True, slots=True)
class BrokerUrls:
    """Advertised addresses; "" without such a listener. `broker_id` is "host:web port"."""

    broker_id: str
    service_url: str
    service_url_tls: str
    web_url: str
    web_url_tls: str

    @classmethod
    def of(cls, broker_id: str, urls: "AdvertisedUrls") -> "BrokerUrls":
        """The addresses of one listener, or of the broker itself."""
        found = (urls.service_url, urls.service_url_tls, urls.http_url, urls.http_url_tls)
        return cls(broker_id, *(each or "" for each in found))


class TopicsApi(Protocol):
    """The existing topics."""

    offloads_asked: "set[TopicName]"
    """Existing topics with an offload request since the start of the broker, which has no storage to offload to."""

    def names(self, namespace: str, domain: Domain) -> list[str]:
        """Full names of the namespace's topics; non-persistent topics only while they are loaded."""
        ...

    def partitioned_names(self, namespace: str, domain: Domain) -> list[str]:
        """Full base names of the namespace's partitioned topics."""
        ...

    async def settled(self, namespace: str) -> None:
        """Return when the loads and closes of the namespace's topics that are under way now have ended."""
        ...

    async def read_again(self, namespace: str) -> bool:
        """Read the stored names of the namespace's topics again: this broker then knows topics that other brokers have
        just created. Return whether there are any. Raises StorageError.
        """
        ...

    def partition_count(self, name: "TopicName") -> int | None:
        """The number of partitions of a partitioned topic; None for any other name."""
        ...

    def is_ending(self, name: "TopicName") -> bool:
        """Whether a broker is deleting the partitioned topic, or has failed to."""
        ...

    def exists(self, name: "TopicName") -> bool:
        """Whether the name is a plain topic or a partition that has been created."""
        ...

    def has_room(self, name: "TopicName", more: int) -> bool:
        """Whether maxTopicsPerNamespace allows `more` topics."""
        ...

    def may_be_created(self, name: "TopicName") -> bool:
        """Whether a client that uses the missing topic creates it."""
        ...

    async def partitions_for_clients(self, name: "TopicName", *, auto_create: bool) -> int:
        """The number that PARTITIONED_METADATA answers: 0 for a plain topic. Raises TopicNotFoundError for a missing
        topic.
        """
        ...

    def loaded_names(self, namespace: str | None = None) -> "list[TopicName]":
        """The loaded topics of the namespace; without a namespace, all loaded topics."""
        ...


class TopicLogsApi(Protocol):
    """One topic and its content; a call names a plain topic or one partition, and loads the topic."""

    async def terminate(self, name: "TopicName") -> MessagePosition:
        """Terminate the topic: it takes no more messages. Returns the last message, also when called again."""
        ...

    async def truncate(self, name: "TopicName") -> None:
        """Move every subscription to the end of the log, and delete the ledgers that are no longer needed."""
        ...

    async def trim(self, name: "TopicName") -> None:
        """Delete the ledgers that neither a subscription nor the retention needs."""
        ...

    async def compact(self, name: "TopicName") -> None:
        """Start a compaction; raises ConflictError while a compaction runs."""
        ...

    async def compaction_status(self, name: "TopicName") -> "CompactionStatus": ...

    async def properties(self, name: "TopicName") -> dict[str, str] | None:
        """The properties that users have set, for a plain topic also the broker's own; None for a partitioned topic
        without properties.
        """
        ...

    async def change_properties(self, name: "TopicName", change: "Callable[[dict[str, str]], dict[str, str]]") -> None:
        """Replace the properties that users have set by ``change(properties)``, called again when another request
        changes them meanwhile.
        """
        ...

    async def stats(self, name: "TopicName", *, earliest_in_backlog: bool) -> "TopicStats":
        """`earliest_in_backlog` also reads the publish time of each subscription's first unacknowledged message."""
        ...

    def client_count(self, name: "TopicName") -> int:
        """How many producers, subscriptions and consumers `stats` show; 0 for a topic that is not loaded."""
        ...

    async def loaded_stats(self) -> "list[TopicStats]":
        """The statistics of every loaded topic, for /metrics and broker-stats; the call reads no entry and gives other
        work its turns.
        """
        ...

    async def internal_stats(self, name: "TopicName") -> dict[str, object]:
        """JSON of PersistentTopicInternalStats."""
        ...

    async def internal_info(self, name: "TopicName") -> dict[str, object]:
        """JSON of ManagedLedgerInfo."""
        ...

    async def last_message(self, name: "TopicName") -> MessagePosition:
        """The last message; its entry id is -1 when the topic is empty."""
        ...

    async def message_at_time(self, name: "TopicName", timestamp_ms: int) -> MessagePosition:
        """The first message published at that time or later; when there is none, the position of the next message."""
        ...

    async def message_by_index(self, name: "TopicName", index: int) -> MessagePosition | None:
        """The entry of the message with that broker index; None when no message has the index."""
        ...

    async def log_range(self, name: "TopicName", *, ledgers: bool) -> dict[str, Any]:
        """Begin and end of the log: JSON of `log_ranges.log_ranges`."""
        ...

    async def bytes_after(self, name: "TopicName", message: MessagePosition) -> int:
        """Bytes stored behind the message."""
        ...

    async def read_message(self, name: "TopicName", ledger_id: int, entry_id: int) -> StoredMessage | None:
        """The entry; None when the log has no such entry."""
        ...

    async def has_ledger(self, name: "TopicName", ledger_id: int) -> bool: ...

    async def examine_message(self, name: "TopicName", start: Start, number: int) -> StoredMessage | None:
        """The `number`th entry, counted from 1 at the earliest or at the latest entry; None for an empty topic.

        A number beyond the other end returns the last entry when counted from the earliest entry, and raises
        BrokerError when counted from the latest entry.
        """
        ...

    async def as_delivered(self, name: "TopicName", message: StoredMessage) -> StoredMessage:
        """The message as consumers get it: converted, with the name of the converter in `conversion`.

        The message as stored when no converter takes it (`conversion` is "") or when its conversion fails (`conversion`
        is "failed: " and the reason).
        """
        ...

    async def delayed_messages(self, name: "TopicName") -> dict[str, int]:
        """`count` of the messages that wait for their delivery time; `earliest` and `latest` time (ms), absent without
        messages.
        """
        ...

    async def cancel_delayed(self, name: "TopicName", position: "Position") -> bool:
        """Cancel the delivery of this delayed message; durable on return. False when the message does not wait."""
        ...


class SubscriptionsApi(Protocol):
    """The subscriptions of a plain topic or a partition. Each call loads the topic."""

    async def subscriptions(self, name: "TopicName") -> list[str]:
        """Names of the durable subscriptions (with that of compaction, once the topic was compacted) and of connected
        subscriptions.
        """
        ...

    async def create_subscription(
        self,
        name: "TopicName",
        subscription: str,
        start: Start | MessagePosition,
        properties: dict[str, str],
        *,
        replicated: bool,
    ) -> None:
        """Create a durable subscription whose first message is `start`; raises ConflictError when it exists."""
        ...

    async def delete_subscription(self, name: "TopicName", subscription: str, *, force: bool) -> None:
        """Delete the subscription and close its consumers. Without force, raises ConsumerBusyError when consumers are
        connected to a subscription of a persistent topic.
        """
        ...

    async def replicated(self, name: "TopicName", subscription: str) -> bool: ...

    async def set_replicated(self, name: "TopicName", subscription: str, *, on: bool) -> None:
        """Store the mark, which is shown and has no further effect: there is no other cluster."""
        ...

    async def reset_to_time(self, name: "TopicName", subscription: str, timestamp_ms: int) -> None: ...

    async def reset_to_message(
        self, name: "TopicName", subscription: str, message: MessagePosition, *, excluded: bool
    ) -> None:
        """Move the subscription to the message (or the next existing message), with `excluded` behind it; a batch
        index selects the message within its batch. The broker closes the consumers, whose clients subscribe again.
        """
        ...

    async def skip(self, name: "TopicName", subscription: str, messages: int | None) -> None:
        """Acknowledge the next `messages` entries of the backlog; None: all entries."""
        ...

    async def expire(self, name: "TopicName", subscription: str, older_than_s: int | MessagePosition) -> bool:
        """Skip messages older than a number of seconds, or all messages up to and including a message.

        Returns False when the message is beyond the end of the topic, or when no message expired by age and the
        backlog is empty or, with a connected consumer, smaller than 1000 entries.
        """
        ...

    async def peek(self, name: "TopicName", subscription: str, number: int) -> StoredMessage | None:
        """Entry `number` of the backlog, counted from 1; None beyond the backlog. The call creates an unknown
        subscription at the beginning of the topic.
        """
        ...

    async def analyze_backlog(
        self, name: "TopicName", subscription: str, start: MessagePosition | None
    ) -> dict[str, object]:
        """JSON of AnalyzeSubscriptionBacklogResult: for the backlog, or for all entries from `start` on."""
        ...

    async def subscription_properties(self, name: "TopicName", subscription: str) -> dict[str, str]: ...

    async def set_subscription_properties(
        self, name: "TopicName", subscription: str, properties: dict[str, str]
    ) -> None: ...


class PublishApi(Protocol):
    """Publishes messages that come over REST."""

    def now_ms(self) -> int: ...

    async def schema(self, name: "TopicName", schema: "pb.Schema") -> "StoredSchema":
        """The stored schema for a producer with this schema; adds a new schema. Raises BrokerError."""
        ...

    async def publish(self, entries: "Sequence[tuple[TopicName, bytes]]") -> "list[Position | BrokerError]":
        """Append entries (headers, payload) in their order; returns the position of each entry on the disk, or its
        error.
        """
        ...


class TopicOperationsApi(Protocol):
    """The interfaces to topics: directory, content, subscriptions and publishing."""

    @property
    def directory(self) -> TopicsApi: ...
    @property
    def logs(self) -> TopicLogsApi: ...
    @property
    def subscriptions(self) -> SubscriptionsApi: ...
    @property
    def publishing(self) -> PublishApi: ...


class BookiesApi(Protocol):
    """The bookies of a cluster. All methods raise StorageError, and MetadataError for unreadable metadata nodes."""

    async def known(self) -> list[str]:
        """Ids of all bookies that have ever registered."""
        ...

    async def racks(self) -> dict[str, dict[str, dict[str, str]]]:
        """The racks: group -> bookie -> rack and hostname."""
        ...

    async def change_racks(
        self, change: "Callable[[dict[str, dict[str, dict[str, str]]]], dict[str, dict[str, dict[str, str]]]]"
    ) -> None: ...

    async def affinity(self, namespace: str) -> "tuple[bool, BookieAffinity | None]":
        """Whether the namespace has local policies, and its groups of bookies."""
        ...

    async def set_affinity(self, namespace: str, groups: "BookieAffinity | None") -> None: ...


class BrokerApi(Protocol):
    """The broker as the admin application sees it."""

    @property
    def settings(self) -> "Settings": ...
    @property
    def namespaces(self) -> "NamespaceStore": ...
    @property
    def news(self) -> "News": ...
    @property
    def dynamic_settings(self) -> "DynamicSettings": ...
    @property
    def schemas(self) -> "SchemaRegistry": ...
    @property
    def memory(self) -> "MemoryAccount":
        """The memory account of data held for peers, requests included."""
        ...

    @property
    def descriptors(self) -> "DescriptorShares":
        """How many connections the web port may have."""
        ...

    @property
    def ownership(self) -> "Ownership":
        """The topics and bundles that this broker serves."""
        ...

    @property
    def lookups(self) -> "LookupCounters":
        """The requests about topics in progress, of clients and over HTTP together."""
        ...

    @property
    def peers(self) -> "PeerCalls | None":
        """Calls to the brokers of the cluster; None for a broker without a cluster."""
        ...

    @property
    def bookies(self) -> BookiesApi | None:
        """The bookies of the cluster; None for a broker without a cluster."""
        ...

    @property
    def authenticator(self) -> "Authenticator": ...
    @property
    def authorizer(self) -> "Authorizer": ...
    @property
    def operations(self) -> TopicOperationsApi: ...
    @property
    def lifecycle(self) -> "TopicLifecycle":
        """Creates and deletes topics with all their data."""
        ...

    @property
    def web_sockets(self) -> "WebSocketService | None":
        """The service of WebSocket sessions; None when it is off."""
        ...

    @property
    def urls(self) -> BrokerUrls:
        """The addresses for clients; complete once all listeners are bound."""
        ...

    def listener_urls(self, listener: str) -> BrokerUrls | None:
        """The addresses of the advertised listener of that name; None for an unknown name."""
        ...

    @property
    def load_reports(self) -> "LoadReports | None":
        """The load report for other brokers; exists before the web port opens."""
        ...

    def is_ready(self) -> bool:
        """Whether the broker serves requests: recovery is over, storage works, no shutdown has begun."""
        ...

    async def check_health(self) -> None:
        """Raise an error when the broker cannot store a message and read it back. The route brokers/health calls it."""
        ...

    def metrics(self) -> "BrokerMetrics":
        """Figures of the whole broker for /metrics."""
        ...
