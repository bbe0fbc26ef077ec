"""`magnetar pipeline delays`, `keys` and `backlog`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.pipeline.jobs import backlog, delays, hot_keys
from magnetar.pipeline.jobs.arguments import add_source, output_path, seconds, source_options, whole_number
from magnetar.pipeline.jobs.page import Page

if TYPE_CHECKING:
    import argparse

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.progress import Progress


def add_delays_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of delays."""
    add_source(parser)
    parser.add_argument("--html", type=output_path, metavar="FILE", help="write the report as a page, too")


def run_delays(options: argparse.Namespace, runner: Runner, progress: Progress) -> dict[str, Any]:
    """Raises: PipelineError, ClientError, OptionError."""
    report = delays.delay_statistics(source_options(options), runner, progress)
    if options.html is not None:
        page = Page("Delayed messages")
        delays.draw(report, page)
        options.html.write_text(page.render(), encoding="utf-8")
    return report


def add_keys_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of keys."""
    add_source(parser)
    parser.add_argument("--top", type=whole_number(1), default=20, metavar="N", help="so many keys (default: 20)")
    parser.add_argument(
        "--consumers",
        type=whole_number(1),
        nargs="+",
        default=[2, 4, 8, 16],
        metavar="N",
        help="sizes of Key_Shared groups",
    )
    parser.add_argument("--html", type=output_path, metavar="FILE", help="write the report as a page, too")


def run_keys(options: argparse.Namespace, runner: Runner, progress: Progress) -> dict[str, Any]:
    """Raises: PipelineError, ClientError, OptionError."""
    report = hot_keys.key_statistics(
        source_options(options), runner, progress, top=options.top, consumers=options.consumers
    )
    if options.html is not None:
        page = Page("Keys")
        hot_keys.draw(report, page)
        options.html.write_text(page.render(), encoding="utf-8")
    return report


def add_backlog_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of backlog."""
    add_source(parser)
    parser.add_argument("--samples", type=whole_number(1), default=1, metavar="N", help="so many samples (default: 1)")
    parser.add_argument("--every", type=seconds, default=10.0, metavar="S", help="seconds between them (default: 10)")
    parser.add_argument(
        "--history", type=output_path, metavar="FILE", help="JSON lines: read first, and extended with each sample"
    )
    parser.add_argument(
        "--plot", type=output_path, metavar="FILE", help="a page (.html) or an image (.png) of the history"
    )


def run_backlog(options: argparse.Namespace, _runner: Runner, progress: Progress) -> dict[str, Any]:
    """Raises: CatalogError, OptionError, OSError."""
    rows = backlog.collect(
        source_options(options), options.history, progress, samples=options.samples, every_s=options.every
    )
    if options.plot is not None:
        backlog.plot(rows, options.plot)
    newest = max((row["time_ms"] for row in rows), default=0)
    return {"samples": rows, "newest": [row for row in rows if row["time_ms"] == newest]}
