"""`magnetar pipeline replay` and `magnetar pipeline kafka-backfill`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.converters.kafka.transactions import Isolation
from magnetar.pipeline.connect_options import ConnectOptions
from magnetar.pipeline.jobs.arguments import (
    add_connection,
    add_source,
    connection_options,
    key_values,
    not_empty,
    output_path,
    path,
    source_options,
)
from magnetar.pipeline.jobs.kafka_backfill import BackfillOptions, backfill
from magnetar.pipeline.jobs.replay import ReplayState, replay_table, replay_topics, sink_options
from magnetar.pipeline.lake.committer import FORMATS, open_table
from magnetar.pipeline.option_table import OptionError

if TYPE_CHECKING:
    import argparse

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.progress import Progress


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of replay."""
    add_source(parser, topics_required=False)
    parser.add_argument("--table", type=not_empty, metavar="URI", help="replay this table instead of topics")
    parser.add_argument("--format", choices=FORMATS, default="delta", help="of the table (default: %(default)s)")
    parser.add_argument("--table-option", action="append", default=[], metavar="KEY=VALUE", help="see export")
    parser.add_argument("--into", required=True, metavar="TOPIC", help="where to")
    parser.add_argument("--into-service-url", metavar="URL", help="the target's broker (default: --service-url)")
    parser.add_argument("--into-admin-url", metavar="URL", help="its REST address (default: --admin-url)")
    parser.add_argument(
        "--id",
        metavar="NAME",
        help="exactly once: identity of this replay; the target must deduplicate. Without, at least once",
    )
    parser.add_argument(
        "--state",
        type=output_path,
        metavar="FILE",
        help="with --id: where the rows to send are written down (replay-ID.json)",
    )
    parser.add_argument(
        "--sink-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any option of the Spark sink; repeatable",
    )


def run_replay(options: argparse.Namespace, runner: Runner, progress: Progress) -> dict[str, Any]:
    """Raises: PipelineError, ClientError, OptionError."""
    connection = connection_options(options)
    target = {"service.url": options.into_service_url, "admin.url": options.into_admin_url}
    connection |= {key: value for key, value in target.items() if value}
    sink = sink_options(connection, options.into, options.id, key_values(options.sink_option, "--sink-option"))
    given = [bool(options.table), bool(options.topic or options.topics_pattern)]
    if sum(given) != 1:
        raise OptionError("one of --topic, --topics-pattern and --table is needed")
    state = None
    if options.id is not None:
        state = ReplayState(options.state or Path(f"replay-{options.id}.json"))
    if options.table:
        table = open_table(options.format, options.table, key_values(options.table_option, "--table-option"))
        return replay_table(table, sink, runner, progress, replay_id=options.id, state=state)
    return replay_topics(source_options(options), sink, runner, progress, replay_id=options.id, state=state)


def replay_text(report: dict[str, Any]) -> str:
    """One line."""
    known = f", {report['known']} were there already" if report["known"] else ""
    return f"{report['stored']} messages of {report['partitions']} partitions stored{known}"


def add_backfill_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of kafka-backfill."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=path,
        metavar="DIR",
        help="directories of Kafka partitions (orders-0), or a directory that holds them",
    )
    parser.add_argument("--topic", required=True, help="partition N goes to TOPIC-partition-N")
    parser.add_argument(
        "--isolation-level",
        choices=[*Isolation],
        default=Isolation.READ_COMMITTED,
        help="read_committed (default) leaves out the records of aborted Kafka transactions",
    )
    parser.add_argument(
        "--open-transactions",
        choices=["stop", "skip"],
        default="stop",
        help="at a transaction whose end the segments do not hold: stop there (default), or leave its records out",
    )
    parser.add_argument("--on-damage", choices=["stop", "skip"], default="stop", help="default: %(default)s")
    parser.add_argument(
        "--enable-deduplication", action="store_true", help="switch it on for the topic where it is off"
    )
    add_connection(parser)


def run_backfill(options: argparse.Namespace, runner: Runner, progress: Progress) -> dict[str, Any]:
    """Raises: PipelineError, ClientError, OptionError."""
    chosen = BackfillOptions(
        ConnectOptions.parse(connection_options(options)),
        Isolation(options.isolation_level),
        skip_open=options.open_transactions == "skip",
        skip_damage=options.on_damage == "skip",
        enable_deduplication=options.enable_deduplication,
    )
    return backfill(options.paths, options.topic, chosen, runner, progress)


def backfill_text(report: dict[str, Any]) -> str:
    """One line per partition that is not through, and the figures."""
    lines = [
        f"{each['target']}: waits for the end of a transaction; run again when the log has grown"
        for each in report["partitions"]
        if each["waits"]
    ]
    known = f", {report['known']} were there already" if report["known"] else ""
    aborted = f", {report['aborted']} of aborted transactions left out" if report["aborted"] else ""
    return "\n".join(
        [*lines, f"{report['stored']} messages of {len(report['partitions'])} partitions stored{known}{aborted}"]
    )
