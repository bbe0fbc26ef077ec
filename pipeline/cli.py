"""`magnetar pipeline JOB ...`: the command line of the jobs. Spark is started by the jobs that need it.

Exit codes:
    0   done
    1   done, with findings: errors of the audit, quarantined or lost messages
    2   the command line itself is wrong
    66  a topic, table or file of the input does not exist (EX_NOINPUT)
    69  the broker does not answer; the same command goes on (EX_UNAVAILABLE)
    70  the job failed for another reason (EX_SOFTWARE)
    74  the disk of the table is full; the same command goes on (EX_IOERR)
    75  other jobs kept committing to the table (EX_TEMPFAIL)
    77  the broker refuses (EX_NOPERM)
    78  an option cannot be used, or a library or Java is missing (EX_CONFIG)
    130 interrupted; the same command goes on
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from magnetar.client.errors import ClientError, RetryError
from magnetar.pipeline.errors import (
    CatalogRefusedError,
    CatalogUnavailableError,
    NoSuchTopicError,
    PipelineError,
    ReadTimeoutError,
)
from magnetar.pipeline.jobs.commands import COMMANDS
from magnetar.pipeline.jobs.session import NO_SPARK, SparkUnavailableError, open_runner
from magnetar.pipeline.lake.errors import CommitConflictError, NotATableError, SinkFullError
from magnetar.pipeline.needed_packages import MissingError
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.progress import STYLES, Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_FINDINGS: Final = 1
EXIT_INTERRUPTED: Final = 130
EXIT_CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (NoSuchTopicError, 66),
    (NotATableError, 66),
    (FileNotFoundError, 66),
    (CatalogUnavailableError, 69),
    (ReadTimeoutError, 69),
    (RetryError, 69),
    (CatalogRefusedError, 77),
    (SinkFullError, 74),
    (CommitConflictError, 75),
    (OptionError, 78),
    (SparkUnavailableError, 78),
    (MissingError, 78),
    (PipelineError, 70),
)
"""Error class -> exit code: the first class that an error belongs to decides. A ClientError has a code of its own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; returns the exit code of the process."""
    parser = build_parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    progress = Progress(options.job, sys.stderr, style=options.progress)
    try:
        report = _run(options, progress)
    except KeyboardInterrupt:
        _complain("interrupted; committed work stays: run the same command again to continue")
        return EXIT_INTERRUPTED
    except (PipelineError, ClientError, OptionError, OSError) as error:
        progress.end()
        _complain(str(error))
        return exit_code(error)
    sys.stdout.write(json.dumps(report, default=str) + "\n" if options.json else f"{_as_text(options, report)}\n")
    return EXIT_FINDINGS if report.get("errors", report.get("findings")) else 0


def _run(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    command = COMMANDS[options.job]
    with open_runner(NO_SPARK if command.local else options.master, needs_spark=command.needs_spark) as runner:
        report = command.run(options, runner, progress)
    progress.end()
    return report


def exit_code(error: BaseException) -> int:
    """The exit code of the process after this error."""
    found = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), None)
    if found is not None:
        return found
    return int(getattr(error, "exit_code", 70))


def build_parser() -> argparse.ArgumentParser:
    """The parser of all jobs."""
    parser = argparse.ArgumentParser(
        prog="magnetar pipeline",
        description="Jobs over the log: export, audit, statistics, replay. They run on Spark (--master) or, for small "
        "work, in this process (--master none). Needs  pip install '/path/to/magnetar[spark]'.",
    )
    parser.set_defaults(parser=parser)
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, command in COMMANDS.items():
        job = jobs.add_parser(name, help=command.help, description=command.description or command.help)
        job.set_defaults(parser=job)
        command.add_arguments(job)
        common = job.add_argument_group("how the job runs")
        common.add_argument(
            "--master", default="local[*]", help="Spark master, or none for no Spark (default: %(default)s)"
        )
        common.add_argument("--progress", choices=STYLES, default="auto", help="default: a bar on a terminal")
        common.add_argument("--json", action="store_true", help="print the report as one JSON object")
    return parser


def _as_text(options: argparse.Namespace, report: dict[str, Any]) -> str:
    return COMMANDS[options.job].as_text(report)


def _complain(text: str) -> None:
    sys.stderr.write(f"magnetar pipeline: error: {text}\n")
