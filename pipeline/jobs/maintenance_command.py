"""`magnetar pipeline compact`, `join-files` and `vacuum`: the jobs that rewrite or clean a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.pipeline.jobs.arguments import add_source, add_table, source_options, table, whole_number
from magnetar.pipeline.jobs.key_compaction import compact_topics
from magnetar.pipeline.jobs.maintenance import join_small_files
from magnetar.pipeline.lake.vacuum import remove_staging
from magnetar.pipeline.option_table import OptionError

if TYPE_CHECKING:
    import argparse

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.progress import Progress

_HOUR_S = 3600.0
LEAST_HOURS = 1.0


def add_join_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of join-files."""
    add_table(parser)
    parser.add_argument(
        "--file-bytes",
        type=whole_number(1),
        default=512 << 20,
        metavar="N",
        help="files below half of this are joined (512 MiB)",
    )


def run_join(options: argparse.Namespace, runner: Runner, progress: Progress) -> dict[str, Any]:
    """Raises: LakeError, OptionError."""
    return join_small_files(table(options), runner, progress, target_bytes=options.file_bytes)


def join_text(report: dict[str, Any]) -> str:
    """One line."""
    skipped = f"; {report['skipped']} groups were replaced by another job first" if report["skipped"] else ""
    return f"{report['files_before']} small files joined into {report['files_after']}{skipped}"


def add_vacuum_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of vacuum."""
    add_table(parser)
    parser.add_argument(
        "--older-than-hours",
        type=float,
        default=168.0,
        metavar="H",
        help="remove only files that nothing has referred to for so long (default: 168, least: 1): a running job may "
        "be about to commit younger ones, and readers may be on an older version",
    )
    parser.add_argument("--dry-run", action="store_true", help="only list them")


def run_vacuum(options: argparse.Namespace, _runner: Runner, _progress: Progress) -> dict[str, Any]:
    """Raises: LakeError, OptionError."""
    if not options.older_than_hours >= LEAST_HOURS:  # neither for a number that is none
        raise OptionError("--older-than-hours below 1 would remove files that running jobs are about to commit")
    opened, age_s = table(options), options.older_than_hours * _HOUR_S
    removed = opened.vacuum(age_s, dry_run=options.dry_run)
    removed += remove_staging(opened.place, age_s, dry_run=options.dry_run)
    return {"removed": removed, "dry_run": options.dry_run}


def vacuum_text(report: dict[str, Any]) -> str:
    """One line per file, and their number."""
    verb = "would be removed" if report["dry_run"] else "removed"
    return "\n".join([*report["removed"], f"{len(report['removed'])} files {verb}"])


def add_compact_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of compact."""
    add_source(parser)
    add_table(parser)
    parser.add_argument("--keep-without-key", action="store_true", help="keep messages without a key (else left out)")


def run_compact(options: argparse.Namespace, runner: Runner, progress: Progress) -> dict[str, Any]:
    """Raises: PipelineError, ClientError, OptionError."""
    return compact_topics(
        source_options(options), table(options), runner, progress, keep_without_key=options.keep_without_key
    )
