"""`magnetar pipeline export`."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from magnetar.pipeline.jobs.arguments import add_source, add_table, seconds, source_options, table, whole_number
from magnetar.pipeline.jobs.export import ExportJob, ExportReport
from magnetar.pipeline.lake.writer import WriteOptions

if TYPE_CHECKING:
    import argparse

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""
    add_source(parser)
    add_table(parser)
    parser.add_argument("--follow", action="store_true", help="a running stream: go on until SIGTERM or Ctrl-C")
    parser.add_argument(
        "--trigger", type=seconds, default=5.0, metavar="S", help="with --follow: a round every so often (default: 5)"
    )
    parser.add_argument(
        "--round-bytes",
        type=whole_number(1),
        default=8 << 30,
        metavar="N",
        help="commit after about so many stored bytes (default: 8 GiB)",
    )
    parser.add_argument(
        "--compression", default="zstd", choices=["zstd", "snappy", "lz4", "gzip", "none"], help="default: %(default)s"
    )
    parser.add_argument(
        "--file-bytes",
        type=whole_number(1),
        default=512 << 20,
        metavar="N",
        help="size of a data file (default: 512 MiB)",
    )


def run(options: argparse.Namespace, runner: Runner, progress: Progress) -> dict[str, Any]:
    """Raises: PipelineError, ClientError, OptionError."""
    write = WriteOptions(
        compression=options.compression,
        level=1 if options.compression == "zstd" else None,
        file_bytes=options.file_bytes,
    )
    job = ExportJob(source_options(options), table(options), write=write, round_bytes=options.round_bytes)
    if not options.follow:
        report = job.run(runner, progress)
    else:
        stopping: list[int] = []
        shown = [0]

        def show(so_far: ExportReport) -> None:
            if so_far.commits > shown[0]:
                shown[0] = so_far.commits
                progress.say(as_text(so_far.to_json()))

        before = signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
        try:
            report = job.follow(
                runner,
                progress,
                trigger_s=options.trigger,
                stop=lambda: bool(stopping),
                on_round=show,
            )
        finally:
            signal.signal(signal.SIGTERM, before)
    return finished(report)


def finished(report: ExportReport) -> dict[str, Any]:
    """The report of the command; quarantined or lost messages are findings."""
    found = report.to_json()
    found["findings"] = bool(report.quarantined.messages or report.lost or report.anew)
    return found


def as_text(report: dict[str, Any]) -> str:
    """One line."""
    lost = f", {len(report['lost'])} ranges lost" if report["lost"] else ""
    lost += f", {len(report['anew'])} topics were made anew" if report["anew"] else ""
    left_out = report["quarantined"]["messages"]
    quarantined = f", {left_out} messages quarantined" if left_out else ""
    return (
        f"{report['rows']} messages in {report['files']} files ({report['bytes']} bytes), {report['commits']} commits"
        f"{quarantined}{lost}"
    )
