"""A self-contained HTML page: headings, tables and inline SVG charts; no script, nothing loaded from elsewhere."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_STYLE: Final = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1b1b}"
    "table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{text-align:left;padding:.3rem .6rem;"
    "border-bottom:1px solid #ddd;vertical-align:top;overflow-wrap:anywhere}th{background:#f4f4f6}"
    ".error{color:#a40000;font-weight:600}.warning{color:#8a5a00}.fine{color:#1a6b1a}svg{max-width:100%}"
)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 900, 260, 80, 30
_COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")


class Page:
    """Collects parts; `render` gives the text of the page."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str, kind: str = "") -> None:
        self._parts.append(f'<p class="{html.escape(kind, quote=True)}">{html.escape(text)}</p>')

    def table(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """One row per mapping; a column `severity` gives the row's colour."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        body = "".join(
            f'<tr class="{html.escape(str(row.get("severity", "")), quote=True)}">'
            + "".join(f"<td>{html.escape(str(row.get(name, '')))}</td>" for name in columns)
            + "</tr>"
            for row in rows
        )
        self._parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")

    def lines(self, series: Mapping[str, Sequence[tuple[float, float]]], unit: str = "") -> None:
        """A line chart: name -> (x, y) points; x ascending."""
        self._parts.append(line_chart(series, unit))

    def bars(self, values: Sequence[tuple[str, float]], unit: str = "") -> None:
        """A bar chart, one bar per (label, value)."""
        self._parts.append(bar_chart(values, unit))

    def render(self) -> str:
        title = html.escape(self._title)
        return (
            f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{''.join(self._parts)}</body></html>\n"
        )


def line_chart(series: Mapping[str, Sequence[tuple[float, float]]], unit: str = "") -> str:
    """Render inline SVG; an empty series gives the text "no data"."""
    points = [point for line in series.values() for point in line]
    if not points:
        return "<p>no data</p>"
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    top = max([1, *(y for _, y in points)])
    wide, tall = _WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM - 10
    parts = [_axes(top, unit)]
    for number, (name, line) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(
            f"{_LEFT + (x - low) / ((high - low) or 1) * wide:.1f},{10 + (1 - y / top) * tall:.1f}" for x, y in line
        )
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        parts.append(f'<text x="{_LEFT + 8}" y="{24 + number * 16}" fill="{colour}">{html.escape(name)}</text>')
    return _svg(parts)


def bar_chart(values: Sequence[tuple[str, float]], unit: str = "") -> str:
    """Render inline SVG; without values the text "no data"."""
    if not values:
        return "<p>no data</p>"
    top = max([1, *(value for _, value in values)])
    wide, tall = (_WIDTH - _LEFT - 10) / len(values), _HEIGHT - _BOTTOM - 10
    parts = [_axes(top, unit)]
    for number, (label, value) in enumerate(values):
        height = value / top * tall
        x, y = _LEFT + number * wide, 10 + tall - height
        parts.append(
            f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{max(wide - 2, 1):.1f}" height="{height:.1f}" '
            f'fill="{_COLOURS[0]}"><title>{html.escape(label)}: {value:g}</title></rect>'
        )
        if len(values) <= 30:
            parts.append(
                f'<text x="{x + wide / 2:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">{html.escape(label)}</text>'
            )
    return _svg(parts)


def _axes(top: float, unit: str) -> str:
    tall = _HEIGHT - _BOTTOM - 10
    return (
        f'<line x1="{_LEFT}" y1="{10 + tall}" x2="{_WIDTH - 10}" y2="{10 + tall}" stroke="#999"/>'
        f'<text x="{_LEFT - 6}" y="20" text-anchor="end">{top:,.0f} {html.escape(unit)}</text>'
        f'<text x="{_LEFT - 6}" y="{10 + tall}" text-anchor="end">0</text>'
    )


def _svg(parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="system-ui,sans-serif" font-size="12" role="img">'
        f"{''.join(parts)}</svg>"
    )
