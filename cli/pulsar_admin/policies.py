"""Policies that namespaces and topics share, and the three verbs (get, set, remove) that each of them has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.pulsar_admin.verb import Flag, Values, Verb, flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENABLE: Final = flag("-e --enable", "flag", text="switch it on")
DISABLE: Final = flag("-d --disable", "flag", text="switch it off")
APPLIED: Final = flag("-ap --applied", "flag", False, "what applies after all, when the topic has no policy of its own")
GLOBAL: Final = flag("-g --global", "flag", text="the policy of all clusters")


def one_switch(values: Values) -> str | None:
    """Return the refusal unless exactly one of --enable and --disable is given."""
    return None if bool(values["enable"]) != bool(values["disable"]) else "give one of --enable and --disable"


def enabled(values: Values) -> bool:
    return bool(values["enable"])


def of(key: str) -> Callable[[Values], Any]:
    """Return a function that makes the body from the value of one flag."""
    return lambda values: values[key]


def filled(template: dict[str, str]) -> Callable[[Values], Any]:
    """Return a function that makes a JSON object: field -> value of the flag with that key, without absent flags."""
    return lambda values: {field: values[key] for field, key in template.items() if values[key] is not None}


def retention(values: Values) -> Any:
    """Return the body of a retention policy: minutes and mebibytes; 0 and -1 stay as they are."""
    time, size = values["time"], values["size"]
    return {
        "retentionTimeInMinutes": time // 60 if time > 0 else time,
        "retentionSizeInMB": size // 2**20 if size > 0 else size,
    }


def retention_problem(values: Values) -> str | None:
    """Refuse a limit below one minute or one mebibyte, which would round down to 0."""
    if 0 < values["time"] < 60:
        return "--time: at least one minute, 0 or -1"
    return "--size: at least 1M, 0 or -1" if 0 < values["size"] < 2**20 else None


def quota(values: Values) -> Any:
    """Return a BacklogQuota with the old field `limit` beside `limitSize`, as the Java client writes it."""
    size, time = (-1 if values[key] is None else values[key] for key in ("limit", "limitTime"))
    if values["type"] == "message_age":
        size = -1
    return {"limit": size, "limitSize": size, "limitTime": time, "policy": values["policy"]}


def quota_problem(values: Values) -> str | None:
    if values["type"] not in ("destination_storage", "message_age"):
        return f"--type {values['type']}: give destination_storage or message_age"
    missing = "limit" if values["type"] == "destination_storage" else "limitTime"
    return f"--{missing} is needed for a quota of type {values['type']}" if values[missing] is None else None


def inactivity_problem(values: Values) -> str | None:
    if bool(values["enable_delete_while_inactive"]) == bool(values["disable_delete_while_inactive"]):
        return "give one of --enable-delete-while-inactive and --disable-delete-while-inactive"
    return None


def _inactivity(values: Values) -> Any:
    return {
        "inactiveTopicDeleteMode": values["delete_mode"],
        "maxInactiveDurationSeconds": values["max_inactive_duration"],
        "deleteWhileInactive": bool(values["enable_delete_while_inactive"]),
    }


def _delayed(values: Values) -> Any:
    return {
        "tickTime": values["time"],
        "active": enabled(values),
        "maxDeliveryDelayInMillis": values["maxDelay"] or 0,
    }


def _dispatch(values: Values) -> Any:
    return {
        "dispatchThrottlingRateInMsg": values["msg_dispatch_rate"],
        "dispatchThrottlingRateInByte": values["byte_dispatch_rate"],
        "relativeToPublishRate": bool(values.get("relative_to_publish_rate")),
        "ratePeriodInSecond": values["dispatch_rate_period"],
    }


RATE: Final = (
    flag("-md --msg-dispatch-rate", "integer", -1, "messages a period; -1 for no limit"),
    flag("-bd --byte-dispatch-rate", "integer", -1, "bytes a period; -1 for no limit"),
    flag("-dt --dispatch-rate-period", "integer", 1, "seconds"),
)
_RELATIVE: Final = flag("-rp --relative-to-publish-rate", "flag", False, "add the publish rate")


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: its name in verbs, the last part of its route, and how it is set.

    verb: the HTTP method that sets it.   applied: `get` takes --applied.   show: how `get` prints the answer.
    """

    name: str
    path: str
    flags: tuple[Flag, ...]
    body: Callable[[Values], Any]
    check: Callable[[Values], str | None] | None = None
    applied: bool = False
    verb: str = "POST"
    show: str = "json"


def limit(name: str, path: str, names: str, *, applied: bool = False) -> Policy:
    """Return a policy whose value is one number."""
    setting = flag(names + "!", "integer", text="the limit")
    return Policy(name, path, (setting,), of(setting.key), applied=applied)


SHARED: Final = (
    Policy(
        "persistence",
        "persistence",
        (
            flag("-e --bookkeeper-ensemble", "integer", 2),
            flag("-w --bookkeeper-write-quorum", "integer", 2),
            flag("-a --bookkeeper-ack-quorum", "integer", 2),
            flag("-r --ml-mark-delete-max-rate", "number", 0.0, "persisted mark-deletes a second; 0 for no limit"),
            flag("-c --ml-storage-class"),
        ),
        filled(
            {
                "bookkeeperEnsemble": "bookkeeper_ensemble",
                "bookkeeperWriteQuorum": "bookkeeper_write_quorum",
                "bookkeeperAckQuorum": "bookkeeper_ack_quorum",
                "managedLedgerMaxMarkDeleteRate": "ml_mark_delete_max_rate",
                "managedLedgerStorageClassName": "ml_storage_class",
            }
        ),
    ),
    Policy(
        "retention",
        "retention",
        (flag("-t --time!", "seconds", text="-1 for ever"), flag("-s --size!", "size", text="-1 for no limit")),
        retention,
        retention_problem,
        applied=True,
    ),
    Policy("deduplication", "deduplicationEnabled", (ENABLE, DISABLE), enabled, one_switch),
    Policy(
        "delayed-delivery",
        "delayedDelivery",
        (
            ENABLE,
            DISABLE,
            flag("-t --time", "millis", 1000, "tick time"),
            flag("-md --maxDelay", "millis", text="longest delay; 0 for no limit"),
        ),
        _delayed,
        one_switch,
        applied=True,
    ),
    Policy(
        "inactive-topic-policies",
        "inactiveTopicPolicies",
        (
            flag("-e --enable-delete-while-inactive", "flag"),
            flag("-d --disable-delete-while-inactive", "flag"),
            flag("-t --max-inactive-duration!", "seconds"),
            flag("-m --delete-mode!", text="delete_when_no_subscriptions or delete_when_subscriptions_caught_up"),
        ),
        _inactivity,
        inactivity_problem,
        applied=True,
    ),
    Policy("dispatch-rate", "dispatchRate", (*RATE, _RELATIVE), _dispatch, applied=True),
    Policy("subscription-dispatch-rate", "subscriptionDispatchRate", (*RATE, _RELATIVE), _dispatch, applied=True),
    Policy("replicator-dispatch-rate", "replicatorDispatchRate", (*RATE, _RELATIVE), _dispatch, applied=True),
    Policy(
        "publish-rate",
        "publishRate",
        (
            flag("-m --msg-publish-rate", "integer", -1, "messages a second; -1 for no limit"),
            flag("-b --byte-publish-rate", "integer", -1, "bytes a second; -1 for no limit"),
        ),
        filled({"publishThrottlingRateInMsg": "msg_publish_rate", "publishThrottlingRateInByte": "byte_publish_rate"}),
    ),
    Policy(
        "subscribe-rate",
        "subscribeRate",
        (
            flag("-sr --subscribe-rate", "integer", -1, "subscribes a period; -1 for no limit"),
            flag("-st --subscribe-rate-period", "integer", 30, "seconds"),
        ),
        filled({"subscribeThrottlingRatePerConsumer": "subscribe_rate", "ratePeriodInSecond": "subscribe_rate_period"}),
        applied=True,
    ),
    Policy(
        "compaction-threshold",
        "compactionThreshold",
        (flag("-t --threshold!", "size", text="0 switches it off"),),
        of("threshold"),
        applied=True,
    ),
    Policy(
        "subscription-types-enabled",
        "subscriptionTypesEnabled",
        (flag("-t --types!", "list", text="Exclusive, Shared, Failover, Key_Shared"),),
        of("types"),
    ),
    limit("deduplication-snapshot-interval", "deduplicationSnapshotInterval", "-i --interval"),
)
"""Policies whose verbs have the same flags for namespaces and topics."""


def verbs_of(policy: Policy, group: str, argument: str, *, everywhere: tuple[Flag, ...] = ()) -> Iterator[Verb]:
    """Return the verbs get, set and remove of a policy.

    Args:    argument: topic or namespace.   everywhere: flags that each of the three takes (`--global`).
    """
    scope = "?isGlobal={global}" if everywhere else ""
    base = f"{argument_route(argument)}/{policy.path}"
    with_applied = policy.applied and argument == "topic"
    get = Verb(
        group,
        f"get-{policy.name}",
        argument,
        "GET",
        _joined(base + scope, "applied={applied}" if with_applied else ""),
        (*([APPLIED] if with_applied else []), *everywhere),
        show=policy.show,
        help=f"the policy {policy.name}",
    )
    yield get
    yield replace(
        get,
        name=f"set-{policy.name}",
        method=policy.verb,
        route=base + scope,
        flags=(*policy.flags, *everywhere),
        body=policy.body,
        check=policy.check,
        show="none",
        help=f"set the policy {policy.name}",
    )
    yield replace(
        get,
        name=f"remove-{policy.name}",
        method="DELETE",
        route=base + scope,
        flags=everywhere,
        show="none",
        help=f"remove the policy {policy.name}",
    )


def argument_route(argument: str) -> str:
    """Return the path of topics and namespaces below /admin/v2."""
    return "{topic}" if argument == "topic" else "namespaces/{namespace}"


def _joined(route: str, parameter: str) -> str:
    if not parameter:
        return route
    return f"{route}{'&' if '?' in route else '?'}{parameter}"
