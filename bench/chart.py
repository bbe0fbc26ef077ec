"""Bars as an SVG picture: one row for each case, one bar for each contender, the longest of a row as wide as the row."""

from __future__ import annotations

from html import escape

BAR, GAP, LEFT, WIDTH, TOP = 13, 12, 190, 420, 34
COLOURS = {"limit": "#9aa0a6", "ours": "#3b6fb6", "ours-nosync": "#a9c4e6", "lite": "#c98b2b", "pulsar": "#5b9a68"}


def chart(title: str, rows: dict[str, dict[str, float]], unit: dict[str, str]) -> str:
    """`rows`: case -> contender -> value; `unit`: case -> unit. Each bar has a label with contender, value and unit; a
    longer bar is better if the unit ends in "/s", else worse.
    """
    parts, y = [], TOP
    for case, values in rows.items():
        longest = max(values.values()) or 1.0
        parts.append(f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{escape(case)}</text>')
        for who, value in values.items():
            size = max(value / longest * WIDTH, 1)
            label = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{size:.1f}" height="{BAR - 2}" fill="{COLOURS.get(who, "#777")}"/>'
                f'<text x="{LEFT + size + 5:.1f}" y="{y + 10}">{escape(who)} {label} {escape(unit[case])}</text>'
            )
            y += BAR
        y += GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 190}" height="{y}" '
        f'font-family="sans-serif" font-size="11">\n<title>{escape(title)}</title>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n<text x="8" y="18" font-size="13">{escape(title)}</text>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"
