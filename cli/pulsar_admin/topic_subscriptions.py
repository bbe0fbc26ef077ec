"""`pulsar-admin topics`: the verbs about subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.pulsar_admin.kinds import LATEST
from magnetar.cli.pulsar_admin.policies import DISABLE, ENABLE, enabled, one_switch
from magnetar.cli.pulsar_admin.topic_rows import PROPERTIES, SUBSCRIPTION, message_id, plain_message_id
from magnetar.cli.pulsar_admin.topic_rows import topic_row as _row
from magnetar.cli.pulsar_admin.verb import Values, flag

if TYPE_CHECKING:
    from collections.abc import Callable

_EXCLUDED: Final = flag("-e --exclude-reset-position", "flag", False, "the position itself does not count")


def _new_subscription(values: Values) -> Any:
    if not values["property"]:
        return plain_message_id(values["messageId"])
    return message_id(values["messageId"], properties=values["property"], excluded=False)


def _reset_position(key: str) -> Callable[[Values], Any]:
    return lambda values: message_id(values[key], excluded=bool(values["exclude_reset_position"]))


def _one_of_properties_and_clear(values: Values) -> str | None:
    return None if bool(values["property"]) != bool(values["clear"]) else "give one of --property and --clear"


def _expiry_problem(values: Values) -> str | None:
    given = (values["expireTime"] is not None) + (values["position"] is not None)
    return None if given == 1 else "give one of --expireTime and --position"


def _reset_problem(values: Values) -> str | None:
    if values["time"] is None and values["messageId"] is None:
        return "give one of --time (how far back) and --messageId"
    return None


SUBSCRIPTIONS: Final = (
    _row("subscriptions", "GET", "{topic}/subscriptions", "names of the subscriptions", show="lines"),
    _row(
        "create-subscription",
        "PUT",
        "{topic}/subscription/{subscription}?replicated={replicated}",
        "create a subscription",
        SUBSCRIPTION,
        flag("-m --messageId", "position", LATEST, "where it begins; default: latest"),
        flag("-r --replicated", "flag", False),
        PROPERTIES,
        body=_new_subscription,
    ),
    _row(
        "unsubscribe",
        "DELETE",
        "{topic}/subscription/{subscription}?force={force}",
        "delete a subscription",
        SUBSCRIPTION,
        flag("-f --force", "flag", False, "although consumers are connected"),
    ),
    _row(
        "get-subscription-properties",
        "GET",
        "{topic}/subscription/{subscription}/properties",
        "properties of a subscription",
        SUBSCRIPTION,
        show="compact_json",
    ),
    _row(
        "update-subscription-properties",
        "PUT",
        "{topic}/subscription/{subscription}/properties",
        "replace them",
        SUBSCRIPTION,
        PROPERTIES,
        flag("-c --clear", "flag", False, "remove all"),
        check=_one_of_properties_and_clear,
        body=lambda values: values["property"] or {},
    ),
    _row(
        "skip",
        "POST",
        "{topic}/subscription/{subscription}/skip/{count}",
        "acknowledge the next messages of a subscription",
        SUBSCRIPTION,
        flag("-n --count!", "integer"),
    ),
    _row(
        "clear-backlog", "POST", "{topic}/subscription/{subscription}/skip_all", "acknowledge all of them", SUBSCRIPTION
    ),
    _row(
        "expire-messages",
        "POST",
        "{topic}/subscription/{subscription}/expireMessages",
        "acknowledge older messages, or those before a position",
        SUBSCRIPTION,
        flag("-t --expireTime", "seconds"),
        flag("-p --position", "position"),
        _EXCLUDED,
        check=_expiry_problem,
        steps="expire",
        body=_reset_position("position"),
    ),
    _row(
        "expire-messages-all-subscriptions",
        "POST",
        "{topic}/all_subscription/expireMessages/{expireTime}",
        "the same for all subscriptions",
        flag("-t --expireTime!", "seconds"),
    ),
    _row(
        "reset-cursor",
        "POST",
        "{topic}/subscription/{subscription}/resetcursor",
        "move a subscription, back or forth",
        SUBSCRIPTION,
        flag("-t --time", "millis", text="so far back from now"),
        flag("-m --messageId", "position"),
        _EXCLUDED,
        check=_reset_problem,
        steps="reset",
        body=_reset_position("messageId"),
    ),
    _row(
        "get-replicated-subscription-status",
        "GET",
        "{topic}/subscription/{subscription}/replicatedSubscriptionStatus",
        "whether other clusters follow it",
        SUBSCRIPTION,
        show="map",
    ),
    _row(
        "set-replicated-subscription-status",
        "POST",
        "{topic}/subscription/{subscription}/replicatedSubscriptionStatus",
        "whether other clusters follow it",
        SUBSCRIPTION,
        ENABLE,
        DISABLE,
        check=one_switch,
        body=enabled,
    ),
    _row(
        "analyze-backlog",
        "POST",
        "{topic}/subscription/{subscription}/analyzeBacklog",
        "count the backlog message by message",
        SUBSCRIPTION,
        flag("-p --position", "position", text="from here on"),
        steps="analyze",
        show="json",
    ),
)
