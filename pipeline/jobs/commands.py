"""THE table of jobs: name -> help, options, and what runs. The modules of a job are imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magnetar.pipeline.jobs import export_command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.progress import Progress


@dataclass(frozen=True, slots=True)
class Command:
    """One job. `run` returns its report; a report with a true `findings` ends the process with exit code 1."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Runner, Progress], dict[str, Any]]
    as_text: Callable[[dict[str, Any]], str]
    description: str = ""
    needs_spark: bool = False


COMMANDS: Final[dict[str, Command]] = {
    "export": Command(
        "topics into a Parquet, Delta or Iceberg table, incremental and exactly once",
        export_command.add_arguments,
        export_command.run,
        export_command.as_text,
    ),
}
