"""`magnetar pipeline audit`: the report as text, JSON or an HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.pipeline.jobs.arguments import add_source, output_path, source_options
from magnetar.pipeline.jobs.audit import audit_topics
from magnetar.pipeline.jobs.page import Page

if TYPE_CHECKING:
    import argparse

    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.progress import Progress

_SHOWN = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""
    add_source(parser)
    parser.set_defaults(on_corrupt="quarantine")
    parser.add_argument("--html", type=output_path, metavar="FILE", help="write the report as a page, too")


def run(options: argparse.Namespace, runner: Runner, progress: Progress) -> dict[str, Any]:
    """Raises: PipelineError, ClientError, OptionError."""
    report = audit_topics(source_options(options), runner, progress).to_json()
    if options.html is not None:
        options.html.write_text(as_page(report), encoding="utf-8")
    return report


def as_text(report: dict[str, Any]) -> str:
    """The first findings, and a line with the figures."""
    lines = [f"{e['severity']}: {e['kind']}: {e['topic']} {e['where']}: {e['detail']}" for e in report["findings"]]
    more = sum(report["counts"].values()) - len(lines[:_SHOWN])
    rest = [f"... and {more} more (--json or --html lists them)"] if more > 0 else []
    verdict = "DAMAGED" if report["errors"] else "intact"
    figures = f"{len(report['topics'])} topics, {report['entries']} entries, {report['messages']} messages"
    return "\n".join([*lines[:_SHOWN], *rest, f"{verdict}: {figures}, {sum(report['counts'].values())} findings"])


def as_page(report: dict[str, Any]) -> str:
    """The report as a self-contained page."""
    page = Page("Integrity audit")
    kind = "error" if report["errors"] else "fine"
    page.text(as_text({**report, "findings": [], "counts": {}}), kind)
    page.heading("Findings")
    if report["findings"]:
        page.table(
            [{"kind": name, "count": count} for name, count in sorted(report["counts"].items())], ("kind", "count")
        )
        page.table(report["findings"], ("severity", "kind", "topic", "where", "detail"))
    else:
        page.text("none", "fine")
    page.heading("Topics")
    columns = ("topic", "entries", "messages", "bytes", "first_index", "end_index", "last_position", "findings")
    page.table(report["topics"], columns)
    return page.render()
