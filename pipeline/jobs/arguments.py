"""Options that several jobs share, and their evaluation."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.pipeline.lake.committer import FORMATS, open_table
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.pipeline.lake.committer import Committer


_OF_QUERIES = (
    *("columnStyle", "includeHeaders", "includeMarkers", "metadataOnly", "pushdown"),
    *("predefinedSubscription", "subscription"),
    *("maxEntriesPerTrigger", "maxMessagesPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger"),
)
"""Options of the source that have no effect in a job; refused, because a job would ignore them silently."""


def not_empty(text: str) -> str:
    """Return the path or URI. An empty text, such as an unset variable of a shell, would be this directory."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return text


def path(text: str) -> Path:
    """Convert an argument to a path."""
    return Path(not_empty(text))


def output_path(text: str) -> Path:
    """Convert an argument to the path of a file that the job writes at its end; the directory must exist before."""
    found = path(text)
    if not found.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {found.parent}")
    if found.is_dir():
        raise argparse.ArgumentTypeError(f"{found} is a directory; name a file")
    return found


def whole_number(least: int) -> Callable[[str], int]:
    """Return a converter to an integer of at least `least`."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return number

    return convert


def seconds(text: str) -> float:
    """Convert an argument to a number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return number


def add_source(parser: argparse.ArgumentParser, *, topics_required: bool = True) -> None:
    """Add the arguments of the topics to read, the range, and the options of the source."""
    source = parser.add_argument_group("source")
    which = source.add_mutually_exclusive_group(required=topics_required)
    which.add_argument("--topic", metavar="NAMES", help="topics, with commas between them; partitions included")
    which.add_argument("--topics-pattern", metavar="REGEX", help="tenant/namespace/REGEX for whole names")
    add_connection(source)
    source.add_argument(
        "--storage",
        type=not_empty,
        metavar="DIR",
        help="data directory of the broker, read where it can be; the rest through the broker",
    )
    source.add_argument(
        "--start",
        metavar="PLACE",
        help="earliest (default), latest, a time, or JSON by topic; export: of topics that the table does not know",
    )
    source.add_argument("--columns", metavar="NAMES", help="only these columns, with commas between them")
    source.add_argument(
        "--on-corrupt",
        choices=["fail", "quarantine"],
        default="fail",
        help="entries that cannot be read: stop (default), or leave out and report each with its position",
    )
    source.add_argument(
        "--skip-lost",
        action="store_true",
        help="pass over messages that the broker has trimmed before they were read; they are reported",
    )


def add_connection(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Add the arguments of the broker's address."""
    group.add_argument("--service-url", metavar="URL", help="default: pulsar://127.0.0.1:6650")
    group.add_argument("--admin-url", metavar="URL", help="default: port 8080 (8443 with TLS) of the broker")
    group.add_argument("--token", metavar="TOKEN", help="a token, file:PATH or env:NAME")
    group.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any further option of the Spark source; repeatable",
    )


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the table: its URI, format and options."""
    table = parser.add_argument_group("table")
    table.add_argument("--table", type=not_empty, required=True, metavar="URI", help="directory or URI of the table")
    table.add_argument("--format", choices=FORMATS, default="delta", help="default: %(default)s")
    table.add_argument(
        "--table-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Delta: a storage option; Iceberg: a property of the catalog; repeatable",
    )


def key_values(given: list[str], option: str) -> dict[str, str]:
    """KEY=VALUE pairs. Raises: OptionError."""
    found = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise OptionError(f"{option} {each!r}: KEY=VALUE is expected")
        found[key] = value
    return found


def connection_options(options: argparse.Namespace) -> dict[str, str]:
    """The options of the connection, by the names of the Spark source. Raises: OptionError."""
    named = {"service.url": options.service_url, "admin.url": options.admin_url, "token": options.token}
    return {key: value for key, value in named.items() if value} | key_values(options.option, "-o")


def source_options(options: argparse.Namespace) -> SourceOptions:
    """Raises: OptionError."""
    given = connection_options(options)
    if options.topics_pattern:
        given["topicsPattern"] = options.topics_pattern
    else:
        given["topics"] = options.topic
    if options.storage:
        given["storage.url"] = options.storage
    if options.start:
        given["startingOffsets"] = options.start
    if options.columns:
        given["columns"] = options.columns
    meaningless = {name.lower() for name in _OF_QUERIES}
    for name in given:
        if name.lower() in meaningless:
            raise OptionError(f"-o {name} is for queries of Spark; a job has no use for it")
    given["onCorrupt"] = options.on_corrupt
    given["failOnDataLoss"] = "false" if options.skip_lost else given.get("failOnDataLoss", "true")
    return SourceOptions.parse(given)


def table(options: argparse.Namespace) -> Committer:
    """Raises: OptionError, NotATableError."""
    return open_table(options.format, options.table, key_values(options.table_option, "--table-option"))
