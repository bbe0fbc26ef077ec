"""Writes docs/cli-admin.md from the table of verbs: python -m magnetar.cli.docs_page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from magnetar.cli.pulsar_admin.kinds import LABELS
from magnetar.cli.pulsar_admin.table import GROUPS, UNSUPPORTED, verbs_of_group

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "cli-admin.md"
_HEAD: Final = """\
# Verbs of `magnetar admin`

Generated from the table in `cli/pulsar_admin`. Verbs and flags are those of Apache Pulsar's
`pulsar-admin`; tests compare requests and output with that program. [Command line](cli.md)
describes how to choose the broker.
"""


def page_text() -> str:
    """The text of the page."""
    parts = [_HEAD]
    for group, about in GROUPS.items():
        parts.append(f"\n## {group}\n\n{about[:1].upper()}{about[1:]}.\n\n| verb | flags | |\n|---|---|---|\n")
        for name, verb in sorted(verbs_of_group(group).items()):
            arguments = "".join(f" {each.upper()}" for each in verb.argument.split())
            flags = ", ".join(
                f"`{' '.join(each.names)}{' ' + LABELS[each.kind] if LABELS[each.kind] else ''}`".replace("|", "/")
                + (" (needed)" if each.required else "")
                for each in verb.flags
            )
            parts.append(f"| `{name}{arguments}` | {flags} | {verb.help} |\n")
    parts.append(
        "\n## Unsupported verbs\n\nThese verbs end with an error that gives the reason.\n\n| verb | "
        "reason |\n|---|---|\n"
    )
    parts += [f"| `{name}` | {reason} |\n" for name, reason in sorted(UNSUPPORTED.items())]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
