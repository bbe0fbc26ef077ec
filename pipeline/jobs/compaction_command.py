"""`magnetar pipeline compact`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.pipeline.jobs.arguments import add_source, add_table, source_options, table
from magnetar.pipeline.jobs.key_compaction import compact_topics

if TYPE_CHECKING:
    import argparse

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""
    add_source(parser)
    add_table(parser)
    parser.add_argument("--keep-without-key", action="store_true", help="keep messages without a key (else left out)")


def run(options: argparse.Namespace, runner: Runner, progress: Progress) -> dict[str, Any]:
    """Raises: PipelineError, ClientError, OptionError."""
    return compact_topics(
        source_options(options), table(options), runner, progress, keep_without_key=options.keep_without_key
    )
