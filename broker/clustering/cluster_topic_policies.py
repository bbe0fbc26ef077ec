"""Policies of topics in a cluster, kept as Apache Pulsar 4.2 keeps them: events in a topic of each namespace.

The broker reads a namespace's events when it first needs them (before it loads a topic of the namespace, and for a
request about the policies of a topic), and follows them from then on. A namespace without the topic ``__change_events``
has no policies of topics; the first change of a policy creates the topic.

Brokers do not coordinate changes: as among brokers of Apache Pulsar, the last event of a topic replaces all its
policies. A change is based on all events that were stored when the change began.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from magnetar.broker.clustering.policy_events import EVENT_PROPERTIES, NOTHING, encode_event, event_key, event_schema
from magnetar.broker.clustering.policy_log import PolicyLog, events_topic
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.policies.effective import NO_TOPIC_POLICIES
from magnetar.broker.schemas.avro_values import AvroValueError
from magnetar.client.errors import ClientError
from magnetar.client.sending import Outgoing, TopicSender
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from magnetar.broker.clustering.peer_client import PeerClient
    from magnetar.broker.clustering.policy_events import EventPolicies, Scopes
    from magnetar.broker.clustering.policy_log import EventTopics
    from magnetar.broker.policies.records import TopicPolicies
    from magnetar.broker.tasks import TaskSet

__all__ = ["ClusterTopicPolicies", "write_events"]


class ClusterTopicPolicies:
    """See ``TopicRecords``. Calls ``on_change(topic)`` when this or another broker has changed policies of a topic."""

    def __init__(
        self,
        cluster: str,
        peers: PeerClient,
        topics: EventTopics,
        on_change: Callable[[TopicName], None],
        tasks: TaskSet,
    ) -> None:
        self._cluster = cluster
        self._peers, self._topics, self._on_change, self._tasks = peers, topics, on_change, tasks
        self._logs: dict[str, PolicyLog] = {}
        self._wanted: set[str] = set()
        """Namespaces whose policies this broker has needed since its start."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> TopicPolicies | None:
        found = self._scopes(name)
        return None if found is None else found.together

    def _scopes(self, name: str) -> Scopes | None:
        log = self._logs.get(_namespace_of(name))
        return None if log is None else log.get(name)

    def ready(self, namespace: str) -> Awaitable[None] | None:
        self._wanted.add(namespace)
        log = self._log(namespace)
        return None if log is None or log.is_complete else log.wait_complete()

    async def update(
        self, name: str, change: Callable[[TopicPolicies], TopicPolicies], default: TopicPolicies | None = None
    ) -> TopicPolicies:
        topic = TopicName.parse(name)
        async with self._locks.setdefault(name, asyncio.Lock()):
            await self._catch_up(topic.namespace)
            before = self._scopes(name) or NOTHING
            new = change(before.together if before is not NOTHING else default or NO_TOPIC_POLICIES)
            await self._write(topic, before.changed_to(new))
        return self.get(name) or NO_TOPIC_POLICIES

    async def delete(self, name: str) -> None:
        topic = TopicName.parse(name)
        async with self._locks.setdefault(name, asyncio.Lock()):
            await self._catch_up(topic.namespace)
            await self._write(topic, (self._scopes(name) or NOTHING).removed())

    async def _write(self, topic: TopicName, changed: list[tuple[bool, EventPolicies]]) -> None:
        """Store the change; on return it is durable and this broker has read it. Raises ServiceNotReadyError."""
        if changed:
            events = events_topic(topic.namespace)
            await write_events(self._peers, events, topic, changed, self._cluster)
            self._topics.events_created(events)
            await self._catch_up(topic.namespace)

    async def _catch_up(self, namespace: str) -> None:
        """Read all events that are stored now. Raises ServiceNotReadyError."""
        self._wanted.add(namespace)
        log = self._log(namespace)
        if log is not None:
            await log.catch_up()

    async def forget(self, namespace: str) -> None:
        """Stop reading the events of a namespace that is being deleted, with its topic of events."""
        self._wanted.discard(namespace)
        log = self._logs.pop(namespace, None)
        if log is not None:
            await log.close()

    def appeared(self, namespace: str) -> None:
        """Begin to read the events of the namespace if they are needed: a broker has created the topic of events."""
        if namespace in self._wanted:
            self._log(namespace)

    async def close(self) -> None:
        """Close at once, whether other brokers answer or not."""
        for log in self._logs.values():
            log.stop()
        self._logs.clear()
        await self._peers.close()

    def _log(self, namespace: str) -> PolicyLog | None:
        """Return the log of the namespace; begin it if the topic of events exists, return None if it does not."""
        log = self._logs.get(namespace)
        if log is not None and log.has_ended:
            del self._logs[namespace]
            log = None
        if log is None and self._topics.events_exist(namespace):
            log = self._logs[namespace] = self._new_log(namespace)
        return log

    def _new_log(self, namespace: str) -> PolicyLog:
        return PolicyLog(namespace, self._peers, self._topics, self._on_change, self._tasks)


def _namespace_of(name: str) -> str:
    return name.partition("://")[2].rpartition("/")[0]


async def write_events(
    peers: PeerClient, events: TopicName, topic: TopicName, changed: Sequence[tuple[bool, EventPolicies]], cluster: str
) -> None:
    """Store the changes of the policies of `topic` in the topic `events`, which is created when it does not exist.

    Durable on return. Raises ServiceNotReadyError; some of the events may be stored then.
    """
    if not changed:
        return
    schema = pb.Schema(name="PulsarEvent", schema_data=event_schema(), type=pb.Schema.Avro)
    for key, value in EVENT_PROPERTIES.items():
        schema.properties.add(key=key, value=value)
    try:
        async with TopicSender(peers.service, peers.credentials, str(events), schema=schema) as sender:
            for everywhere, policies in changed:
                payload = b"" if policies.is_empty else encode_event(topic, policies, cluster)
                key = event_key(topic, all_clusters=everywhere)
                await (await sender.send(Outgoing(payload, key, null_value=policies.is_empty)))
    except (ClientError, AvroValueError) as error:
        raise ServiceNotReadyError(f"Policies of {topic} cannot be stored: {error}") from error
