"""Bars as an SVG picture: one group for each case, one bar for each contender, all bars of a case on a scale of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

BAR, GAP, LEFT, WIDTH, LABEL, TOP = 14, 14, 230, 440, 220, 74
NAMES = {
    "limit": "limit server",
    "ours": "Magnetar",
    "ours-nosync": "Magnetar, no syncs",
    "lite": "pulsar-lite",
    "pulsar": "Apache Pulsar",
}
COLOURS = {"limit": "#9aa0a6", "ours": "#3b6fb6", "ours-nosync": "#a9c4e6", "lite": "#c98b2b", "pulsar": "#5b9a68"}


@dataclass(frozen=True)
class Bar:
    """A median with the least and the largest value."""

    median: float
    least: float
    most: float


def chart(title: str, note: str, rows: dict[str, dict[str, Bar]], unit: str) -> str:
    """`rows`: case -> contender -> values; `note` stands under the title. A line at the end of a bar goes from the least
    to the largest value. A unit begins with its blank.
    """
    parts, y = [_legend({who for values in rows.values() for who in values})], TOP
    for case, values in rows.items():
        longest = max(bar.most for bar in values.values()) or 1.0
        middle = y + len(values) * BAR / 2 + 3
        parts.append(
            f'<text x="{LEFT - 10}" y="{middle:.1f}" text-anchor="end" font-weight="bold">{escape(case)}</text>'
        )
        for who, bar in values.items():
            parts.append(_bar(y, who, bar, WIDTH / longest, unit))
            y += BAR
        y += GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + LABEL} {y}" '
        f'width="{LEFT + WIDTH + LABEL}" height="{y}" font-family="sans-serif" font-size="11" role="img">\n'
        f'<title>{escape(title)}</title>\n<rect width="100%" height="100%" fill="#fff"/>\n'
        f'<text x="10" y="20" font-size="15" font-weight="bold">{escape(title)}</text>\n'
        f'<text x="10" y="37" fill="#555">{escape(note)}</text>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def number(value: float, unit: str) -> str:
    """Three digits: 1.24 M and 463 k of a rate, 1,240 and 0.248 of others."""
    for size, name in ((1e6, " M"), (1e3, " k")):
        if unit == "/s" and value >= size * 0.9995:
            return number(value / size, "") + name
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:,.{max(digits, 0)}f}"


def _legend(contenders: set[str]) -> str:
    parts = []
    for place, who in enumerate(sorted(contenders, key=list(NAMES).index)):
        x = 10 + 150 * place
        parts.append(
            f'<rect x="{x}" y="49" width="11" height="11" fill="{COLOURS[who]}"/>'
            f'<text x="{x + 16}" y="58">{escape(NAMES[who])}</text>'
        )
    return "\n".join(parts)


def _bar(y: int, who: str, bar: Bar, scale: float, unit: str) -> str:
    middle = y + (BAR - 2) / 2
    ends = f" [{number(bar.least, unit)} - {number(bar.most, unit)}]" if bar.least < bar.most else ""
    label = f"{number(bar.median, unit)}{unit}{ends}"
    return (
        f'<rect x="{LEFT}" y="{y}" width="{max(bar.median * scale, 1):.1f}" height="{BAR - 2}" '
        f'fill="{COLOURS[who]}"/>'
        f'<path d="M{LEFT + bar.least * scale:.1f} {middle}H{LEFT + bar.most * scale:.1f}" stroke="#222"/>'
        f'<text x="{LEFT + bar.most * scale + 6:.1f}" y="{y + 10}">{escape(label)}</text>'
    )
