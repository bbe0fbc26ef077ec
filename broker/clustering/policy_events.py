"""Policies of a topic as Apache Pulsar 4.2 keeps them in ``__change_events``: one event with all of them. Pure.

    key      the full topic name; of the policies for all clusters with ``__G__`` before it
    value    PulsarEvent (``pulsar_event.avsc``) in Avro; none: the topic has no policies any more

A change keeps a member that this broker does not use (``shadowTopics``).
"""

from __future__ import annotations

import functools
import json
import pathlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import structlog

from magnetar.broker.policies.effective import NO_TOPIC_POLICIES
from magnetar.broker.policies.records import TopicPolicies
from magnetar.broker.policies.values import BacklogQuota, DelayedDeliveryPolicies, DispatchRate
from magnetar.broker.schemas.avro_values import AvroValues
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "EVENT_PROPERTIES",
    "NOTHING",
    "EventPolicies",
    "ReadEvent",
    "Scopes",
    "encode_event",
    "event_key",
    "event_schema",
    "read_event",
]

log = structlog.get_logger(__name__)

EVENT_PROPERTIES: Final = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}
"""The properties of the schema, as Apache Pulsar registers it."""
_OF_ALL_CLUSTERS: Final = "__G__"
_SAME_SHAPE: Final = {
    "retention": "retentionPolicies",
    "message_ttl_in_seconds": "messageTTLInSeconds",
    "persistence": "persistence",
    "inactive_topic": "inactiveTopicPolicies",
    "deduplication_enabled": "deduplicationEnabled",
    "deduplication_snapshot_interval_seconds": "deduplicationSnapshotIntervalSeconds",
    "compaction_threshold": "compactionThreshold",
    "max_producers": "maxProducerPerTopic",
    "max_consumers": "maxConsumerPerTopic",
    "max_consumers_per_subscription": "maxConsumersPerSubscription",
    "max_subscriptions": "maxSubscriptionsPerTopic",
    "max_unacked_messages_per_consumer": "maxUnackedMessagesOnConsumer",
    "max_unacked_messages_per_subscription": "maxUnackedMessagesOnSubscription",
    "max_message_size": "maxMessageSize",
    "subscription_expiration_time_minutes": "subscriptionExpirationTimeInMinutes",
    "dispatch_rate": "dispatchRate",
    "subscription_dispatch_rate": "subscriptionDispatchRate",
    "replicator_dispatch_rate": "replicatorDispatchRate",
    "publish_rate": "publishRate",
    "subscribe_rate": "subscribeRate",
    "subscription_types_enabled": "subscriptionTypesEnabled",
    "schema_compatibility_strategy": "schemaCompatibilityStrategy",
    "schema_validation_enforced": "schemaValidationEnforced",
    "auto_subscription_creation": "autoSubscriptionCreationOverride",
    "replication_clusters": "replicationClusters",
    "offload_policies": "offloadPolicies",
    "entry_filters": "entryFilters",
    "dispatcher_pause_on_ack_state_persistent": "dispatcherPauseOnAckStatePersistentEnabled",
}
"""Field of ``TopicPolicies`` -> member of the event, the value in the same shape."""
_QUOTAS, _RATES = "backLogQuotaMap", "subscriptionPolicies"
_DELAYED: Final = ("delayedDeliveryEnabled", "delayedDeliveryTickTimeMillis", "delayedDeliveryMaxDelayInMillis")
OWN_FIELDS: Final = {*_SAME_SHAPE, "backlog_quota_map", "subscription_rates", "delayed_delivery"}
_EMPTY_OBJECTS: Final[dict[str, Any]] = {_QUOTAS: {}, _RATES: {}, "subscriptionTypesEnabled": []}
"""Members that Apache Pulsar never writes as null."""


@functools.cache
def event_schema() -> bytes:
    """The text of PulsarEvent, byte for byte that of Apache Pulsar 4.2.4: both register one version."""
    text = pathlib.Path(__file__).with_name("pulsar_event.avsc").read_text(encoding="utf-8")
    return json.dumps(json.loads(text), separators=(",", ":")).encode()


@functools.cache
def _values() -> AvroValues:
    return AvroValues(json.loads(event_schema()))


@functools.cache
def _record(name: str) -> tuple[str, ...]:
    """Fields of the record of that name in the schema: an object is written with all of them."""
    return tuple(field["name"] for field in _find(json.loads(event_schema()), name)["fields"])


def _find(schema: Any, name: str) -> Any:
    if isinstance(schema, dict) and schema.get("name") == name and "fields" in schema:
        return schema
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return next((found for part in parts if (found := _find(part, name)) is not None), None)


class EventPolicies(NamedTuple):
    """Policies of one scope: as this broker uses them, and all members of their event."""

    policies: TopicPolicies = TopicPolicies()
    members: dict[str, Any] = {}  # noqa: RUF012 - a NamedTuple, never changed

    def changed_to(self, policies: TopicPolicies, *, all_clusters: bool) -> EventPolicies:
        """Return the event with other policies; members that this broker does not use stay."""
        members = dict.fromkeys(_record("TopicPolicies")) | self.members | _members_of(policies)
        return EventPolicies(policies, members | {"isGlobal": all_clusters})

    @property
    def is_empty(self) -> bool:
        """Whether no policy is set, known to this broker or not."""
        values = (value for name, value in self.members.items() if name != "isGlobal")
        return not self.has_emptied_types and all(value in (None, {}, []) for value in values)

    @property
    def has_emptied_types(self) -> bool:
        """Whether subscription types were emptied: tools see an empty list, as in Apache Pulsar."""
        return self.policies.subscription_types_enabled == []


class Scopes(NamedTuple):
    """Policies of one topic: of this cluster, of all clusters, and both as the broker uses them."""

    own: EventPolicies | None
    everywhere: EventPolicies | None
    together: TopicPolicies

    @classmethod
    def of(cls, own: EventPolicies | None, everywhere: EventPolicies | None) -> Scopes:
        together = NO_TOPIC_POLICIES if own is None else own.policies
        if everywhere is not None:
            together = together.with_scope(everywhere.policies, all_clusters=True)
        return cls(own, everywhere, together)

    def changed_to(self, new: TopicPolicies) -> list[tuple[bool, EventPolicies]]:
        """Return (whether for all clusters, policies) of each event to write for these policies."""
        found: list[tuple[bool, EventPolicies]] = []
        for everywhere, old in ((False, self.own), (True, self.everywhere)):
            wanted = msgspec.structs.replace(new.of_scope(all_clusters=everywhere), for_all_clusters=None)
            before = old or EventPolicies().changed_to(NO_TOPIC_POLICIES, all_clusters=everywhere)
            after = before.changed_to(wanted, all_clusters=everywhere)
            if after.members != before.members or after.has_emptied_types != before.has_emptied_types:
                found.append((everywhere, after))
        return found

    def removed(self) -> list[tuple[bool, EventPolicies]]:
        """The events that remove all policies."""
        scopes = ((False, self.own), (True, self.everywhere))
        return [(everywhere, EventPolicies()) for everywhere, old in scopes if old is not None]


NOTHING: Final = Scopes(None, None, NO_TOPIC_POLICIES)


class ReadEvent(NamedTuple):
    """One event: the policies of a topic in a scope; None: the event removes them."""

    topic: TopicName
    all_clusters: bool
    policies: EventPolicies | None


def event_key(topic: TopicName, *, all_clusters: bool) -> str:
    return f"{_OF_ALL_CLUSTERS if all_clusters else ''}{topic.base}"


def encode_event(topic: TopicName, policies: EventPolicies, cluster: str) -> bytes:
    """Return the value of the event that sets these policies. Raises AvroValueError."""
    base = topic.base
    everywhere = bool(policies.members.get("isGlobal"))
    return _values().encode(
        {
            "actionType": "UPDATE",
            "eventType": "TOPIC_POLICY",
            "replicateTo": None if everywhere else [cluster],
            "topicPoliciesEvent": {
                "domain": base.domain,
                "namespace": base.namespace.partition("/")[2],
                "policies": policies.members,
                "tenant": base.tenant,
                "topic": base.local_name,
            },
        }
    )


class _TopicEvent(msgspec.Struct):
    domain: str
    tenant: str
    namespace: str
    topic: str
    policies: dict[str, Any] | None = None


class _Event(msgspec.Struct, rename="camel"):
    """The members of a PulsarEvent that this broker uses; the event may have been written with any schema."""

    event_type: str
    action_type: str
    topic_policies_event: _TopicEvent | None = None


def read_event(key: str | None, value: Any) -> ReadEvent | None:
    """Return the event of a message with this decoded value (None: no value); None if the message is no such event."""
    if value is None:
        return _removal(key or "")
    try:
        event = msgspec.convert(value, _Event)
    except msgspec.ValidationError as error:
        log.warning("topic_policy.event_unreadable", key=key, reason=str(error))
        return None
    found = event.topic_policies_event
    if event.event_type != "TOPIC_POLICY" or found is None or event.action_type == "NONE":
        return None
    try:
        topic = TopicName.parse(f"{found.domain}://{found.tenant}/{found.namespace}/{found.topic}")
    except InvalidTopicNameError:
        return None
    members = found.policies
    everywhere = (members or {}).get("isGlobal") or (key or "").startswith(_OF_ALL_CLUSTERS)
    if members is None or event.action_type == "DELETE":
        return ReadEvent(topic.base, bool(everywhere), None)
    return ReadEvent(topic.base, bool(everywhere), EventPolicies(_policies_of(topic, members), members))


def _removal(key: str) -> ReadEvent | None:
    try:
        topic = TopicName.parse(key.removeprefix(_OF_ALL_CLUSTERS))
    except InvalidTopicNameError:
        return None
    return ReadEvent(topic.base, key.startswith(_OF_ALL_CLUSTERS), None)


# --- members of the event ----------------------------------------------------------------------------------------


def _members_of(policies: TopicPolicies) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, member in _SAME_SHAPE.items():
        value = getattr(policies, name)
        found[member] = _EMPTY_OBJECTS.get(member) if value is None else _object(member, msgspec.to_builtins(value))
    delayed = policies.delayed_delivery
    parts = (None,) * 3 if delayed is None else _of_delayed(delayed)
    found |= dict(zip(_DELAYED, parts, strict=True))
    found[_QUOTAS] = {kind: _quota(quota) for kind, quota in policies.backlog_quota_map.items()}
    found[_RATES] = {
        name: {"dispatchRate": msgspec.to_builtins(rate)} for name, rate in policies.subscription_rates.items()
    }
    return found


_NAMED: Final = {"offloadPolicies": "OffloadPoliciesImpl", "persistence": "PersistencePolicies"}
"""Members whose objects may lack fields here."""


def _object(member: str, value: Any) -> Any:
    if member not in _NAMED:
        return value
    extra: dict[str, Any] = {"managedLedgerExtraConfigurations": {}} if member == "offloadPolicies" else {}
    return dict.fromkeys(_record(_NAMED[member])) | extra | value


def _of_delayed(delayed: DelayedDeliveryPolicies) -> tuple[bool, int, int]:
    return delayed.active, delayed.tick_time, delayed.max_delivery_delay_in_millis


def _quota(quota: BacklogQuota) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(quota)
    return found | {"limit": quota.limit_size if quota.limit is None else quota.limit}


_TYPES: Final = {field.name: field.type for field in msgspec.structs.fields(TopicPolicies)}


def _policies_of(topic: TopicName, members: dict[str, Any]) -> TopicPolicies:
    """Members that cannot be read are reported and count as not set."""
    found: dict[str, Any] = {}
    for name, member in _SAME_SHAPE.items():
        value = _without_nulls(members.get(member))
        if value is not None:
            _read(found, topic, name, member, value)
    active, tick_ms, most_ms = (members.get(member) for member in _DELAYED)
    if active is not None:
        delayed = {"active": active, "tickTime": tick_ms or 0, "maxDeliveryDelayInMillis": most_ms or 0}
        _read(found, topic, "delayed_delivery", _DELAYED[0], delayed)
    _read(found, topic, "backlog_quota_map", _QUOTAS, _each(members.get(_QUOTAS), _quota_of))
    _read(found, topic, "subscription_rates", _RATES, _each(members.get(_RATES), _rate_of), dict[str, DispatchRate])
    return TopicPolicies(**found)


def _each(members: Any, value_of: Callable[[Any], Any]) -> Any:
    """The values of a map that are there; a member of another type as it is, which `_read` refuses."""
    if not isinstance(members, dict):
        return members or {}
    return {name: value for name, each in members.items() if (value := value_of(each)) is not None}


def _quota_of(quota: Any) -> Any:
    value = _without_nulls(quota)
    return {"limitSize": value.get("limit", 0)} | value if isinstance(value, dict) else value


def _rate_of(policies: Any) -> Any:
    return policies.get("dispatchRate") if isinstance(policies, dict) else policies


def _read(found: dict[str, Any], topic: TopicName, name: str, member: str, value: Any, kind: Any = None) -> None:
    try:
        found[name] = msgspec.convert(value, kind or _TYPES[name])
    except msgspec.ValidationError as error:
        log.warning("topic_policy.unreadable", topic=str(topic), policy=member, reason=str(error))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value
