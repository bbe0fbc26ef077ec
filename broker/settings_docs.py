"""Writes conf/standalone.conf and docs/settings.md from the settings table: python -m magnetar.broker.settings_docs."""

import textwrap
from pathlib import Path
from typing import Final

from magnetar.broker.settings import AREAS, SETTINGS, Setting

_ROOT: Final = Path(__file__).resolve().parent.parent
CONFIGURATION_FILE: Final = _ROOT / "conf" / "standalone.conf"
DOCUMENTATION_FILE: Final = _ROOT / "docs" / "settings.md"

_CONFIGURATION_HEAD = """\
# Settings of `magnetar standalone`, all at their defaults. Names, units and meanings are Apache Pulsar's.
# Stronger than this file: PULSAR_PREFIX_<key> in the environment, --set key=value on the command line.
# Generated from the table in broker/setting_areas: change that, not this file.
"""
_DOCUMENTATION_HEAD = """\
# Settings

Generated from the table in `broker/setting_areas`. Names, units and meanings are those of Apache
Pulsar's `broker.conf`: its files can be used unchanged. The tables below list the keys that have an
effect.

| a key | at start |
|---|---|
| listed here | takes effect |
| of Apache Pulsar 4.2, without effect here | has no effect; one warning lists all such keys; a wrong \
compression type of metadata stops the start, as in Apache Pulsar |
| of Apache Pulsar, a protection or limit that Magnetar does not implement | stops the start and names \
the remedy, unless its value switches the protection off |
| unknown | stops the start and names the nearest key |

`magnetar standalone --pulsar-config broker.conf` accepts a file of another version of Apache
Pulsar: the warning then lists unknown keys as well (`unknownSettings=list`). A key that nearly
matches a security setting still stops the start.

Every user of the machine can read secrets given by `--set`, so the broker warns of them. Name a
file (`tokenSecretKey=file:///etc/magnetar/secret.key`) or a variable
(`tokenSecretKey=env:TOKEN_KEY`) instead. An empty value of a number or text means its default.

A value comes from the strongest of these sources: `--set key=value` on the command line, then the
environment variable `PULSAR_PREFIX_<key>`, then the file given by `--config`, then the default. A
value outside its range stops the start with a message that names key, value and range.
"""


def configuration_text() -> str:
    """The text of conf/standalone.conf."""
    parts = [_CONFIGURATION_HEAD]
    for area in AREAS:
        parts.append(f"\n#### {area}\n")
        for row in _rows(area):
            about = row.doc + f" ({row.allowed}{'; ' + row.unit if row.unit else ''})"
            parts += [
                "\n",
                *(f"# {line}\n" for line in textwrap.wrap(about, width=118)),
                f"{row.key}={row.default_text}\n",
            ]
    return "".join(parts)


def documentation_text() -> str:
    """The text of docs/settings.md."""
    parts = [_DOCUMENTATION_HEAD]
    for area in AREAS:
        parts.append(f"\n## {area}\n\n| key | default | unit | allowed | meaning |\n|---|---|---|---|---|\n")
        for row in _rows(area):
            default = f"`{row.default_text}`" if row.default_text else "(empty)"
            parts.append(
                f"| `{row.key}` | {default} | {row.unit} | {row.allowed} | {row.doc.replace('|', '&#124;')} |\n"
            )
    own = ", ".join(f"`{row.key}`" for row in SETTINGS.values() if row.source == "Magnetar")
    closing = f"These keys are Magnetar's own, or have other defaults than in Apache Pulsar: {own}."
    parts.append("\n" + textwrap.fill(closing, width=100, break_long_words=False, break_on_hyphens=False) + "\n")
    return "".join(parts)


def _rows(area: str) -> list[Setting]:
    return [row for row in SETTINGS.values() if row.area == area]


def main() -> None:
    """Write both files."""
    CONFIGURATION_FILE.write_text(configuration_text(), encoding="utf-8")
    DOCUMENTATION_FILE.write_text(documentation_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
