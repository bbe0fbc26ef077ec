"""Backlog and lag of subscriptions over time: samples from the admin API, kept in a file of JSON lines.

A later run goes on in the same file, so a timer that takes one sample a minute gives a history as well as one long run.
lag_s is the age of the oldest message that is not acknowledged.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from magnetar.pipeline.catalog import Catalog, topic_path
from magnetar.pipeline.errors import CatalogError, NoSuchTopicError
from magnetar.pipeline.jobs.page import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.progress import Progress

_QUERY = "getPreciseBacklog=true&subscriptionBacklogSize=true&getEarliestTimeInBacklog=true"


def take_sample(options: SourceOptions, now_ms: int) -> list[dict[str, Any]]:
    """One row per subscription of the selected topics. Raises: CatalogError."""
    admin = options.connect.admin()
    catalog = Catalog(admin)
    topics = catalog.partitions(options.selection, missing_ok=options.wait_for_topic)
    found: list[dict[str, Any]] = []
    for topic in topics:
        try:
            found += rows_of(topic, catalog.answer(f"{topic_path(topic)}/stats?{_QUERY}"), now_ms)
        except NoSuchTopicError:
            if not options.selection.pattern:  # a topic of a pattern may be deleted meanwhile
                raise
    return found


def rows_of(topic: str, stats: dict[str, Any], now_ms: int) -> list[dict[str, Any]]:
    """One row per subscription in the stats of a topic."""
    found = []
    for name, each in sorted(stats.get("subscriptions", {}).items()):
        earliest = each.get("earliestMsgPublishTimeInBacklog") or 0
        backlog = each.get("msgBacklog", 0)
        found.append(
            {
                "time_ms": now_ms,
                "topic": topic,
                "subscription": name,
                "backlog": backlog,
                "backlog_bytes": max(each.get("backlogSize", 0), 0),
                "delayed": each.get("msgDelayed", 0),
                "lag_s": max(0.0, (now_ms - earliest) / 1000) if backlog and earliest > 0 else 0.0,
                "consumers": len(each.get("consumers", [])),
            }
        )
    return found


def collect(
    options: SourceOptions,
    history: Path | None,
    progress: Progress,
    *,
    samples: int = 1,
    every_s: float = 10.0,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    pause: Callable[[float], None] = time.sleep,
) -> list[dict[str, Any]]:
    """Take samples and append each to the history at once; returns the whole history, oldest first.

    Raises: CatalogError; OSError for a history that cannot be written.
    """
    rows = read_history(history) if history is not None else []
    progress.begin(samples)
    for number in range(samples):
        if number:
            pause(every_s)
        taken = take_sample(options, now_ms())
        rows += taken
        if history is not None:
            _append(history, taken)
        progress.advance(1)
    return rows


def _append(history: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Append one line per row; before that, end an incomplete last line, which a crash may have left."""
    with history.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        cut = end > 0 and (file.seek(end - 1), file.read(1))[1] != b"\n"
        file.write(b"\n" * cut + b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def read_history(path: Path) -> list[dict[str, Any]]:
    """The rows of a history. Lines that do not parse are left out: a crash may leave an incomplete line."""
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            found.append(row)
    return found


def series(rows: Sequence[dict[str, Any]], figure: str) -> dict[str, list[tuple[float, float]]]:
    """Topic and subscription -> (time in s, figure), ascending by time."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda each: each["time_ms"]):
        name = f"{row['topic'].rpartition('/')[2]} / {row['subscription']}"
        found.setdefault(name, []).append((row["time_ms"] / 1000, float(row[figure])))
    return found


def plot(rows: Sequence[dict[str, Any]], target: Path) -> None:
    """A page with inline charts for .html, an image through matplotlib for .png.

    Raises: CatalogError when matplotlib is not installed; OSError.
    """
    if target.suffix.lower() != ".png":
        page = Page("Backlog and lag")
        for title, figure, unit in _FIGURES:
            page.heading(title)
            page.lines(series(rows, figure), unit)
        newest = max((row["time_ms"] for row in rows), default=0)
        columns = ("topic", "subscription", "backlog", "backlog_bytes", "delayed", "lag_s", "consumers")
        page.table([row for row in rows if row["time_ms"] == newest], columns)
        target.write_text(page.render(), encoding="utf-8")
        return
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - only for images
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise CatalogError(f"{error}: pip install '/path/to/magnetar[plot]', or name a file ending in .html") from error
    image = Figure(figsize=(10, 8), layout="constrained")
    canvas = FigureCanvasAgg(image)
    for axes, (title, figure, unit) in zip(image.subplots(len(_FIGURES), 1), _FIGURES, strict=True):
        for name, points in series(rows, figure).items():
            axes.plot([x for x, _ in points], [y for _, y in points], label=name, marker=".")
        axes.set(title=title, ylabel=unit)
        axes.legend()
    canvas.print_figure(target, format="png")


_FIGURES = (("Backlog", "backlog", "messages"), ("Lag", "lag_s", "s"))


def as_text(report: dict[str, Any]) -> str:
    """The newest sample as a table."""
    return "\n".join(
        f"{row['backlog']:>12}  {row['lag_s']:>10.1f} s  {row['topic']} / {row['subscription']}"
        for row in report["newest"]
    )
