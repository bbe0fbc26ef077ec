"""`produce`, `consume`, `tail`, `peek`: send and show messages."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from magnetar.cli.commands.resources import admin_path
from magnetar.cli.errors import CommandLineError, FileError, NotFoundError
from magnetar.cli.output import safe_text
from magnetar.cli.patient_reads import next_of
from magnetar.cli.pulsar_admin.kinds import duration
from magnetar.cli.pulsar_admin.message_texts import messages_of
from magnetar.cli.pulsar_admin.verb import topic_of
from magnetar.cli.pulsar_client.payloads import ValueSchema
from magnetar.cli.pulsar_client.printing import message_id
from magnetar.cli.readers import ends_with_reader
from magnetar.cli.session import HELP, NamedPath, Session, with_broker
from magnetar.client.consumers import TopicConsumer, Wanted
from magnetar.client.sending import Outgoing, TopicSender
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.client.messages import ReceivedMessage

_CODECS: Final = {name.lower(): number for name, number in pb.CompressionType.items()}
_TYPES: Final = {name.lower(): number for name, number in pb.CommandSubscribe.SubType.items()}


def shown_message(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message as JSON: key and payload as text, or in Base64 when they are not text."""
    shown: dict[str, Any] = {
        "topic": message.topic,
        "message_id": message_id(message),
        "publish_time": message.publish_time_ms,
        "producer": message.producer_name,
        "sequence_id": message.sequence_id,
    }
    if message.event_time_ms:
        shown["event_time"] = message.event_time_ms
    shown |= key_fields(message.key)
    if message.properties:
        shown["properties"] = message.properties
    if message.redelivery_count:
        shown["redelivery_count"] = message.redelivery_count
    if message.problem is not None:
        shown["problem"] = message.problem
    return shown | payload_fields(message.payload, null=message.null_value)


def key_fields(key: bytes | None) -> dict[str, str]:
    """`key` as text, or `key_base64`; no field without a key."""
    if key is None:
        return {}
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_base64": base64.b64encode(key).decode()}


def payload_fields(payload: bytes, *, null: bool = False) -> dict[str, Any]:
    """`payload` as text, or `payload_base64`; null for a tombstone."""
    if null:
        return {"payload": None}
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise CommandLineError(f"--property {text!r}: give KEY=VALUE")
        found[key] = value
    return found


# --- produce --------------------------------------------------------------------------------------------------------


@click.command(context_settings=HELP)
@click.argument("topic")
@click.argument("messages", nargs=-1)
@click.option("-k", "--key", help="key of every message")
@click.option("-p", "--property", "properties", multiple=True, metavar="KEY=VALUE", help="repeatable")
@click.option("-f", "--file", "files", multiple=True, type=NamedPath(), help="one message of a whole file; repeatable")
@click.option("--schema", default="bytes", show_default=True, help="bytes, string, json:DEFINITION or avro:DEFINITION")
@click.option("--compression", type=click.Choice(list(_CODECS)), default="none", show_default=True)
@click.option("--delay", metavar="DURATION", help="deliver so much later: 30s, 2h")
@click.option("--key-separator", metavar="TEXT", help="a line is KEY, this separator, payload")
@with_broker
def produce(session: Session, topic: str, messages: tuple[str, ...], files: tuple[str, ...], **given: Any) -> None:
    """Send MESSAGES to TOPIC, or without any the lines of standard input.

    Returns when every message is on the broker's disk.
    """
    value = ValueSchema(given["schema"])
    properties = _pairs(given["properties"])
    delay_ms = duration(given["delay"]) * 1000 if given["delay"] else 0

    def outgoing(payload: bytes, key: str | bytes | None) -> Outgoing:
        due = time.time_ns() // 1_000_000 + delay_ms if delay_ms else 0
        return Outgoing(value.encode(payload), key, properties, deliver_at_ms=due)

    source = (outgoing(*each) for each in _payloads(messages, files, given["key"], given["key_separator"]))
    stored = session.run(_send(session, topic, source, value.schema, _CODECS[given["compression"]]))
    session.out.done(f"{stored} message{'' if stored == 1 else 's'} stored", topic=str(topic_of(topic)), stored=stored)


def _payloads(
    messages: tuple[str, ...], files: tuple[str, ...], argument: str | None, separator: str | None
) -> Iterator[tuple[bytes, str | bytes | None]]:
    """Yield payloads with their keys, from arguments, files or standard input."""
    key = None if argument is None else _key(argument.encode("utf-8", "surrogateescape"))
    for text in messages:
        yield text.encode("utf-8", "surrogateescape"), key
    for name in files:
        try:
            yield Path(name).read_bytes(), key
        except OSError as error:
            raise FileError(f"cannot read {name}: {error.strerror}") from error
    if messages or files:
        return
    with open(sys.stdin.fileno(), "rb", closefd=False) as lines:  # the process ends while a read of these lines blocks
        for line in lines:
            payload = line.rstrip(b"\n")
            if separator is not None:
                first, found, rest = payload.partition(separator.encode())
                yield (rest, _key(first)) if found else (payload, key)
            else:
                yield payload, key


def _key(raw: bytes) -> str | bytes:
    """Return a key as text; bytes that are no text stay bytes, so that different keys do not become equal."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


async def _send(session: Session, topic: str, source: Iterator[Outgoing], schema: pb.Schema | None, codec: int) -> int:
    target, stored = session.target, 0
    async with TopicSender(target.address(), target.credentials, topic, schema=schema, codec=codec) as sender:
        pending: set[asyncio.Future[Any]] = set()
        while (outgoing := await next_of(source)) is not None:
            pending.add(await sender.send(outgoing))
            stored += 1
            done = {each for each in pending if each.done()}
            for each in done:
                each.result()
            pending -= done
        await asyncio.gather(*pending)
    return stored


# --- consume and tail -----------------------------------------------------------------------------------------------

_PRINTED = (
    click.option("-n", "--count", type=click.IntRange(min=0), default=0, help="stop after so many; 0: for ever"),
    click.option("-v", "--verbose", is_flag=True, help="position, time and key before each payload"),
    click.option("--timeout", metavar="DURATION", help="stop when nothing comes for so long"),
)


def _printed(command: Any) -> Any:
    for each in reversed(_PRINTED):
        command = each(command)
    return command


@click.command(context_settings=HELP)
@click.argument("topic")
@click.option("-s", "--subscription", required=True, help="name of the subscription, made when it is absent")
@click.option("-t", "--type", "kind", type=click.Choice(list(_TYPES)), default="shared", show_default=True)
@click.option("--from", "start", type=click.Choice(["latest", "earliest"]), default="latest", show_default=True)
@_printed
@with_broker
def consume(session: Session, topic: str, subscription: str, kind: str, start: str, **given: Any) -> None:
    """Take messages of a subscription of TOPIC, print and acknowledge them."""
    wanted = Wanted(str(topic_of(topic)), subscription, kind=_TYPES[kind], earliest=start == "earliest")
    session.run(_print(session, wanted, given, acknowledge=True))


@click.command(context_settings=HELP)
@click.argument("topic")
@click.option("--since", metavar="DURATION", help="begin so far back: 10m, 2h")
@click.option("--from", "start", type=click.Choice(["latest", "earliest"]), default="latest", show_default=True)
@_printed
@with_broker
def tail(session: Session, topic: str, since: str | None, start: str, **given: Any) -> None:
    """Show the messages published to TOPIC, which must exist: without a subscription, without effect on consumers.

    A topic that is not persistent exists while it has clients; the command may be the first of these.
    """
    name = topic_of(topic)
    wanted = Wanted(
        str(name),
        f"magnetar-tail-{os.urandom(5).hex()}",
        durable=False,
        earliest=start == "earliest",
        rollback_s=duration(since) if since else 0,
        creates_topic=not name.persistent,
    )
    session.run(_print(session, wanted, given, acknowledge=False))


async def _print(session: Session, wanted: Wanted, given: dict[str, Any], *, acknowledge: bool) -> None:
    limit, taken = given["count"], 0
    patience = duration(given["timeout"]) if given["timeout"] else None
    async with TopicConsumer(session.target.address(), session.target.credentials, wanted) as consumer:
        while limit == 0 or taken < limit:
            try:
                with ends_with_reader(sys.stdout):
                    message = await asyncio.wait_for(consumer.receive(), patience)
            except TimeoutError:
                return
            if session.out.as_json:
                session.out.line(shown_message(message))
            else:
                session.out.text(_line(message, verbose=given["verbose"]))
            if acknowledge:
                await consumer.acknowledge(message)
            taken += 1


def _payload_text(payload: bytes, *, null: bool) -> str:
    return "(null)" if null else safe_text(payload)


def _line(message: ReceivedMessage, *, verbose: bool) -> str:
    text = _payload_text(message.payload, null=message.null_value)
    if message.problem is not None:
        text = f"({message.problem}) {text}"
    if not verbose:
        return text
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(message.publish_time_ms / 1000))
    key = "-" if message.key is None else safe_text(message.key)
    return f"{message_id(message)}  {moment}.{message.publish_time_ms % 1000:03d}Z  {key}  {text}"


# --- peek -----------------------------------------------------------------------------------------------------------


@click.command(context_settings=HELP)
@click.argument("topic")
@click.argument("subscription")
@click.option("-n", "--count", type=click.IntRange(min=1), default=1, show_default=True)
@with_broker
def peek(session: Session, topic: str, subscription: str, count: int) -> None:
    """Show the next messages of SUBSCRIPTION of TOPIC without taking them."""
    if subscription not in (session.web.get(f"{admin_path(topic)}/subscriptions") or ()):
        # the request for a message would create the subscription, which then keeps all messages
        raise NotFoundError(f"{topic_of(topic)} has no subscription {subscription!r}")
    base = f"{admin_path(topic)}/subscription/{quote(subscription, safe='')}/position"
    shown, position = 0, 1
    while shown < count:
        try:
            body, headers = session.web.fetch("GET", f"{base}/{position}")
        except NotFoundError:
            break
        for each in messages_of(body, headers):
            if shown == count:
                break
            shown += 1
            fields: dict[str, Any] = {"message_id": each.message_id, "publish_time": each.publish_time}
            fields |= key_fields(each.key)
            fields |= {"properties": each.properties} if each.properties else {}
            if session.out.as_json:
                session.out.line(fields | payload_fields(each.payload, null=each.null_value))
            else:
                key = "-" if each.key is None else safe_text(each.key)
                session.out.text(f"{each.message_id}  {key}  {_payload_text(each.payload, null=each.null_value)}")
        position += 1
    if shown == 0 and not session.out.as_json:
        click.echo("no message waits", err=True)
