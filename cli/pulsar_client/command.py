"""`magnetar client produce|consume|read`: the commands and flags of Apache Pulsar's pulsar-client."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from magnetar.cli.contexts import Context
from magnetar.cli.errors import CliError, CommandLineError
from magnetar.cli.output import for_stream
from magnetar.cli.pulsar_client.key_values import ENCODINGS, KeyValueSchema
from magnetar.cli.pulsar_client.payloads import MAX_MESSAGES, ValueSchema, files_of, properties_of, texts_of
from magnetar.cli.pulsar_client.printing import BOUNDARY, message_id, message_line
from magnetar.cli.session import cli_error
from magnetar.cli.target import Target, chosen_target, with_auth
from magnetar.client.consumers import TopicConsumer, Wanted
from magnetar.client.encryption import Decryption, Encryption, key_at
from magnetar.client.errors import ClientError
from magnetar.client.sending import Outgoing, TopicSender
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

HELP: Final = {"help_option_names": ["-h", "--help"]}
EXIT_FAILED: Final = 1
_NEVER_MS: Final = (1 << 63) - 1
_TYPES: Final = {name.lower(): number for name, number in pb.CommandSubscribe.SubType.items()}
_POSITION: Final = re.compile(r"(-?\d+):(-?\d+)(?::-?\d+)*")
UNSUPPORTED: Final = {
    "--proxy-url": "connect to the broker itself",
    "--proxy-protocol": "connect to the broker itself",
}
"""Refused flags of pulsar-client -> the alternative."""
NO_EFFECT: Final = {
    "--disable-batching": "each message is a separate entry",
    "--chunking": "a message larger than maxMessageSize is refused",
    "--disable-replication": "there is no replication",
    "--queue-size": "messages are requested in advance",
    "--max_chunked_msg": "ten at a time",
    "--auto_ack_chunk_q_full": "the oldest is given up",
    "--pool-messages": "a matter of the JVM",
    "--memory-limit": "at most 500 messages wait for their receipts",
    "--listener-name": "the broker's first advertised listener is taken",
    "--schema-type": "contents are shown as texts",
}
"""Flags without effect -> the reason."""


def _refused(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:  # noqa: ARG001 - click's signature
    if value:
        name = max(parameter.opts, key=len)
        raise click.UsageError(f"{name} is not supported: {UNSUPPORTED[name]}")


def _flags(*rows: tuple[str, bool]) -> Callable[[Any], Any]:
    """Options without effect or refused, each `("-x --long", takes a value)`."""

    def add(command: Any) -> Any:
        for names, takes in reversed(rows):
            spelled = names.split()
            long = max(spelled, key=len)
            reason = UNSUPPORTED.get(long)
            callback = _refused if reason is not None else None
            text = f"not supported: {reason}" if reason is not None else f"without effect: {NO_EFFECT[long]}"
            extra: dict[str, Any] = {} if takes else {"is_flag": True}
            command = click.option(*spelled, callback=callback, expose_value=False, help=text, **extra)(command)
        return command

    return add


@click.group("client", context_settings=HELP, no_args_is_help=True)
@click.option("--url", metavar="URL", help="service URL of the broker")
@click.option("--context", metavar="NAME", help="a context of `magnetar context`")
@click.option("--token", metavar="TOKEN", help="file:PATH, env:NAME or the token")
@click.option("--auth-plugin", metavar="CLASS", help="Pulsar's names of token, basic and TLS authentication")
@click.option("--auth-params", metavar="PARAMS", help="their parameters")
@click.option(
    "--tlsTrustCertsFilePath", "--tls-trust-certs", "tls_trust_certs", metavar="FILE", help="authorities to trust"
)
@_flags(("--listener-name", True), ("--proxy-url", True), ("--proxy-protocol", True), ("-ml --memory-limit", True))
def client(**_: Any) -> None:
    """The commands and flags of Apache Pulsar's pulsar-client, against any broker."""


@client.command(context_settings=HELP)
@click.argument("topic")
@click.option("-m", "--messages", multiple=True, help="texts to send, split at the separator; repeatable")
@click.option("-f", "--files", multiple=True, help="files to send, one message each, commas between")
@click.option("-n", "--num-produce", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("-r", "--rate", type=float, default=0, help="messages a second; 0 for as fast as possible")
@click.option("-s", "--separator", default=",", show_default=True)
@click.option("-p", "--properties", multiple=True, metavar="K=V,...")
@click.option("-k", "--key", help="key of every message")
@click.option("-vs", "--value-schema", default="bytes", show_default=True, help="bytes, string, json:DEF or avro:DEF")
@click.option("-ks", "--key-schema", default="string", show_default=True, help="the same, of keys")
@click.option("-kvet", "--key-value-encoding-type", type=click.Choice(ENCODINGS), help="send keys and values")
@click.option("-kvk", "--key-value-key", help="the key of every such message")
@click.option("-kvkf", "--key-value-key-file", metavar="FILE", help="a file with that key")
@click.option("-ekn", "--encryption-key-name", metavar="NAME", help="by which readers find their key")
@click.option(
    "-ekv", "--encryption-key-value", metavar="URI", help="public RSA key: file:///FILE or data:...;base64,..."
)
@_flags(
    ("-db --disable-batching", False),
    ("-c --chunking", False),
    ("-dr --disable-replication", False),
)
def produce(topic: str, **given: Any) -> None:
    """Send messages to a topic."""
    if not given["messages"] and not given["files"]:
        raise click.UsageError("Please supply message content with either --messages or --files")
    if bool(given["encryption_key_name"]) != bool(given["encryption_key_value"]):
        raise click.UsageError("--encryption-key-name and --encryption-key-value go together")

    async def work(target: Target) -> None:
        schema, outgoing = _outgoing(given)
        total = len(outgoing) * given["num_produce"]
        if total > MAX_MESSAGES:
            raise CommandLineError(f"{total} messages: at most {MAX_MESSAGES}; `magnetar produce` sends more")
        encryption = None
        if given["encryption_key_name"]:
            encryption = Encryption(given["encryption_key_name"], key_at(given["encryption_key_value"]))
        sender = TopicSender(target.address(), target.credentials, topic, schema=schema, encryption=encryption)
        await _send_all(sender, outgoing * given["num_produce"], given["rate"])
        click.echo(f"{total} messages successfully produced")

    _run(work)


def _outgoing(given: dict[str, Any]) -> tuple[pb.Schema | None, list[Outgoing]]:
    """Return the schema, and each message once. Raises: CommandLineError, FileError, ConfigurationError."""
    texts = [text.encode() for text in texts_of(given["messages"], given["separator"])]
    contents = [*texts, *files_of(given["files"])]
    properties = properties_of(given["properties"])
    encoding = given["key_value_encoding_type"]
    if encoding is None:
        schema = ValueSchema(given["value_schema"])
        return schema.schema, [Outgoing(schema.encode(each), given["key"], properties) for each in contents]
    key_value = KeyValueSchema(given["key_schema"], given["value_schema"], encoding)
    text = given["key_value_key"] if given["key_value_key"] is not None else given["key"]
    key = None if text is None else text.encode()
    if given["key_value_key_file"]:
        (key,) = files_of([given["key_value_key_file"]])
    return key_value.schema, [key_value.outgoing(key, each, properties) for each in contents]


async def _send_all(opened: TopicSender, outgoing: list[Outgoing], rate: float) -> None:
    async with opened as sender:
        receipts = []
        for each in outgoing:
            receipts.append(await sender.send(each))
            if rate > 0:
                await receipts[-1]
                await asyncio.sleep(1 / rate)
        await asyncio.gather(*receipts)


_SHOWN: Final = (
    click.option("-n", "--num-messages", type=click.IntRange(min=0), default=1, show_default=True, help="0: for ever"),
    click.option("--hex", "as_hex", is_flag=True, help="contents as a hex dump"),
    click.option("--hide-content", is_flag=True, help="print no messages"),
    click.option("-r", "--rate", type=float, default=0, help="messages a second; 0 for as fast as possible"),
    click.option("-mp", "--print-metadata", is_flag=True),
    click.option("-ekv", "--encryption-key-value", metavar="URI", help="private RSA key: file:///FILE or data:..."),
    click.option(
        "-ca",
        "--crypto-failure-action",
        type=click.Choice(["FAIL", "DISCARD", "CONSUME"], case_sensitive=False),
        default="FAIL",
        show_default=True,
        help="of a message that cannot be decrypted: end, skip it, or print it as it is stored",
    ),
    _flags(
        ("-q --queue-size", True),
        ("-mc --max_chunked_msg", True),
        ("-ac --auto_ack_chunk_q_full", False),
        ("-st --schema-type", True),
        ("-pm --pool-messages", True),
    ),
)


def _shown(command: Any) -> Any:
    for each in reversed(_SHOWN):
        command = each(command)
    return command


@client.command(context_settings=HELP)
@click.argument("topic")
@click.option("-s", "--subscription-name", required=True)
@click.option(
    "-t",
    "--subscription-type",
    type=click.Choice(list(pb.CommandSubscribe.SubType.keys()), case_sensitive=False),
    default="Exclusive",
    show_default=True,
)
@click.option(
    "-m",
    "--subscription-mode",
    type=click.Choice(["Durable", "NonDurable"], case_sensitive=False),
    default="Durable",
    show_default=True,
)
@click.option(
    "-p",
    "--subscription-position",
    type=click.Choice(["Latest", "Earliest"], case_sensitive=False),
    default="Latest",
    show_default=True,
)
@click.option("-rs", "--replicated", is_flag=True)
@click.option("--regex", "is_pattern", is_flag=True, help="TOPIC is a regular expression for names of topics")
@click.option(
    "-stp",
    "--start-timestamp",
    type=click.IntRange(min=0),
    default=0,
    metavar="MS",
    help="move the subscription to the first message published then or later",
)
@click.option(
    "-etp",
    "--end-timestamp",
    type=click.IntRange(min=0),
    default=_NEVER_MS,
    metavar="MS",
    help="end before the first message published later",
)
@_shown
def consume(topic: str, **given: Any) -> None:
    """Take messages of a subscription, print and acknowledge them."""
    if given["end_timestamp"] < given["start_timestamp"]:
        raise click.UsageError("end timestamp should larger than start timestamp.")
    wanted = Wanted(
        topic,
        given["subscription_name"],
        kind=_TYPES[given["subscription_type"].lower()],
        durable=given["subscription_mode"].lower() == "durable",
        earliest=given["subscription_position"].lower() == "earliest",
        replicated=given["replicated"],
        is_pattern=given["is_pattern"],
        start_time_ms=given["start_timestamp"],
        rollback_s=_seconds_since(given["start_timestamp"]),
    )

    async def work(target: Target) -> None:
        count = await _take(target, wanted, given, acknowledge=True)
        click.echo(f"{count} messages successfully consumed")

    _run(work)


@client.command(context_settings=HELP)
@click.argument("topic")
@click.option("-m", "--start-message-id", default="latest", show_default=True, help="latest, earliest or LEDGER:ENTRY")
@click.option("-i", "--start-message-id-inclusive", is_flag=True, help="that message too")
@_shown
def read(topic: str, **given: Any) -> None:
    """Read messages from a position on, without a subscription."""
    text = given["start_message_id"]
    found = _POSITION.fullmatch(text)
    if found is None and text not in ("latest", "earliest"):
        raise click.UsageError(f"--start-message-id {text}: give latest, earliest or LEDGER:ENTRY")
    inclusive = given["start_message_id_inclusive"]
    start = (int(found[1]), int(found[2])) if found is not None else None
    if start is not None and not all(-1 <= part < 2**63 for part in start):
        raise click.UsageError(f"--start-message-id {text}: ledger and entry lie between -1 and {2**63 - 1}")
    if start is not None and inclusive:
        start = (start[0], start[1] - 1)  # the broker begins behind the position in SUBSCRIBE
    wanted = Wanted(
        topic,
        f"reader-{os.urandom(5).hex()}",
        durable=False,
        earliest=text == "earliest",
        start=start,
    )

    async def work(target: Target) -> None:
        count = await _take(target, wanted, given, acknowledge=False)
        click.echo(f"{count} messages successfully read")

    _run(work)


def _seconds_since(time_ms: int) -> int:
    """Return how many seconds back a non-durable subscription begins; 0 without a time."""
    return max(1, math.ceil(time.time() - time_ms / 1000) + 1) if time_ms else 0


async def _take(target: Target, wanted: Wanted, given: dict[str, Any], *, acknowledge: bool) -> int:
    """Print --num-messages messages, or with 0 all messages, up to the first message published after --end-timestamp.

    Returns the number of printed messages.
    """
    taken, most, end_ms = 0, given["num_messages"], given.get("end_timestamp", _NEVER_MS)
    place, action = given["encryption_key_value"], given["crypto_failure_action"].upper()
    decrypting = Decryption(key_at(place)) if place else None
    async with TopicConsumer(target.address(), target.credentials, wanted, decrypting=decrypting) as consumer:
        while most == 0 or taken < most:
            message = await consumer.receive()
            if message.publish_time_ms > end_ms:
                break
            if message.encrypted and action != "CONSUME":
                if action == "FAIL":
                    raise CliError(f"message {message_id(message)}: {message.problem}; see --crypto-failure-action")
                await consumer.acknowledge(message)
                continue
            if not given["hide_content"]:
                line = message_line(message, as_hex=given["as_hex"], with_metadata=given["print_metadata"])
                click.echo(for_stream(f"{BOUNDARY}\n{line}", sys.stdout))
            if acknowledge:
                await consumer.acknowledge(message)
            taken += 1
            if given["rate"] > 0:
                await asyncio.sleep(1 / given["rate"])
    return taken


def _run(work: Callable[[Target], Coroutine[Any, Any, None]]) -> None:
    options: dict[str, Any] = click.get_current_context().find_root().params
    try:
        flags = Context(service_url=options["url"], tls_trust_certs=options["tls_trust_certs"])
        flags = with_auth(flags, options["auth_plugin"], options["auth_params"])
        if options["token"] is not None:
            flags = dataclasses.replace(flags, token=options["token"])
        asyncio.run(work(chosen_target(flags, options["context"], os.environ)))
    except CommandLineError as error:
        raise click.UsageError(str(error)) from None
    except (CliError, ClientError) as error:
        shown = cli_error(error) if isinstance(error, ClientError) else error
        click.echo(for_stream(f"Error: {shown}", sys.stderr), err=True)
        raise click.exceptions.Exit(EXIT_FAILED) from None
