"""One row of the table of pulsar-admin's verbs, and the request that its flags make. Pure.

A route is a template below /admin/v2 (or the root, with a leading slash):
    {topic}         domain/tenant/namespace/name, each quoted    {schema_topic} the same without the domain
    {namespace}     tenant/namespace                             {other}        that argument or flag, quoted
    ?a={b}&c={d}    a parameter without a given value is left out
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from magnetar.cli.errors import CommandLineError
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

Values = Mapping[str, Any]
"""The given values: the name of an argument or flag -> the converted value; None when the user left it out."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of a verb.

    names: as pulsar-admin spells them.    kind: a key of `kinds.KINDS`, or `flag`.    key: the option's name in Values.
    """

    names: tuple[str, ...]
    kind: str = "text"
    required: bool = False
    default: Any = None
    help: str = ""

    @property
    def key(self) -> str:
        return max(self.names, key=len).lstrip("-").replace("-", "_")


def flag(names: str, kind: str = "text", default: Any = None, text: str = "") -> Flag:
    """`"-s --subscription!"`: names separated by blanks, with `!` at the end when the option is required."""
    return Flag(tuple(names.rstrip("!").split()), kind, names.endswith("!"), default, text)


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request. `body` None: without a body."""

    method: str
    target: str
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb.

    argument  the arguments behind the flags: topic, namespace, tenant, cluster, ... ; separated by blanks
    body      makes the JSON of the request from the values; None: no body
    check     the problem of the values, or None
    show      how the answer is printed: a key of `printing.PRINTERS`
    steps     a key of `steps.STEPS`, for a verb that needs more than one plain request
    """

    group: str
    name: str
    argument: str
    method: str
    route: str
    flags: tuple[Flag, ...] = ()
    body: Callable[[Values], Any] | None = None
    check: Callable[[Values], str | None] | None = None
    show: str = "none"
    steps: str | None = None
    help: str = ""

    def request(self, values: Values) -> Request:
        """Return the request for these values. Raises: CommandLineError."""
        problem = self.check(values) if self.check is not None else None
        if problem is not None:
            raise CommandLineError(problem)
        body = None if self.body is None else json.dumps(self.body(values), separators=(",", ":")).encode()
        return Request(self.method, target(self.route, values), body)


_BASE: Final = "/admin/v2/"


def target(route: str, values: Values) -> str:
    """Return the path and query of a route. Raises: CommandLineError for an invalid topic or namespace name."""
    path, _, query = route.partition("?")
    if not path.startswith("/"):
        path = _BASE + path
    path = path.format_map(_Parts(values))
    parameters = []
    for each in query.split("&") if query else ():
        name, _, template = each.partition("=")
        value = values[template[1:-1]] if template.startswith("{") else template
        if value is not None:
            parameters.append(f"{name}={quote(as_text(value), safe='')}")
    return f"{path}?{'&'.join(parameters)}" if parameters else path


class _Parts(dict[str, str]):
    """Return the parts of a path, by their names in the template."""

    def __init__(self, values: Values) -> None:
        super().__init__()
        self._values = values

    def __missing__(self, key: str) -> str:
        if key == "topic":
            return topic_path(str(self._values["topic"]))
        if key == "schema_topic":
            return topic_path(str(self._values["topic"])).partition("/")[2]
        if key == "namespace":
            return namespace_path(str(self._values["namespace"]))
        return quote(as_text(self._values[key]), safe="")


def as_text(value: object) -> str:
    """Return a value as the text in a URL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def topic_of(text: str) -> TopicName:
    """Raises: CommandLineError."""
    try:
        return TopicName.parse(text)
    except InvalidTopicNameError as error:
        raise CommandLineError(
            f"{error}: give TENANT/NAMESPACE/TOPIC or the short name of one in public/default"
        ) from None


def topic_path(text: str) -> str:
    """`persistent/tenant/namespace/topic`, quoted. Raises: CommandLineError."""
    name = topic_of(text)
    return f"{name.domain}/{namespace_path(name.namespace)}/{quote(name.local_name, safe='')}"


def namespace_path(text: str) -> str:
    """`tenant/namespace`, quoted. Raises: CommandLineError."""
    parts = text.split("/")
    if len(parts) != 2 or not all(parts):
        raise CommandLineError(f"{text!r} is no namespace: give TENANT/NAMESPACE, such as public/default")
    return "/".join(quote(part, safe="") for part in parts)
