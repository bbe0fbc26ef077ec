"""`topics`, `subscriptions`, `namespaces`, `tenants`, `permissions`, `schemas`: lists, creates and deletes them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from magnetar.cli.errors import CommandLineError, FileError, NotFoundError
from magnetar.cli.pulsar_admin.kinds import converted, duration, position
from magnetar.cli.pulsar_admin.verb import namespace_path, topic_of, topic_path
from magnetar.cli.session import HELP, NamedPath, Session, with_broker

if TYPE_CHECKING:
    from collections.abc import Iterable

ADMIN = "/admin/v2/"
_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


def group(name: str, text: str) -> click.Group:
    """A group of commands."""
    return click.Group(name, help=text, context_settings=HELP, no_args_is_help=True)


topics = group("topics", "Topics: list, create, look at, delete.")
subscriptions = group("subscriptions", "Subscriptions of a topic: list, create, move, delete.")
namespaces = group("namespaces", "Namespaces: list, create, look at, delete.")
tenants = group("tenants", "Tenants: list, create, delete.")
permissions = group("permissions", "Roles that may produce and consume.")
schemas = group("schemas", "Schemas of topics.")


def admin_path(topic: str) -> str:
    """Return the path of a topic in the admin API."""
    return ADMIN + topic_path(topic)


def topic_names(session: Session, namespace: str, *, system: bool = False) -> list[str]:
    """Partitioned topics and topics without partitions; single partitions are left out."""
    path = namespace_path(namespace)
    flag = f"?includeSystemTopic={'true' if system else 'false'}"
    names: set[str] = set()
    for domain in ("persistent", "non-persistent"):
        names |= {str(topic_of(each).base) for each in session.web.get(f"{ADMIN}{domain}/{path}{flag}") or ()}
        names |= set(session.web.get(f"{ADMIN}{domain}/{path}/partitioned{flag}") or ())
    return sorted(names)


def stats_of(session: Session, topic: str) -> tuple[int, dict[str, Any]]:
    """Number of partitions and the (summed) statistics of a topic."""
    base = admin_path(topic)
    count = int((session.web.get(f"{base}/partitions") or {}).get("partitions", 0))
    kind = "partitioned-stats?perPartition=false" if count else "stats"
    return count, session.web.get(f"{base}/{kind}") or {}


# --- topics ---------------------------------------------------------------------------------------------------------


@topics.command("list")
@click.argument("namespace", default="public/default")
@click.option("--system", is_flag=True, help="system topics too")
@with_broker
def list_topics(session: Session, namespace: str, system: bool) -> None:
    """Topics of NAMESPACE (public/default), with their figures."""
    rows = topic_rows(session, topic_names(session, namespace, system=system))
    session.out.table(TOPIC_COLUMNS, rows, empty=f"no topics in {namespace}")


TOPIC_COLUMNS = ("TOPIC", "PARTITIONS", "MSG/S IN", "MSG/S OUT", "PRODUCERS", "SUBSCRIPTIONS", "BACKLOG", "BYTES")


def topic_rows(session: Session, names: Iterable[str]) -> list[tuple[Any, ...]]:
    """Return a row of TOPIC_COLUMNS for each topic, except topics that were deleted since the names were listed."""
    rows = []
    for name in names:
        try:
            count, found = stats_of(session, name)
        except NotFoundError:
            continue
        rows.append(topic_row(name, count, found))
    return rows


def topic_row(name: str, count: int, found: dict[str, Any]) -> tuple[Any, ...]:
    """A row of TOPIC_COLUMNS."""
    subscribed = found.get("subscriptions", {})
    return (
        name,
        count,
        float(found.get("msgRateIn", 0)),
        float(found.get("msgRateOut", 0)),
        len(found.get("publishers", ())),
        len(subscribed),
        sum(int(each.get("msgBacklog", 0)) for each in subscribed.values()),
        int(found.get("storageSize", 0)),
    )


@topics.command("create")
@click.argument("topic")
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="make it a partitioned topic")
@with_broker
def create_topic(session: Session, topic: str, partitions: int | None) -> None:
    """Create TOPIC."""
    if partitions is None:
        session.web.call("PUT", admin_path(topic), {})
    else:
        session.web.call("PUT", f"{admin_path(topic)}/partitions", partitions)
    session.out.done(f"created {topic_of(topic)}", topic=str(topic_of(topic)), partitions=partitions or 0)


@topics.command("delete")
@click.argument("topic")
@click.option("-f", "--force", is_flag=True, help="although producers and consumers are connected")
@with_broker
def delete_topic(session: Session, topic: str, force: bool) -> None:
    """Delete TOPIC with its messages, partitions and subscriptions."""
    base = admin_path(topic)
    partitioned = (session.web.get(f"{base}/partitions") or {}).get("partitions", 0)
    session.web.call("DELETE", f"{base}{'/partitions' if partitioned else ''}?force={'true' if force else 'false'}")
    session.out.done(f"deleted {topic_of(topic)}", topic=str(topic_of(topic)))


@topics.command("show")
@click.argument("topic")
@with_broker
def show_topic(session: Session, topic: str) -> None:
    """Figures of TOPIC: rates, storage, producers, subscriptions."""
    count, found = stats_of(session, topic)
    if session.out.as_json:
        session.out.value({"topic": str(topic_of(topic)), "partitions": count, "stats": found})
        return
    session.out.fields(
        {
            "topic": str(topic_of(topic)),
            "partitions": count,
            "messages/s in": float(found.get("msgRateIn", 0)),
            "messages/s out": float(found.get("msgRateOut", 0)),
            "messages in": found.get("msgInCounter"),
            "stored bytes": found.get("storageSize"),
            "producers": len(found.get("publishers", ())),
            "deduplication": found.get("deduplicationStatus"),
            "oldest unacknowledged": oldest_unacknowledged(found),
        }
    )
    session.out.text("")
    _show_subscriptions(session, found)


def oldest_unacknowledged(found: dict[str, Any]) -> str | None:
    """Return the age of the oldest unacknowledged message at the broker's last check of backlogs; None without a
    backlog, and before the first check.
    """
    age = int(found.get("oldestBacklogMessageAgeSeconds", 0))
    behind = any(int(each.get("msgBacklog", 0)) for each in found.get("subscriptions", {}).values())
    return f"{age} s" if behind and age > 0 else None


for _name, _method, _path, _text in (
    ("unload", "PUT", "/unload", "Close TOPIC; clients come again and open it anew."),
    ("terminate", "POST", "/terminate", "Let TOPIC take no more messages."),
    ("truncate", "DELETE", "/truncate", "Drop the backlogs of TOPIC and all messages outside its open ledger."),
    (
        "compact",
        "PUT",
        "/compaction",
        "Compact TOPIC: of each key the newest message, for readers that ask for it.",
    ),
):

    def _act(session: Session, topic: str, verb: str = _name, method: str = _method, path: str = _path) -> None:
        answer = session.web.call(method, admin_path(topic) + path)
        session.out.done(f"{verb}: done for {topic_of(topic)}", topic=str(topic_of(topic)), answer=answer)

    topics.add_command(
        click.command(_name, help=_text, context_settings=HELP)(click.argument("topic")(with_broker(_act)))
    )


# --- subscriptions --------------------------------------------------------------------------------------------------

SUBSCRIPTION_COLUMNS = ("SUBSCRIPTION", "TYPE", "CONSUMERS", "BACKLOG", "UNACKED", "MSG/S OUT", "DELAYED")


def _show_subscriptions(session: Session, found: dict[str, Any]) -> None:
    rows = [
        (
            name,
            each.get("type") or None,
            len(each.get("consumers", ())),
            int(each.get("msgBacklog", 0)),
            int(each.get("unackedMessages", 0)),
            float(each.get("msgRateOut", 0)),
            int(each.get("msgDelayed", 0)),
        )
        for name, each in sorted(found.get("subscriptions", {}).items())
    ]
    session.out.table(SUBSCRIPTION_COLUMNS, rows, empty="no subscriptions")


@subscriptions.command("list")
@click.argument("topic")
@with_broker
def list_subscriptions(session: Session, topic: str) -> None:
    """Subscriptions of TOPIC, with backlog and consumers."""
    _show_subscriptions(session, stats_of(session, topic)[1])


@subscriptions.command("create")
@click.argument("topic")
@click.argument("name")
@click.option("--from", "start", default="latest", show_default=True, help="latest, earliest or LEDGER:ENTRY")
@with_broker
def create_subscription(session: Session, topic: str, name: str, start: str) -> None:
    """Create subscription NAME on TOPIC."""
    place = {**position(start), "batchIndex": -1}
    session.web.call("PUT", f"{admin_path(topic)}/subscription/{quote(name, safe='')}", place)
    session.out.done(f"created {name} on {topic_of(topic)}", topic=str(topic_of(topic)), subscription=name)


@subscriptions.command("delete")
@click.argument("topic")
@click.argument("name")
@click.option("-f", "--force", is_flag=True, help="although consumers are connected")
@with_broker
def delete_subscription(session: Session, topic: str, name: str, force: bool) -> None:
    """Delete subscription NAME of TOPIC; its backlog is gone."""
    path = f"{admin_path(topic)}/subscription/{quote(name, safe='')}?force={'true' if force else 'false'}"
    session.web.call("DELETE", path)
    session.out.done(f"deleted {name} of {topic_of(topic)}", topic=str(topic_of(topic)), subscription=name)


@subscriptions.command("reset")
@click.argument("topic")
@click.argument("name")
@click.option("--to", "place", required=True, help="earliest, latest, LEDGER:ENTRY, or how far back: 10m, 2h, 3d")
@with_broker
def reset_subscription(session: Session, topic: str, name: str, place: str) -> None:
    """Move subscription NAME of TOPIC, back or forth."""
    base = f"{admin_path(topic)}/subscription/{quote(name, safe='')}/resetcursor"
    whole = admin_path(topic)
    partitioned = (session.web.get(f"{whole}/partitions") or {}).get("partitions", 0)
    if partitioned and place == "earliest":  # a position is valid in a single partition only
        session.web.call("POST", f"{base}/0")
    elif partitioned and place == "latest":
        session.web.call("POST", f"{whole}/subscription/{quote(name, safe='')}/skip_all")
    elif place in ("earliest", "latest") or ":" in place:
        session.web.call("POST", base, {**position(place), "batchIndex": -1})
    else:
        back_ms = duration(place) * 1000
        session.web.call("POST", f"{base}/{max(0, time.time_ns() // 1_000_000 - back_ms)}")
    session.out.done(f"moved {name} of {topic_of(topic)} to {place}", subscription=name, to=place)


@subscriptions.command("skip")
@click.argument("topic")
@click.argument("name")
@click.argument("count")
@with_broker
def skip_messages(session: Session, topic: str, name: str, count: str) -> None:
    """Acknowledge the next COUNT messages (or `all`) of subscription NAME of TOPIC."""
    if count != "all" and not (_WHOLE_NUMBER.fullmatch(count) and int(count) <= _INT32_MAX):
        raise CommandLineError(f"{count!r}: give a number of messages up to {_INT32_MAX}, or all")
    base = f"{admin_path(topic)}/subscription/{quote(name, safe='')}"
    session.web.call("POST", f"{base}/skip_all" if count == "all" else f"{base}/skip/{count}")
    session.out.done(f"skipped {count} of {name}", subscription=name, skipped=count)


# --- namespaces and tenants -----------------------------------------------------------------------------------------


@namespaces.command("list")
@click.argument("tenant", required=False)
@with_broker
def list_namespaces(session: Session, tenant: str | None) -> None:
    """Namespaces of TENANT, or of all tenants."""
    names = [tenant] if tenant else session.web.get(f"{ADMIN}tenants") or []
    found: Iterable[str] = (
        each for name in names for each in session.web.get(f"{ADMIN}namespaces/{quote(name, safe='')}") or ()
    )
    session.out.table(("NAMESPACE",), [(each,) for each in sorted(found)], empty="no namespaces")


for _verb, _method, _done in (("create", "PUT", "created"), ("delete", "DELETE", "deleted")):

    def _change(session: Session, namespace: str, method: str = _method, done: str = _done) -> None:
        session.web.call(method, f"{ADMIN}namespaces/{namespace_path(namespace)}")
        session.out.done(f"{done} {namespace}", namespace=namespace)

    namespaces.add_command(
        click.command(_verb, help=f"{_verb.capitalize()} NAMESPACE.", context_settings=HELP)(
            click.argument("namespace")(with_broker(_change))
        )
    )


@namespaces.command("show")
@click.argument("namespace")
@with_broker
def show_namespace(session: Session, namespace: str) -> None:
    """Policies of NAMESPACE that are set; `magnetar admin namespaces` changes them."""
    found = session.web.get(f"{ADMIN}namespaces/{namespace_path(namespace)}") or {}
    session.out.fields({name: json.dumps(value) for name, value in found.items() if value not in (None, {}, [], "")})


@tenants.command("list")
@with_broker
def list_tenants(session: Session) -> None:
    """All tenants."""
    rows = []
    for name in sorted(session.web.get(f"{ADMIN}tenants") or ()):
        found = session.web.get(f"{ADMIN}tenants/{quote(name, safe='')}") or {}
        rows.append((name, found.get("adminRoles", []), found.get("allowedClusters", [])))
    session.out.table(("TENANT", "ADMIN ROLES", "CLUSTERS"), rows, empty="no tenants")


@tenants.command("create")
@click.argument("tenant")
@click.option("-r", "--admin-role", "roles", multiple=True, help="a role that administers it; repeatable")
@with_broker
def create_tenant(session: Session, tenant: str, roles: tuple[str, ...]) -> None:
    """Create TENANT for all clusters."""
    clusters = session.web.get(f"{ADMIN}clusters") or []
    body = {"adminRoles": list(roles), "allowedClusters": clusters}
    session.web.call("PUT", f"{ADMIN}tenants/{quote(tenant, safe='')}", body)
    session.out.done(f"created {tenant}", tenant=tenant)


@tenants.command("delete")
@click.argument("tenant")
@with_broker
def delete_tenant(session: Session, tenant: str) -> None:
    """Delete TENANT, which has no namespaces any more."""
    session.web.call("DELETE", f"{ADMIN}tenants/{quote(tenant, safe='')}")
    session.out.done(f"deleted {tenant}", tenant=tenant)


# --- permissions ----------------------------------------------------------------------------------------------------


def _permissions_path(resource: str) -> str:
    """Return the path of the permissions of a namespace (TENANT/NAMESPACE) or of a topic."""
    if "://" not in resource and resource.count("/") == 1:
        return f"{ADMIN}namespaces/{namespace_path(resource)}/permissions"
    return f"{admin_path(resource)}/permissions"


@permissions.command("list")
@click.argument("resource")
@with_broker
def list_permissions(session: Session, resource: str) -> None:
    """Roles and their actions on RESOURCE, a namespace or a topic."""
    found = session.web.get(_permissions_path(resource)) or {}
    session.out.table(("ROLE", "ACTIONS"), sorted(found.items()), empty="no permissions")


@permissions.command("grant")
@click.argument("resource")
@click.argument("role")
@click.argument("actions", nargs=-1, required=True)
@with_broker
def grant(session: Session, resource: str, role: str, actions: tuple[str, ...]) -> None:
    """Let ROLE do ACTIONS (produce, consume, ...) on RESOURCE, a namespace or a topic."""
    granted = converted("actions", list(actions))
    session.web.call("POST", f"{_permissions_path(resource)}/{quote(role, safe='')}", granted)
    session.out.done(f"{role} may {', '.join(granted)} on {resource}", role=role, actions=granted)


@permissions.command("revoke")
@click.argument("resource")
@click.argument("role")
@with_broker
def revoke(session: Session, resource: str, role: str) -> None:
    """Take all actions on RESOURCE from ROLE; its producers and consumers are closed."""
    session.web.call("DELETE", f"{_permissions_path(resource)}/{quote(role, safe='')}")
    session.out.done(f"{role} may do nothing on {resource}", role=role)


# --- schemas --------------------------------------------------------------------------------------------------------


def _schema_path(topic: str) -> str:
    return f"{ADMIN}schemas/{topic_path(topic).partition('/')[2]}"


@schemas.command("show")
@click.argument("topic")
@click.option("--version", type=click.IntRange(0, _INT64_MAX), help="this version; default: the newest")
@with_broker
def show_schema(session: Session, topic: str, version: int | None) -> None:
    """The schema of TOPIC."""
    tail = "" if version is None else f"/{version}"
    found = session.web.get(f"{_schema_path(topic)}/schema{tail}") or {}
    facts = {name: found.get(name) for name in ("version", "type", "timestamp", "data", "properties")}
    if not session.out.as_json:
        facts["data"] = one_line(facts["data"])
    session.out.fields(facts)


@schemas.command("versions")
@click.argument("topic")
@with_broker
def schema_versions(session: Session, topic: str) -> None:
    """All versions of the schema of TOPIC."""
    found = (session.web.get(f"{_schema_path(topic)}/schemas") or {}).get("getSchemaResponses", [])
    rows = [(each.get("version"), each.get("type"), each.get("timestamp"), each.get("data")) for each in found]
    if not session.out.as_json:
        rows = [(*others, one_line(data)) for *others, data in rows]
    session.out.table(("VERSION", "TYPE", "TIMESTAMP", "DEFINITION"), rows, empty="no schema")


def one_line(definition: str | None) -> str | None:
    """The definition of a schema for people: JSON without its line ends, which a table would show escaped."""
    try:
        return json.dumps(json.loads(definition or ""), ensure_ascii=False)
    except ValueError:
        return definition


@schemas.command("upload")
@click.argument("topic")
@click.argument("file", type=NamedPath())
@click.option("--type", "kind", help="type of a FILE that is the definition alone: AVRO, JSON, STRING, ...")
@with_broker
def upload_schema(session: Session, topic: str, file: str, kind: str | None) -> None:
    """Add the schema in FILE to TOPIC: JSON with type, schema and properties, or with --type the definition."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"cannot read {file}: it is no text in UTF-8") from error
    try:
        body = {"type": kind.upper(), "schema": text, "properties": {}} if kind else json.loads(text)
    except ValueError as error:
        raise CommandLineError(f"{file} holds no JSON ({error}): give --type for a definition alone") from error
    answer = session.web.call("POST", f"{_schema_path(topic)}/schema", body)
    session.out.done(f"the schema of {topic_of(topic)} is now as in {file}", topic=str(topic_of(topic)), answer=answer)


@schemas.command("delete")
@click.argument("topic")
@with_broker
def delete_schema(session: Session, topic: str) -> None:
    """Delete the schema of TOPIC with all versions."""
    session.web.call("DELETE", f"{_schema_path(topic)}/schema")
    session.out.done(f"deleted the schema of {topic_of(topic)}", topic=str(topic_of(topic)))
