"""The options of `magnetar kafka import`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from magnetar.client.environment import DEFAULT_SERVICE_URL, VARIABLES, from_environment
from magnetar.converters.kafka.transactions import Isolation
from magnetar.importing.protection import SUBSCRIPTION, Protect


def _path(text: str) -> Path:
    """Convert an argument to a path. An empty text, such as an unset variable of a shell, would be this directory."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:  # also "nan"
        raise argparse.ArgumentTypeError(f"{text} is no time to wait: give 0 or more seconds")
    return seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "files",
        nargs="+",
        type=_path,
        metavar="FILE",
        help="a Kafka log segment (.log), a file of concatenated record batches, or a directory of segments",
    )
    parser.add_argument(
        "--topic", required=True, help="where to; for a partitioned topic one partition (NAME-partition-0)"
    )
    parser.add_argument("--dry-run", action="store_true", help="read and check the files, store nothing, ask no broker")
    parser.add_argument(
        "--on-damage",
        choices=["stop", "skip"],
        default="stop",
        help="at a wrong checksum, a broken frame or a torn tail: stop there (default), or leave it out and go on",
    )
    parser.add_argument(
        "--check-records", action="store_true", help="decode every record first, not only headers and checksums"
    )
    parser.add_argument(
        "--sequence-ids",
        choices=["auto", "offset", "position"],
        default="auto",
        help="unit of the file's progress; auto: offsets for Kafka's segment names, else positions. "
        "Never change it between runs of one import",
    )
    parser.add_argument(
        "--isolation-level",
        choices=[each.value for each in Isolation],
        default=Isolation.READ_COMMITTED.value,
        help="read_committed (default): omit records of aborted Kafka transactions, and stop at the first open "
        "transaction; read_uncommitted: store every record",
    )
    parser.add_argument(
        "--open-transactions",
        choices=["stop", "skip"],
        default="stop",
        help="at a transaction whose end the files do not hold: stop there with exit code 75 (default), or leave its "
        "records out and go on",
    )
    parser.add_argument("--label", help="the file's identity, when it moves between runs (default: DIRECTORY/NAME)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress, only warnings and errors")
    _add_broker_arguments(parser)


def _add_broker_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(VARIABLES.values())
    broker = parser.add_argument_group("broker", f"Defaults come from the environment: {names}.")
    found = from_environment(os.environ)
    broker.set_defaults(**found | {"service_url": found["service_url"] or DEFAULT_SERVICE_URL})
    broker.add_argument(
        "--service-url", "--url", metavar="URL", help="default: MAGNETAR_URL, else " + DEFAULT_SERVICE_URL
    )
    broker.add_argument(
        "--admin-url",
        metavar="URL",
        help="REST address, for the deduplication of the topic; default: MAGNETAR_ADMIN_URL, else port 8080 (8443) of "
        "the service URL",
    )
    broker.add_argument(
        "--enable-deduplication", action="store_true", help="switch deduplication on for this topic where it is off"
    )
    broker.add_argument(
        "--assume-deduplication", action="store_true", help="do not ask the REST address; the first entry proves it"
    )
    broker.add_argument(
        "--first-import",
        action="store_true",
        help="the files were never imported into this topic: do not search the topic for entries of a forgotten run",
    )
    broker.add_argument(
        "--protect",
        choices=[each.value for each in Protect],
        default=Protect.SUBSCRIPTION.value,
        help="for a topic with no durable subscription and no unlimited retention, whose entries the broker would "
        "trim: create a subscription at the first entry (default), set the retention of the topic to no limits, or "
        "only warn (none)",
    )
    broker.add_argument(
        "--subscription",
        default=SUBSCRIPTION,
        metavar="NAME",
        help="name of the subscription that --protect creates (default: %(default)s)",
    )
    broker.add_argument(
        "--retry-seconds", type=_seconds, default=120.0, metavar="S", help="wait so long for a broker (default: 120)"
    )
    broker.add_argument("--token", metavar="TOKEN", help="a token, file:PATH or env:NAME")
    broker.add_argument(
        "--tls-trust-certs", metavar="FILE", help="authorities to trust, for pulsar+ssl:// and https://"
    )
    broker.add_argument("--tls-cert", metavar="FILE", help="certificate to show")
    broker.add_argument("--tls-key", metavar="FILE", help="its key")
    broker.add_argument("--tls-allow-insecure", action="store_true", help="accept any certificate")
    broker.add_argument(
        "--tls-no-hostname-verification", action="store_true", help="accept a certificate for another host"
    )
