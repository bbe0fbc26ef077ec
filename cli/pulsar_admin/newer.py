"""Verbs of pulsar-admin that are newer than version 4.0: additions of the admin interface of 4.2.4 that this broker
supports. The tools themselves were compared up to 4.0.6.
"""

from __future__ import annotations

from typing import Final

from magnetar.cli.pulsar_admin.policies import APPLIED, GLOBAL, of
from magnetar.cli.pulsar_admin.topic_rows import topic_row
from magnetar.cli.pulsar_admin.verb import Verb, flag

_SCOPE: Final = "isGlobal={global}"


def _policy(name: str, method: str, route: str, text: str, *flags: object, **more: object) -> Verb:
    return Verb("topicPolicies", name, "topic", method, route, flags, help=text, **more)  # type: ignore[arg-type]


VERBS: Final = (
    topic_row(
        "get-message-id-by-index",
        "GET",
        "{topic}/getMessageIdByIndex?index={index}",
        "position of the entry that holds a message of the broker's index",
        flag("-i --index!", "integer"),
        show="json",
    ),
    _policy(
        "get-replication-clusters",
        "GET",
        f"{{topic}}/replication?{_SCOPE}&applied={{applied}}",
        "its clusters",
        APPLIED,
        GLOBAL,
        show="json",
    ),
    _policy(
        "set-replication-clusters",
        "POST",
        f"{{topic}}/replication?{_SCOPE}",
        "set its clusters",
        flag("-c --clusters!", "list"),
        GLOBAL,
        body=of("clusters"),
    ),
    _policy(
        "remove-replication-clusters",
        "DELETE",
        f"{{topic}}/replication?{_SCOPE}",
        "those of the namespace again",
        GLOBAL,
    ),
    _policy(
        "get-subscription-expiration-time",
        "GET",
        f"{{topic}}/subscriptionExpirationTime?{_SCOPE}&applied={{applied}}",
        "minutes after which an unused subscription is deleted",
        APPLIED,
        GLOBAL,
        show="json",
    ),
    _policy(
        "set-subscription-expiration-time",
        "POST",
        f"{{topic}}/subscriptionExpirationTime?{_SCOPE}&subscriptionExpirationTime={{time}}",
        "set them",
        flag("-t --time!", "integer", text="minutes; 0: never"),
        GLOBAL,
    ),
    _policy(
        "remove-subscription-expiration-time",
        "DELETE",
        f"{{topic}}/subscriptionExpirationTime?{_SCOPE}",
        "those of the namespace again",
        GLOBAL,
    ),
    _policy("delete", "DELETE", "{topic}/policies", "delete all policies of the topic"),
)
