"""Verbs that need several requests, or whose route depends on the given values. Tests replace `Surroundings.ask`,
which sends the requests, and need no broker.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from magnetar.cli.errors import BrokerFailedError, CommandLineError, NotFoundError
from magnetar.cli.pulsar_admin import printing
from magnetar.cli.pulsar_admin.message_texts import SEPARATOR, message_text
from magnetar.cli.pulsar_admin.verb import Request, Values, Verb, namespace_path, target, topic_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Answer(NamedTuple):
    """A successful answer of the admin API."""

    body: bytes
    headers: Mapping[str, str]


class Surroundings(Protocol):
    """The services that steps use."""

    def ask(self, request: Request) -> Answer:
        """Send the request; return the answer. Raises: CliError, with the reason of the broker."""
        ...

    def confirm(self, question: str) -> bool: ...

    def now_ms(self) -> int: ...


Step = Callable[[Verb, dict[str, Any], Surroundings], "Iterator[str]"]


def _asked(verb: Verb, values: Values, around: Surroundings) -> str:
    """Send the request of the verb; return the printed answer."""
    return printing.PRINTERS[verb.show](values, around.ask(verb.request(values)).body)


def _both_domains(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    chosen = values.get("topic_domain")
    domains = [chosen.replace("_", "-")] if chosen else ["persistent", "non-persistent"]
    for domain in domains:
        yield _asked(verb, {**values, "domain": domain}, around)


def _stats(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    """Invert --get-subscription-backlog-size: as in pulsar-admin, the flag removes the backlog size from the answer."""
    yield _asked(verb, {**values, "backlog_size": not values["get_subscription_backlog_size"]}, around)


def _partitioned_lookup(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    found = printing.parsed(around.ask(verb.request(values)).body) or {}
    topic = topic_of(values["topic"])
    if not found.get("partitions"):
        raise NotFoundError(f"Topic {topic} is not a partitioned topic")
    brokers = {}
    for index in range(found["partitions"]):
        part = topic.partition_name(index)
        answer = around.ask(Request("GET", target("/lookup/v2/topic/{topic}", {"topic": str(part)})))
        brokers[str(part)] = (printing.parsed(answer.body) or {}).get("brokerUrl")
    if not values["sort_by_broker"]:
        yield printing.table(brokers)
        return
    served: dict[str, list[str]] = {}
    for part_name, url in brokers.items():
        served.setdefault(str(url), []).append(part_name)
    yield printing.table(served)


def _expire(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    if values["expireTime"] is not None:
        verb = replace(verb, route=verb.route + "/{expireTime}", body=None)
    yield _asked(verb, values, around)


def _reset(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    if values["messageId"] is None:
        values = {**values, "timestamp": around.now_ms() - values["time"]}
        verb = replace(verb, route=verb.route + "/{timestamp}", body=None)
    yield _asked(verb, values, around)


def _analyze(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    if values["position"] is not None:
        place = values["position"]
        verb = replace(verb, body=lambda _: {**place, "batchIndex": -1, "excluded": False})
    yield _asked(verb, values, around)


def _compaction_status(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    wait = bool(values["wait_complete"])
    status = printing.parsed(around.ask(verb.request(values)).body) or {}
    while wait and status.get("status") == "RUNNING":
        time.sleep(1)
        status = printing.parsed(around.ask(verb.request(values)).body) or {}
    if status.get("status") == "ERROR":
        yield "Error in compaction\n"
        raise BrokerFailedError(f"Error compacting: {status.get('lastError')}")
    yield {
        "NOT_RUN": f"Compaction has not been run for {values['full_topic']} since broker startup\n",
        "RUNNING": "Compaction is currently running\n",
    }.get(str(status.get("status")), "Compaction was a success\n")


def _peek(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    """Peek entry by entry, until `count` messages are printed or the subscription has no further entry."""
    seen, position = 0, 1
    while seen < values["count"]:
        try:
            answer = around.ask(verb.request({**values, "position": position}))
        except NotFoundError:
            if seen == 0:
                raise
            return
        for text in message_text(answer.body, answer.headers):
            if seen < values["count"]:
                yield (SEPARATOR if seen else "") + text
                seen += 1
        position += 1


def _message(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    answer = around.ask(verb.request(values))
    for index, text in enumerate(message_text(answer.body, answer.headers)):
        yield (SEPARATOR if index else "") + text


def _of_subscription(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    if values["subscription"] is not None:
        verb = replace(verb, route=verb.route.replace("/subscriptionDispatchRate", "/{subscription}/dispatchRate"))
    yield _asked(verb, values, around)


def _unload(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    if values["bundle"] is not None:
        route = "namespaces/{namespace}/{bundle}/unload?destinationBroker={destinationBroker}"
        verb = replace(verb, route=route)
    yield _asked(verb, values, around)


def _split(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    yield _asked(verb, {**values, "bundle": values["bundle"] or values["bundle_type"]}, around)


def _clear_backlog(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    question = f"Acknowledge every message of every topic in {values['namespace']}?"
    if not values["force"] and not around.confirm(question):
        raise CommandLineError("nothing was done: give --force, or answer y")
    route = "namespaces/{namespace}" + ("/{bundle}" if values["bundle"] else "") + "/clearBacklog"
    yield _asked(replace(verb, route=route + ("/{sub}" if values["sub"] else "")), values, around)


def _unsubscribe(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    if values["bundle"] is not None:
        verb = replace(verb, route="namespaces/{namespace}/{bundle}/unsubscribe/{sub}")
    yield _asked(verb, values, around)


def _create_tenant(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    clusters = values["allowed_clusters"]
    if not clusters:
        clusters = printing.parsed(around.ask(Request("GET", "/admin/v2/clusters")).body) or []
    body = {"adminRoles": values["admin_roles"] or [], "allowedClusters": clusters}
    yield _asked(replace(verb, body=lambda _: body), values, around)


def _update_tenant(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    roles, clusters = values["admin_roles"], values["allowed_clusters"]
    if roles is None or clusters is None:
        now = printing.parsed(around.ask(Request("GET", target("tenants/{tenant}", values))).body) or {}
        roles = now.get("adminRoles", []) if roles is None else roles
        clusters = now.get("allowedClusters", []) if clusters is None else clusters
    body = {"adminRoles": roles, "allowedClusters": clusters}
    yield _asked(replace(verb, body=lambda _: body), values, around)


def _list_clusters(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    names = printing.parsed(around.ask(verb.request(values)).body) or []
    own = None
    if values["current"]:
        runtime = around.ask(Request("GET", "/admin/v2/brokers/configuration/runtime"))
        own = (printing.parsed(runtime.body) or {}).get("clusterName")
    yield printing.lines(f"{name}(*)" if name == own else name for name in names)


def _indented(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    found = printing.parsed(around.ask(verb.request(values)).body)
    yield (printing.gson(found, 4) if values["indent"] else printing.compact(found)) + "\n"


def _metrics(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    for each in printing.parsed(around.ask(verb.request(values)).body) or []:
        yield (printing.gson(each, 4) if values["indent"] else printing.compact(each)) + "\n"


def _schema(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    name = topic_of(values["topic"]).local_name
    if values["all_version"]:
        verb = replace(verb, route=verb.route + "s")
        found = printing.parsed(around.ask(verb.request(values)).body) or {}
        for each in found.get("getSchemaResponses", ()):
            yield printing.jackson(_schema_info(name, each) | {"version": each.get("version")}) + "\n"
        return
    each = printing.parsed(around.ask(verb.request(values)).body) or {}
    yield printing.gson({"version": each.get("version"), "schemaInfo": _schema_info(name, each)}) + "\n"


def _schema_info(name: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the SchemaInfo of an answer, with the definition parsed if it is JSON."""
    definition = answer.get("data", "")
    with contextlib.suppress(ValueError):
        definition = json.loads(definition)
    return {
        "name": name,
        "schema": definition,
        "type": answer.get("type"),
        "timestamp": answer.get("timestamp"),
        "properties": answer.get("properties", {}),
    }


STEPS: Final[dict[str, Step]] = {
    "both_domains": _both_domains,
    "stats": _stats,
    "partitioned_lookup": _partitioned_lookup,
    "expire": _expire,
    "reset": _reset,
    "analyze": _analyze,
    "compaction_status": _compaction_status,
    "peek": _peek,
    "message": _message,
    "of_subscription": _of_subscription,
    "unload": _unload,
    "split": _split,
    "clear_backlog": _clear_backlog,
    "unsubscribe": _unsubscribe,
    "create_tenant": _create_tenant,
    "update_tenant": _update_tenant,
    "list_clusters": _list_clusters,
    "indented": _indented,
    "metrics": _metrics,
    "schema": _schema,
}


def carried_out(verb: Verb, values: dict[str, Any], around: Surroundings) -> Iterator[str]:
    """Run the verb; yield the pieces of its output. Raises: CliError."""
    values = dict(values)
    if "topic" in values:
        values["full_topic"] = str(topic_of(values["topic"]))
    if "namespace" in values:
        namespace_path(values["namespace"])
    if verb.steps is None:
        yield _asked(verb, values, around)
        return
    if verb.check is not None and (problem := verb.check(values)):
        raise CommandLineError(problem)
    yield from STEPS[verb.steps](verb, values, around)
