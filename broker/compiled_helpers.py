"""Logs the compiled helpers of the hot path that are not in use. Without them the broker works, but slower, and pip
shows no failed compilation (`setup.py`).
"""

from __future__ import annotations

import sys
from typing import Final

import structlog

__all__ = ["HELPERS", "warn_of_missing_helpers"]

log = structlog.get_logger(__name__)

HELPERS: Final = (
    "magnetar.protocol._speedups",
    "magnetar.protocol._entry_columns",
    "magnetar.protocol._acks",
    "magnetar.protocol._key_hashes",
    "magnetar.broker.dispatchers._picking",
    "magnetar.delayed._sorting",
)
"""The helpers that a broker loads with its modules and that every platform can build."""


def warn_of_missing_helpers() -> None:
    """Log the helpers that are not in use: not built, or kept off by ``MAGNETAR_PURE``. Call when the modules of the
    broker are loaded.
    """
    missing = [name.removeprefix("magnetar.") for name in HELPERS if name not in sys.modules]
    if missing:
        remedy = "install again with a C compiler, and without MAGNETAR_PURE in the environment"
        log.warning("helpers.missing", modules=" ".join(missing), effect="messages take longer", remedy=remedy)
