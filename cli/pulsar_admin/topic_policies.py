"""`pulsar-admin topicPolicies`: policies of one topic, each also for all clusters (--global)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.pulsar_admin.policies import (
    APPLIED,
    GLOBAL,
    SHARED,
    enabled,
    limit,
    of,
    quota,
    quota_problem,
    verbs_of,
)
from magnetar.cli.pulsar_admin.verb import Flag, Values, Verb, flag

if TYPE_CHECKING:
    from collections.abc import Callable

_SCOPE: Final = "isGlobal={global}"
_SUBSCRIPTION: Final = flag("-s --subscription", text="of this subscription alone")
_TYPE: Final = flag("-t --type", "text", "destination_storage", "destination_storage or message_age")
_LIMITS: Final = tuple(
    limit(name, path, names, applied=applied)
    for name, path, names, applied in (
        ("max-unacked-messages-per-consumer", "maxUnackedMessagesOnConsumer", "-m --maxNum", True),
        ("max-unacked-messages-per-subscription", "maxUnackedMessagesOnSubscription", "-m --maxNum", True),
        ("max-producers", "maxProducers", "-p --max-producers", True),
        ("max-consumers", "maxConsumers", "-c --max-consumers", True),
        (
            "max-consumers-per-subscription",
            "maxConsumersPerSubscription",
            "-c --max-consumers-per-subscription",
            False,
        ),
        ("max-subscriptions-per-topic", "maxSubscriptionsPerTopic", "-s --max-subscriptions-per-topic", False),
        ("max-message-size", "maxMessageSize", "-m --max-message-size", False),
    )
)


def _row(
    name: str,
    method: str,
    route: str,
    text: str,
    *flags: Flag,
    body: Callable[[Values], Any] | None = None,
    check: Callable[[Values], str | None] | None = None,
    show: str = "none",
    steps: str | None = None,
) -> Verb:
    return Verb("topicPolicies", name, "topic", method, route, flags, body, check, show, steps, text)


def _with_subscription(verb: Verb) -> Verb:
    """The dispatch rate of a topic's subscriptions, or of a single subscription."""
    return _row(
        verb.name,
        verb.method,
        verb.route,
        verb.help,
        *verb.flags,
        _SUBSCRIPTION,
        body=verb.body,
        show=verb.show,
        steps="of_subscription",
    )


_SPECIAL: Final = (
    _row(
        "get-message-ttl",
        "GET",
        f"{{topic}}/messageTTL?{_SCOPE}&applied={{applied}}",
        "time to live",
        APPLIED,
        GLOBAL,
        show="json",
    ),
    _row(
        "set-message-ttl",
        "POST",
        f"{{topic}}/messageTTL?{_SCOPE}&messageTTL={{ttl}}",
        "set it",
        flag("-t --ttl!", "seconds", text="0: off"),
        GLOBAL,
    ),
    _row("remove-message-ttl", "DELETE", f"{{topic}}/messageTTL?{_SCOPE}&messageTTL=0", "remove it", GLOBAL),
    _row(
        "get-backlog-quota",
        "GET",
        f"{{topic}}/backlogQuotaMap?{_SCOPE}&applied={{applied}}",
        "quotas",
        APPLIED,
        GLOBAL,
        show="quotas",
    ),
    _row(
        "set-backlog-quota",
        "POST",
        f"{{topic}}/backlogQuota?{_SCOPE}&backlogQuotaType={{type}}",
        "set a quota",
        flag("-l --limit", "size"),
        flag("-lt --limitTime", "seconds"),
        flag("-p --policy!"),
        _TYPE,
        GLOBAL,
        body=quota,
        check=quota_problem,
    ),
    _row(
        "remove-backlog-quota",
        "DELETE",
        f"{{topic}}/backlogQuota?{_SCOPE}&backlogQuotaType={{type}}",
        "remove a quota",
        _TYPE,
        GLOBAL,
    ),
    *(
        _row(name, "GET", f"{{topic}}/{path}?{_SCOPE}&applied=false", f"the policy {name[4:]}", GLOBAL, show="json")
        for name, path in (("get-deduplication", "deduplicationEnabled"), ("get-persistence", "persistence"))
    ),
    _row(
        "get-schema-compatibility-strategy",
        "GET",
        "{topic}/schemaCompatibilityStrategy?applied={applied}",
        "which new schemas are taken",
        APPLIED,
        show="plain",
    ),
    _row(
        "set-schema-compatibility-strategy",
        "PUT",
        "{topic}/schemaCompatibilityStrategy",
        "which new schemas are taken",
        flag("-s --strategy!", text="FULL, BACKWARD, ALWAYS_COMPATIBLE, ..."),
        body=of("strategy"),
    ),
    _row(
        "remove-schema-compatibility-strategy",
        "DELETE",
        "{topic}/schemaCompatibilityStrategy",
        "that of the namespace again",
    ),
    _row(
        "get-auto-subscription-creation",
        "GET",
        f"{{topic}}/autoSubscriptionCreation?{_SCOPE}&applied={{applied}}",
        "whether consumers create their subscription",
        flag("-a --applied", "flag", False),
        GLOBAL,
        show="json",
    ),
    _row(
        "set-auto-subscription-creation",
        "POST",
        f"{{topic}}/autoSubscriptionCreation?{_SCOPE}",
        "whether consumers create their subscription",
        flag("-e --enable", "flag", False),
        GLOBAL,
        body=lambda values: {"allowAutoSubscriptionCreation": enabled(values)},
    ),
    _row(
        "remove-auto-subscription-creation",
        "DELETE",
        f"{{topic}}/autoSubscriptionCreation?{_SCOPE}",
        "as the namespace says again",
        GLOBAL,
    ),
    _row(
        "get-entry-filters-per-topic",
        "GET",
        f"{{topic}}/entryFilters?{_SCOPE}&applied={{applied}}",
        "its entry filters",
        GLOBAL,
        APPLIED,
        show="json",
    ),
    _row("remove-entry-filters-per-topic", "DELETE", f"{{topic}}/entryFilters?{_SCOPE}", "remove its filters", GLOBAL),
    _row(
        "get-dispatcher-pause-on-ack-state-persistent",
        "GET",
        f"{{topic}}/dispatcherPauseOnAckStatePersistent?{_SCOPE}&applied={{applied}}",
        "kept and shown",
        flag("-a --applied", "flag", False),
        GLOBAL,
        show="json",
    ),
    _row(
        "set-dispatcher-pause-on-ack-state-persistent",
        "POST",
        f"{{topic}}/dispatcherPauseOnAckStatePersistent?{_SCOPE}",
        "kept and shown",
        GLOBAL,
    ),
    _row(
        "remove-dispatcher-pause-on-ack-state-persistent",
        "DELETE",
        f"{{topic}}/dispatcherPauseOnAckStatePersistent?{_SCOPE}",
        "kept and shown",
        GLOBAL,
    ),
)
_OWN: Final = {row.name for row in _SPECIAL}
_COMMON: Final = tuple(
    verb
    for verb in chain.from_iterable(
        verbs_of(policy, "topicPolicies", "topic", everywhere=(GLOBAL,)) for policy in (*SHARED, *_LIMITS)
    )
    if verb.name not in _OWN
)
VERBS: Final = (
    *_SPECIAL,
    *(_with_subscription(verb) if "subscription-dispatch-rate" in verb.name else verb for verb in _COMMON),
)
