"""THE table of jobs: name -> help, options, and the job's function. The modules of a job are imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magnetar.pipeline.jobs import (
    audit_command,
    backlog,
    delays,
    export_command,
    hot_keys,
    key_compaction,
    maintenance_command,
    replay_command,
    statistics_command,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.progress import Progress


@dataclass(frozen=True, slots=True)
class Command:
    """One job. `run` returns its report; a report with a true `findings` ends the process with exit code 1.

    local: the job never needs Spark, for any master.
    """

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Runner, Progress], dict[str, Any]]
    as_text: Callable[[dict[str, Any]], str]
    description: str = ""
    needs_spark: bool = False
    local: bool = False


COMMANDS: Final[dict[str, Command]] = {
    "export": Command(
        "topics into a Parquet, Delta or Iceberg table, incremental and exactly once",
        export_command.add_arguments,
        export_command.run,
        export_command.as_text,
    ),
    "audit": Command(
        "integrity: checksums, indexes, times, duplicates, orphan ledgers, cursors",
        audit_command.add_arguments,
        audit_command.run,
        audit_command.as_text,
    ),
    "compact": Command(
        "of each key the newest message, into a table of its own",
        maintenance_command.add_compact_arguments,
        maintenance_command.run_compact,
        key_compaction.as_text,
    ),
    "delays": Command(
        "how far ahead the pending messages of topics reach",
        statistics_command.add_delays_arguments,
        statistics_command.run_delays,
        delays.as_text,
    ),
    "keys": Command(
        "hot keys, and how unevenly Key_Shared would spread them",
        statistics_command.add_keys_arguments,
        statistics_command.run_keys,
        hot_keys.as_text,
    ),
    "backlog": Command(
        "backlog and lag of subscriptions over time, with plots",
        statistics_command.add_backlog_arguments,
        statistics_command.run_backlog,
        backlog.as_text,
        local=True,
    ),
    "replay": Command(
        "messages of topics, or rows of a table, into a topic",
        replay_command.add_replay_arguments,
        replay_command.run_replay,
        replay_command.replay_text,
    ),
    "kafka-backfill": Command(
        "Kafka log segments of many partitions into a partitioned topic, exactly once",
        replay_command.add_backfill_arguments,
        replay_command.run_backfill,
        replay_command.backfill_text,
    ),
    "join-files": Command(
        "small files of a table into large ones",
        maintenance_command.add_join_arguments,
        maintenance_command.run_join,
        maintenance_command.join_text,
    ),
    "vacuum": Command(
        "remove data files that nothing refers to any more",
        maintenance_command.add_vacuum_arguments,
        maintenance_command.run_vacuum,
        maintenance_command.vacuum_text,
        local=True,
    ),
}
