"""A broker for tests of the admin application: real policies, topics in memory; and a client that calls it."""

import asyncio
import json
from types import SimpleNamespace
from urllib.parse import urlsplit

from magnetar.broker.admin.api import BrokerUrls, MessagePosition
from magnetar.broker.admin.app import build_app
from magnetar.broker.auth.authenticator import Authenticator
from magnetar.broker.auth.authorizer import Authorizer
from magnetar.broker.compaction.compaction_stats import CompactionStatus
from magnetar.broker.consumers.consumer_stats import SubscriptionStats
from magnetar.broker.descriptors import DescriptorShares
from magnetar.broker.dynamic_settings import DynamicSettings
from magnetar.broker.errors import (
    ConsumerBusyError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
    TopicTerminatedError,
)
from magnetar.broker.handlers.client import LookupCounters
from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.ownership.cluster_nodes import LoadReport
from magnetar.broker.ownership.ownership import BrokerAddresses, OwnershipDoor
from magnetar.broker.policies.namespace_store import NamespaceStore
from magnetar.broker.prometheus.exposition import BrokerMetrics
from magnetar.broker.schemas.compatibility import Strategy
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.settings import Settings
from magnetar.broker.topics.lifecycle import ConflictError
from magnetar.broker.topics.news import News
from magnetar.broker.topics.topic_stats import TopicStats
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.position import Position
from tests.twins.memory_metadata import MemoryMetadataStore


class FakeTopics:
    """TopicsApi, TopicLogsApi, SubscriptionsApi and the life cycle in memory; `busy` names topics and (topic, subscription) pairs with clients."""

    def __init__(self, namespaces):
        self._namespaces = namespaces
        self.plain = {}
        self.partitioned = {}
        self.busy = set()
        self.ending = set()
        self.calls = []
        self.messages = {}
        self.offloads_asked = set()

    def names(self, namespace, domain):
        return [n for n in self.plain if n.startswith(f"{domain}://{namespace}/")]

    def partitioned_names(self, namespace, domain):
        return [n for n in self.partitioned if n.startswith(f"{domain}://{namespace}/")]

    async def settled(self, namespace):
        """No load of a topic is under way."""

    async def read_again(self, namespace):
        return any(f"://{namespace}/" in name for name in (*self.plain, *self.partitioned))

    def partition_count(self, name):
        return self.partitioned.get(str(name))

    def is_ending(self, name):
        return str(name) in self.ending

    def exists(self, name):
        return str(name) in self.plain

    def has_room(self, name, more):
        return True

    def may_be_created(self, name):
        return self._namespaces.effective(name).allow_auto_topic_creation

    async def partitions_for_clients(self, name, *, auto_create):
        if str(name) not in self.plain and not (
            auto_create and self._namespaces.effective(name).allow_auto_topic_creation
        ):
            raise TopicNotFoundError(f"{name} not found")
        return 0

    async def create(self, name, properties):
        if str(name) in self.plain:
            raise ConflictError("exists")
        self.plain[str(name)] = {"properties": properties, "subscriptions": {}}

    async def create_partitioned(self, name, partitions, properties):
        self.partitioned[str(name)] = partitions
        for i in range(partitions):
            await self.create(name.partition_name(i), {})

    async def grow(self, name, partitions):
        for i in range(self.partitioned[str(name)], partitions):
            await self.create(name.partition_name(i), {})
        self.partitioned[str(name)] = partitions

    def clients(self, name):
        return (1, 0) if str(name) in self.busy else (0, 0)

    async def delete(self, name, condition=None):
        del self.plain[str(name)]

    async def complete_deletion(self, name):
        """No deletion was cut off."""

    async def delete_partitioned(self, name, *, force=True):
        for i in range(self.partitioned.pop(str(name))):
            self.plain.pop(str(name.partition_name(i)), None)

    async def unload(self, name):
        self.calls.append(("unload", str(name)))

    async def terminate(self, name):
        self.calls.append(("terminate", str(name)))
        return MessagePosition(7, 2)

    async def truncate(self, name):
        self.calls.append(("truncate", str(name)))

    async def compact(self, name):
        self.calls.append(("compact", str(name)))

    async def compaction_status(self, name):
        return CompactionStatus()

    async def properties(self, name):
        if str(name) in self.partitioned:
            return None
        return self.plain[str(name)]["properties"]

    async def change_properties(self, name, change):
        self.plain[str(name)]["properties"] = change(self.plain[str(name)]["properties"])

    async def stats(self, name, *, earliest_in_backlog):
        return self._stats(str(name))

    def client_count(self, _name):
        return 0

    def _stats(self, name):
        subscriptions = {s: SubscriptionStats(msg_backlog=3) for s in self.plain[name]["subscriptions"]}
        return TopicStats(name=TopicName.parse(name), msg_in_counter=5, subscriptions=subscriptions)

    def loaded_names(self, namespace=None):
        names = [TopicName.parse(name) for name in self.plain]
        return [name for name in names if namespace in (None, name.namespace)]

    async def loaded_stats(self):
        return [self._stats(name) for name in self.plain]

    async def internal_stats(self, name):
        return {"ledgers": [], "cursors": {}, "state": "LedgerOpened"}

    async def last_message(self, name):
        return MessagePosition(7, -1)

    async def message_at_time(self, name, timestamp_ms):
        return MessagePosition(7, timestamp_ms)

    async def has_ledger(self, name, ledger_id):
        return any(ledger == ledger_id for ledger, _ in self.messages)

    async def read_message(self, name, ledger_id, entry_id):
        return self.messages.get((ledger_id, entry_id))

    async def examine_message(self, name, start, number):
        return self.messages.get((start, number))

    def _subscriptions(self, name):
        return self.plain[str(name)]["subscriptions"]

    def _subscription(self, name, subscription):
        found = self._subscriptions(name).get(subscription)
        if found is None:
            raise SubscriptionNotFoundError(f"Subscription {subscription} not found")
        return found

    async def subscriptions(self, name):
        return list(self._subscriptions(name))

    async def create_subscription(self, name, subscription, start, properties, *, replicated):
        if subscription in self._subscriptions(name):
            raise ConflictError("Subscription already exists")
        self._subscriptions(name)[subscription] = {"start": start, "properties": properties}

    async def delete_subscription(self, name, subscription, *, force):
        self._subscription(name, subscription)
        if (str(name), subscription) in self.busy and not force:
            raise ConsumerBusyError("Subscription has active connected consumers")
        del self._subscriptions(name)[subscription]

    async def reset_to_time(self, name, subscription, timestamp_ms):
        self._subscription(name, subscription)["start"] = timestamp_ms

    async def reset_to_message(self, name, subscription, message, *, excluded):
        self._subscription(name, subscription)["start"] = message, excluded

    async def skip(self, name, subscription, messages):
        self._subscription(name, subscription)["skipped"] = messages
        self.calls.append(("skip", str(name), subscription, messages))

    async def expire(self, name, subscription, older_than_s):
        self._subscription(name, subscription)["expired"] = older_than_s
        return older_than_s != 99

    async def as_delivered(self, name, message):
        return message

    async def peek(self, name, subscription, number):
        self._subscription(name, subscription)
        return self.messages.get(number)

    async def log_range(self, name, *, ledgers):
        found = {"firstIndex": 0, "endIndex": 3, "entries": 3, "bytes": 30, "lastConfirmedEntry": "7:2"}
        return found | ({"ledgers": [[7, 3, False]]} if ledgers else {})

    async def delayed_messages(self, name):
        self._subscriptions(name)
        return {"count": 2, "earliest": 5, "latest": 7}

    async def cancel_delayed(self, name, position):
        self.calls.append(("cancel", str(name), position))
        return position == (3, 4)

    async def analyze_backlog(self, name, subscription, start):
        return {"entries": 0}

    async def subscription_properties(self, name, subscription):
        return self._subscription(name, subscription)["properties"]

    async def set_subscription_properties(self, name, subscription, properties):
        self._subscription(name, subscription)["properties"] = properties


class FakePublishing:
    """PublishApi over the real schemas: keeps entries, and refuses entries for topics in `refused`."""

    def __init__(self, schemas):
        self._schemas = schemas
        self.entries = []
        self.refused = set()

    def now_ms(self):
        return 1_700_000_000_000

    async def schema(self, name, schema):
        properties = {each.key: each.value for each in schema.properties}
        return await self._schemas.put(name, schema.type, schema.schema_data, properties, Strategy.FULL)

    async def publish(self, entries):
        outcomes = []
        for name, entry in entries:
            if str(name) in self.refused:
                outcomes.append(TopicTerminatedError("the end"))
            else:
                self.entries.append((str(name), entry))
                outcomes.append(Position(7, len(self.entries) - 1))
        return outcomes


class FakeBroker:
    """BrokerApi over the real store of namespaces, schemas, authenticator and authorizer."""

    def __init__(self, settings, metadata, namespaces):
        self.settings = settings
        self.namespaces = namespaces
        self.news = News(namespaces, None, None, None)
        self.dynamic_settings = DynamicSettings(metadata, settings)
        self.schemas = SchemaRegistry(metadata, lambda: 1_700_000_000_000)
        self.authenticator = Authenticator(settings)
        self.authorizer = Authorizer(settings, namespaces)
        self.ownership = OwnershipDoor()
        self.lookups = LookupCounters()
        self.peers = None
        self.bookies = None
        self.descriptors = DescriptorShares.of_limit(10_000, settings.max_http_server_connections, 0)
        self.memory = MemoryAccount(MemoryLimits.of_total(settings.max_client_memory_in_mb << 20, 5 << 20))
        self.lifecycle = topics = FakeTopics(namespaces)
        self.operations = SimpleNamespace(
            directory=topics, logs=topics, subscriptions=topics, publishing=FakePublishing(self.schemas)
        )
        self.web_sockets = None
        self.urls = BrokerUrls("localhost:8080", "pulsar://localhost:6650", "", "http://localhost:8080", "")
        self.load_reports = self
        self.ready = True
        self.health_error = None

    async def current(self):
        """The load report."""
        addresses = BrokerAddresses(self.urls.service_url, None, self.urls.web_url, None)
        return LoadReport.of(addresses, num_topics=len(self.operations.directory.loaded_names()))

    def listener_urls(self, listener):
        return self.urls if listener in ("", "known") else None

    def is_ready(self):
        return self.ready

    async def check_health(self):
        if self.health_error is not None:
            raise self.health_error

    def metrics(self):
        return BrokerMetrics(active_connections=2)


class Answer:
    """Status, headers (lower case) and body of a response; `reason` of an error."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.raw = body

    @property
    def json(self):
        return json.loads(self.raw)

    @property
    def reason(self):
        return self.json["reason"]


class Client:
    """Calls the application as uvicorn would."""

    def __init__(self, broker):
        self.broker = broker
        self.topics = broker.operations.directory
        self._app = build_app(broker)

    async def __call__(self, method, path, body=None, *, raw=None, headers=None, content_type="application/json"):
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        url = urlsplit(
            path
            if path == "/" or path.startswith(("/lookup", "/metrics", "/status", "/admin", "/topics", "/ws", "/ui"))
            else "/admin/v2/" + path
        )
        fields = {"content-length": str(len(data)), **(headers or {})}
        if data and content_type:
            fields["content-type"] = content_type
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": url.path,
            "raw_path": url.path.encode(),
            "query_string": url.query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in fields.items()],
            "client": ("127.0.0.1", 5),
            "server": ("127.0.0.1", 8080),
        }
        sent, asked = [], []

        async def receive():
            asked.append(1)
            if len(asked) > 1:
                await asyncio.Event().wait()  # the client stays connected until it has its answer
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message):
            sent.append(message)

        await self._app(scope, receive, send)
        start = sent[0]
        answer = b"".join(m.get("body", b"") for m in sent[1:])
        return Answer(start["status"], {k.decode().lower(): v.decode() for k, v in start["headers"]}, answer)


async def open_client(settings=None):
    """A client of a new broker."""
    settings = settings or Settings()
    metadata = MemoryMetadataStore()
    namespaces = await NamespaceStore.open(metadata, settings)
    return Client(FakeBroker(settings, metadata, namespaces))
