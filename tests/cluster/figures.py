"""Figures of the tests: one line each, at the end of the file MAGNETAR_CLUSTER_FIGURES names, and on the screen."""

from __future__ import annotations

import os

__all__ = ["figure"]


def figure(event, **values):
    line = f"{event}: " + ", ".join(f"{name} {_text(value)}" for name, value in values.items())
    print(line)
    path = os.environ.get("MAGNETAR_CLUSTER_FIGURES")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def _text(value):
    return f"{value:.2f}" if isinstance(value, float) else str(value)
