"""`pulsar-admin topics`: one row a verb."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from magnetar.cli.pulsar_admin.policies import (
    APPLIED,
    SHARED,
    Policy,
    enabled,
    filled,
    limit,
    of,
    verbs_of,
)
from magnetar.cli.pulsar_admin.topic_rows import PROPERTIES, SUBSCRIPTION, plain_message_id
from magnetar.cli.pulsar_admin.topic_rows import topic_row as _row
from magnetar.cli.pulsar_admin.topic_subscriptions import SUBSCRIPTIONS
from magnetar.cli.pulsar_admin.verb import Values, flag

_FORCE: Final = flag("-f --force", "flag", False, "although producers and consumers are connected")
_SYSTEM: Final = flag("-ist --include-system-topic", "flag", False, "system topics too")
_STATS: Final = (
    flag("-gpb --get-precise-backlog", "flag", False, "count the backlog message by message"),
    flag("-sbs --get-subscription-backlog-size", "flag", False, "leave out the bytes of each backlog"),
    flag("-etb --get-earliest-time-in-backlog", "flag", False, "the time of the oldest message of each backlog"),
)
_STATS_QUERY: Final = (
    "getPreciseBacklog={get_precise_backlog}&subscriptionBacklogSize={backlog_size}"
    "&getEarliestTimeInBacklog={get_earliest_time_in_backlog}&excludePublishers=false&excludeConsumers=false"
)
_METADATA: Final = flag("-m --metadata", "map", text="properties of the topic, repeatable")


def _new_partitions(values: Values) -> Any:
    if not values["metadata"]:
        return values["partitions"]
    return {"partitions": values["partitions"], "deleted": False, "properties": values["metadata"]}


_LISTS: Final = (
    _row(
        "list",
        "GET",
        "{domain}/{namespace}?bundle={bundle}&includeSystemTopic={include_system_topic}",
        "topics of a namespace, single partitions among them",
        flag("-td --topic-domain", text="persistent or non-persistent; default: both"),
        flag("-b --bundle"),
        _SYSTEM,
        argument="namespace",
        show="lines",
        steps="both_domains",
    ),
    _row(
        "list-partitioned-topics",
        "GET",
        "{domain}/{namespace}/partitioned?includeSystemTopic={include_system_topic}",
        "partitioned topics of a namespace",
        _SYSTEM,
        argument="namespace",
        show="lines",
        steps="both_domains",
    ),
    _row("permissions", "GET", "{topic}/permissions", "actions of each role", show="map"),
    _row(
        "grant-permission",
        "POST",
        "{topic}/permissions/{role}",
        "grant actions to a role",
        flag("-r --role!"),
        flag("-a --actions!", "actions", text="produce, consume, ..."),
        body=of("actions"),
    ),
    _row("revoke-permission", "DELETE", "{topic}/permissions/{role}", "take all from a role", flag("-r --role!")),
    _row("lookup", "GET", "/lookup/v2/topic/{topic}", "the broker that serves the topic", show="broker_url"),
    _row("bundle-range", "GET", "/lookup/v2/topic/{topic}/bundle", "the bundle of the topic", show="text"),
    _row(
        "partitioned-lookup",
        "GET",
        "{topic}/partitions",
        "the brokers that serve the partitions",
        flag("-s --sort-by-broker", "flag", False),
        steps="partitioned_lookup",
    ),
)
_LIFE: Final = (
    _row(
        "create",
        "PUT",
        "{topic}",
        "create a topic without partitions",
        _METADATA,
        body=lambda values: values["metadata"] or {},
    ),
    _row(
        "create-partitioned-topic",
        "PUT",
        "{topic}/partitions?createLocalTopicOnly=false",
        "create a partitioned topic",
        flag("-p --partitions!", "integer"),
        _METADATA,
        body=_new_partitions,
    ),
    _row(
        "create-missed-partitions", "POST", "{topic}/createMissedPartitions", "create the partitions that are missing"
    ),
    _row(
        "update-partitioned-topic",
        "POST",
        "{topic}/partitions?updateLocalTopicOnly={update_local_only}&force={force}",
        "give it more partitions",
        flag("-p --partitions!", "integer"),
        flag("-ulo --update-local-only", "flag", False),
        flag("-f --force", "flag", False),
        body=of("partitions"),
    ),
    _row("get-partitioned-topic-metadata", "GET", "{topic}/partitions", "number of partitions", show="partitions"),
    _row(
        "delete",
        "DELETE",
        "{topic}?force={force}&deleteSchema=true",
        "delete a topic, its subscriptions and its schema",
        _FORCE,
        flag("-d --deleteSchema", "flag", False, "without effect: the schema goes with the topic"),
    ),
    _row(
        "delete-partitioned-topic",
        "DELETE",
        "{topic}/partitions?force={force}&deleteSchema=true",
        "delete it with all partitions",
        _FORCE,
        flag("-d --deleteSchema", "flag", False, "without effect: the schema goes with the topic"),
    ),
    _row("truncate", "DELETE", "{topic}/truncate", "drop backlogs and all messages outside the open ledger"),
    _row("unload", "PUT", "{topic}/unload", "close the topic; clients come again and open it anew"),
    _row("terminate", "POST", "{topic}/terminate", "take no more messages", show="terminated"),
    _row(
        "partitioned-terminate", "POST", "{topic}/terminate/partitions", "take no more messages", show="terminated_all"
    ),
    _row("compact", "PUT", "{topic}/compaction", "start compaction", show="compaction_started"),
    _row(
        "compaction-status",
        "GET",
        "{topic}/compaction",
        "how far compaction is",
        flag("-w --wait-complete", "flag", False, "return when it has ended"),
        steps="compaction_status",
    ),
    _row("trim-topic", "POST", "{topic}/trim", "delete the ledgers that retention does not keep"),
    _row("get-properties", "GET", "{topic}/properties", "properties of the topic", show="map"),
    _row(
        "update-properties",
        "PUT",
        "{topic}/properties",
        "add or replace properties",
        PROPERTIES,
        body=lambda values: values["property"] or {},
    ),
    _row("remove-properties", "DELETE", "{topic}/properties?key={key}", "remove one", flag("-k --key")),
)
_FIGURES: Final = (
    _row(
        "stats",
        "GET",
        f"{{topic}}/stats?{_STATS_QUERY}",
        "rates, counts, producers and subscriptions",
        *_STATS,
        steps="stats",
        show="json",
    ),
    _row(
        "stats-internal",
        "GET",
        "{topic}/internalStats?metadata={metadata}",
        "ledgers and cursors",
        flag("-m --metadata", "flag", False),
        show="json",
    ),
    _row("info-internal", "GET", "{topic}/internal-info", "ledgers and cursors as they are stored", show="gson"),
    _row(
        "partitioned-stats",
        "GET",
        f"{{topic}}/partitioned-stats?perPartition={{per_partition}}&{_STATS_QUERY}",
        "sums over the partitions",
        flag("--per-partition", "flag", False, "and each of them"),
        *_STATS,
        steps="stats",
        show="json",
    ),
    _row("partitioned-stats-internal", "GET", "{topic}/partitioned-internalStats", "of each partition", show="json"),
    _row(
        "get-backlog-size",
        "PUT",
        "{topic}/backlogSize",
        "bytes from a position to the end",
        flag("-m --messageId", "position", {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}),
        body=lambda values: plain_message_id(values["messageId"]),
        show="json",
    ),
)
_MESSAGES: Final = (
    _row("last-message-id", "GET", "{topic}/lastMessageId", "position of the last message", show="message_id"),
    _row(
        "get-message-id",
        "GET",
        "{topic}/messageid/{datetime}",
        "position of the first message at or after a time",
        flag("-d --datetime!", "instant"),
        show="message_id_of_time",
    ),
    _row(
        "peek-messages",
        "GET",
        "{topic}/subscription/{subscription}/position/{position}",
        "the next messages of a subscription, without taking them",
        SUBSCRIPTION,
        flag("-n --count", "integer", 1),
        flag("-ssm --show-server-marker", "flag", False, "markers of the broker too"),
        flag("-til --transaction-isolation-level", "text", "READ_COMMITTED", "without effect"),
        steps="peek",
    ),
    _row(
        "examine-messages",
        "GET",
        "{topic}/examinemessage?initialPosition={initialPosition}&messagePosition={messagePosition}",
        "a message counted from the begin or the end of the topic",
        flag("-i --initialPosition", "text", "latest", "latest or earliest"),
        flag("-m --messagePosition", "integer", 1),
        steps="message",
    ),
    _row(
        "get-message-by-id",
        "GET",
        "{topic}/ledger/{ledgerId}/entry/{entryId}",
        "the message at a position",
        flag("-l --ledgerId!", "integer"),
        flag("-e --entryId!", "integer"),
        steps="message",
    ),
)


_TYPE: Final = flag("-t --type", "text", "destination_storage", "destination_storage or message_age")
_SPECIAL: Final = (
    _row("get-backlog-quotas", "GET", "{topic}/backlogQuotaMap?applied={applied}", "quotas", APPLIED, show="quotas"),
    _row(
        "set-backlog-quota",
        "POST",
        "{topic}/backlogQuota?backlogQuotaType={type}",
        "set a quota",
        flag("-l --limit", "size", -1),
        flag("-lt --limitTime", "seconds", -1),
        flag("-p --policy!"),
        _TYPE,
        body=filled({"limit": "limit", "limitSize": "limit", "limitTime": "limitTime", "policy": "policy"}),
    ),
    _row("remove-backlog-quota", "DELETE", "{topic}/backlogQuota?backlogQuotaType={type}", "remove a quota", _TYPE),
    _row("get-message-ttl", "GET", "{topic}/messageTTL?applied={applied}", "time to live", APPLIED, show="json"),
    _row(
        "set-message-ttl",
        "POST",
        "{topic}/messageTTL?messageTTL={ttl}",
        "set it",
        flag("-t --ttl!", "seconds", text="0: off"),
    ),
    _row("remove-message-ttl", "DELETE", "{topic}/messageTTL?messageTTL=0", "remove it"),
    _row("enable-deduplication", "POST", "{topic}/deduplicationEnabled", "switch it on", body=lambda _: True),
    _row("disable-deduplication", "POST", "{topic}/deduplicationEnabled", "switch it off", body=lambda _: False),
    *(
        _row(name, "GET", "{topic}/deduplicationEnabled?applied=false", "the policy deduplication", show="json")
        for name in ("get-deduplication-enabled", "get-deduplication")
    ),
    _row("get-persistence", "GET", "{topic}/persistence?applied=false", "the policy persistence", show="json"),
    _row(
        "get-replication-clusters", "GET", "{topic}/replication?applied={applied}", "its clusters", APPLIED, show="json"
    ),
    _row(
        "set-replication-clusters",
        "POST",
        "{topic}/replication",
        "set its clusters",
        flag("-c --clusters!", "list"),
        body=of("clusters"),
    ),
    _row("remove-replication-clusters", "DELETE", "{topic}/replication", "those of the namespace again"),
    _row(
        "get-schema-validation-enforce",
        "GET",
        "{topic}/schemaValidationEnforced?applied={applied}",
        "whether producers without a schema are refused",
        APPLIED,
        show="json",
    ),
    _row(
        "set-schema-validation-enforce",
        "POST",
        "{topic}/schemaValidationEnforced",
        "refuse producers without a schema",
        flag("-e --enable", "flag", False),
        body=enabled,
    ),
)
_LIMITS: Final = tuple(
    limit(name, path, names, applied=applied)
    for name, path, names, applied in (
        ("max-unacked-messages-on-consumer", "maxUnackedMessagesOnConsumer", "-m --maxNum", True),
        ("max-unacked-messages-on-subscription", "maxUnackedMessagesOnSubscription", "-m --maxNum", True),
        ("max-unacked-messages-per-consumer", "maxUnackedMessagesOnConsumer", "-m --maxNum", True),
        ("max-unacked-messages-per-subscription", "maxUnackedMessagesOnSubscription", "-m --maxNum", True),
        ("maxProducers", "maxProducers", "-p --max-producers", True),
        ("max-producers", "maxProducers", "-p --max-producers", True),
        ("max-subscriptions", "maxSubscriptionsPerTopic", "-m --max-subscriptions-per-topic", False),
        ("max-message-size", "maxMessageSize", "-m --max-message-size", False),
        (
            "max-consumers-per-subscription",
            "maxConsumersPerSubscription",
            "-c --max-consumers-per-subscription",
            False,
        ),
        ("max-consumers", "maxConsumers", "-c --max-consumers", True),
    )
)
POLICIES: Final[tuple[Policy, ...]] = (*SHARED, *_LIMITS)
_OWN: Final = {row.name for row in _SPECIAL}

VERBS: Final = (
    *_LISTS,
    *_LIFE,
    *SUBSCRIPTIONS,
    *_FIGURES,
    *_MESSAGES,
    *_SPECIAL,
    *(
        verb
        for verb in chain.from_iterable(verbs_of(policy, "topics", "topic") for policy in POLICIES)
        if verb.name not in _OWN
    ),
)
