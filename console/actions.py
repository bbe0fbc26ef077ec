"""The actions of a visitor: each form of a page becomes one call of the REST API. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

__all__ = ["ACTIONS", "Action", "BadFormError", "RestCall", "page_of", "topic_path"]

Form = Mapping[str, str]
_EARLIEST: Final = {"ledgerId": -1, "entryId": -1}
_MOST_SKIPPED: Final = 1 << 31
_MOST_DIGITS: Final = 20


class BadFormError(ValueError):
    """A field is missing or has an invalid value; the message names the field."""


class RestCall(NamedTuple):
    """One call of the REST API; `path` is percent-encoded."""

    method: str
    path: str
    body: Any = None


class Action(NamedTuple):
    """One form. done: text that the next page shows after success; back: the address of that page."""

    done: str
    call: Callable[[Form], RestCall]
    back: Callable[[Form], str]


def _text(form: Form, name: str) -> str:
    value = form.get(name, "").strip()
    if not value:
        raise BadFormError(f"the field {name} is empty")
    return value


def _number(form: Form, name: str, most: int = _MOST_SKIPPED) -> int:
    text = _text(form, name)
    if not (text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS and int(text) <= most):
        raise BadFormError(f"the field {name} must be a number from 0 to {most}")
    return int(text)


def topic_path(name: str) -> str:
    """The path of a topic's routes; raises BadFormError for a name that is no full topic name."""
    domain, _, rest = name.partition("://")
    parts = rest.split("/", 2)
    if domain not in ("persistent", "non-persistent") or len(parts) != 3 or not all(parts):
        raise BadFormError(f"{name[:200]!r} is no topic name: persistent://tenant/namespace/topic")
    return f"/admin/v2/{domain}/" + "/".join(quote(part, safe="") for part in parts)


def _topic(form: Form) -> str:
    return topic_path(_text(form, "topic"))


def _subscription(form: Form) -> str:
    return f"{_topic(form)}/subscription/{quote(_text(form, 'subscription'), safe='')}"


def _namespace(form: Form) -> str:
    parts = _text(form, "namespace").split("/")
    if len(parts) != 2 or not all(parts):
        raise BadFormError("the field namespace must be tenant/namespace")
    return "/admin/v2/namespaces/" + "/".join(quote(part, safe="") for part in parts)


def page_of(page: str, **query: str) -> str:
    """The address of a page of the console."""
    return f"/ui/{page}?{urlencode(query)}" if query else f"/ui/{page}"


def _topic_page(form: Form) -> str:
    return page_of("topic", name=form.get("topic", ""))


def _subscription_page(form: Form) -> str:
    return page_of("subscription", topic=form.get("topic", ""), name=form.get("subscription", ""))


def _namespace_page(form: Form) -> str:
    return page_of("namespace", name=form.get("namespace", ""))


def _topics_page(_form: Form) -> str:
    return page_of("topics")


def _settings_page(_form: Form) -> str:
    return page_of("settings")


# --- calls ------------------------------------------------------------------------------------------------------------


def _publish(form: Form) -> RestCall:
    message: dict[str, Any] = {"payload": form.get("payload", "")}
    if form.get("key"):
        message["key"] = form["key"]
    if form.get("delay_seconds"):
        message["deliverAfterMs"] = 1000 * _number(form, "delay_seconds")
    body: dict[str, Any] = {"messages": [message]}
    if form.get("schema_version"):  # without a version the message has the schema STRING, which other topics refuse
        body["schemaVersion"] = _number(form, "schema_version")
    return RestCall("POST", _topic(form).replace("/admin/v2/", "/topics/", 1), body)


def _create_topic(form: Form) -> RestCall:
    if form.get("partitions"):
        return RestCall("PUT", f"{_topic(form)}/partitions", _number(form, "partitions"))
    return RestCall("PUT", _topic(form))


def _seek(form: Form) -> RestCall:
    where = _text(form, "where")
    if where == "earliest":
        return RestCall("POST", f"{_subscription(form)}/resetcursor", _EARLIEST)
    if where == "latest":
        return RestCall("POST", f"{_subscription(form)}/skip_all")
    try:
        moment = datetime.fromisoformat(_text(form, "time"))
    except ValueError as e:
        raise BadFormError("the field time must be a time such as 2026-01-31T12:00") from e
    milliseconds = int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
    return RestCall("POST", f"{_subscription(form)}/resetcursor/{milliseconds}")


def _grant(form: Form) -> RestCall:
    actions = [name for name in ("produce", "consume", "functions", "sources", "sinks", "packages") if form.get(name)]
    if not actions:
        raise BadFormError("choose at least one permission")
    return RestCall("POST", f"{_namespace(form)}/permissions/{quote(_text(form, 'role'), safe='')}", actions)


def _create_namespace(form: Form) -> RestCall:
    return RestCall("PUT", _namespace(form), {})


def _set(form: Form) -> RestCall:
    key, value = (quote(_text(form, name), safe="") for name in ("key", "value"))
    return RestCall("POST", f"/admin/v2/brokers/configuration/{key}/{value}")


ACTIONS: Final[Mapping[str, Action]] = {
    "publish": Action("The message is published.", _publish, _topic_page),
    "create-namespace": Action("The namespace is created.", _create_namespace, _namespace_page),
    "create-topic": Action("The topic is created.", _create_topic, _topic_page),
    "create-subscription": Action(
        "The subscription is created.",
        lambda f: RestCall("PUT", _subscription(f), _EARLIEST if f.get("where") == "earliest" else None),
        _subscription_page,
    ),
    "skip": Action(
        "The messages are skipped.",
        lambda f: RestCall("POST", f"{_subscription(f)}/skip/{_number(f, 'number')}"),
        _subscription_page,
    ),
    "clear": Action(
        "The backlog is cleared.", lambda f: RestCall("POST", f"{_subscription(f)}/skip_all"), _subscription_page
    ),
    "seek": Action("The cursor is moved.", _seek, _subscription_page),
    "expire": Action(
        "Older messages expire.",
        lambda f: RestCall("POST", f"{_subscription(f)}/expireMessages/{_number(f, 'seconds')}"),
        _subscription_page,
    ),
    "unsubscribe": Action("The subscription is deleted.", lambda f: RestCall("DELETE", _subscription(f)), _topic_page),
    "unload": Action("The topic is unloaded.", lambda f: RestCall("PUT", f"{_topic(f)}/unload"), _topic_page),
    "compact": Action("Compaction has begun.", lambda f: RestCall("PUT", f"{_topic(f)}/compaction"), _topic_page),
    "delete-topic": Action("The topic is deleted.", lambda f: RestCall("DELETE", _topic(f)), _topics_page),
    "grant": Action("The permissions are granted.", _grant, _namespace_page),
    "revoke": Action(
        "The permissions are revoked.",
        lambda f: RestCall("DELETE", f"{_namespace(f)}/permissions/{quote(_text(f, 'role'), safe='')}"),
        _namespace_page,
    ),
    "set": Action("The setting is changed.", _set, _settings_page),
    "reset": Action(
        "The setting has its configured value again.",
        lambda f: RestCall("DELETE", f"/admin/v2/brokers/configuration/{quote(_text(f, 'key'), safe='')}"),
        _settings_page,
    ),
}
"""Name of a form -> its action."""
