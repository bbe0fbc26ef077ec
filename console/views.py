"""Values of the REST API as rows of pages. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["TopicRow", "ago", "amount", "moment", "size", "sorted_rows", "topic_rows"]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_MOST_ROWS: Final = 500


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in a list."""

    name: str
    rate_in: float
    rate_out: float
    throughput_in: float
    throughput_out: float
    backlog: int
    stored_bytes: int
    producers: int
    subscriptions: int
    consumers: int

    @classmethod
    def of(cls, name: str, stats: dict[str, Any]) -> TopicRow:
        """stats: as in ``/stats`` of the topic."""
        subscriptions = stats.get("subscriptions", {}).values()
        return cls(
            name=name,
            rate_in=float(stats.get("msgRateIn", 0)),
            rate_out=float(stats.get("msgRateOut", 0)),
            throughput_in=float(stats.get("msgThroughputIn", 0)),
            throughput_out=float(stats.get("msgThroughputOut", 0)),
            backlog=sum(int(each.get("msgBacklog", 0)) for each in subscriptions),
            stored_bytes=int(stats.get("storageSize", 0)),
            producers=len(stats.get("publishers", ())),
            subscriptions=len(subscriptions),
            consumers=sum(len(each.get("consumers", ())) for each in subscriptions),
        )


def topic_rows(broker_stats: dict[str, Any]) -> list[TopicRow]:
    """Return the rows of ``/admin/v2/broker-stats/topics``: namespace -> bundle -> domain -> topic -> stats."""
    return [
        TopicRow.of(name, stats)
        for bundles in broker_stats.values()
        for domains in bundles.values()
        for topics in domains.values()
        for name, stats in topics.items()
    ]


def sorted_rows(rows: list[TopicRow], wanted: str) -> tuple[list[TopicRow], int]:
    """Rows whose name contains `wanted`, the busiest first, and the number of omitted rows."""
    found = [row for row in rows if wanted in row.name]
    found.sort(key=lambda row: (-(row.rate_in + row.rate_out), -row.backlog, row.name))
    return found[:_MOST_ROWS], max(0, len(found) - _MOST_ROWS)


def size(value: float) -> str:
    """A number of bytes as text with a unit."""
    number = float(value)
    for unit in _UNITS:
        if number < 1024 or unit == _UNITS[-1]:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError("the last unit takes any number")


def amount(value: float) -> str:
    """A number as text: 12,345 or 0.25."""
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:,.2f}"


def moment(milliseconds: float) -> str:
    """A time in ms since 1970, in UTC; empty for 0."""
    if not milliseconds:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


def ago(milliseconds: float, now_ms: float) -> str:
    """How far a time lies from now: ``3 s ago``, ``in 2 h``; empty for 0."""
    if not milliseconds:
        return ""
    distance_s = (now_ms - milliseconds) / 1000
    number, unit = abs(distance_s), "s"
    for least, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if number >= least:
            number, unit = number / least, name
            break
    return f"{number:.0f} {unit} ago" if distance_s >= 0 else f"in {number:.0f} {unit}"
