"""The memory that this process may use, and a warning where the settings let it use more.

Beyond the limit of a control group (a container, `MemoryMax` of a unit) the system kills the process without a word, so
the broker says at its start which settings to lower.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.control_groups import GROUPS, VERSION_2, group_paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["usable_bytes", "warn_of_little_memory"]

log = structlog.get_logger(__name__)

_MIB: Final = 1 << 20
_OWN_MIB: Final = 72
"""Most memory of a broker with few topics beside its budgets (docs/operation.md)."""
_OLD_CONTROLLER: Final = "memory"


def usable_bytes(root: Path = Path("/")) -> int:
    """The memory of the machine, or the lowest limit of the control groups around this process."""
    machine = os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()
    return min((machine, *_limits(root)))


def _limits(root: Path) -> Iterator[int]:
    paths, mounted = group_paths(root), root / GROUPS
    places = (
        (mounted, paths.get(VERSION_2, ""), "memory.max"),
        (mounted / _OLD_CONTROLLER, paths.get(_OLD_CONTROLLER, ""), "memory.limit_in_bytes"),
    )
    for top, path, name in places:
        own = PurePosixPath(path)
        for group in dict.fromkeys((own, *own.parents, PurePosixPath())):  # a limit of a parent holds too
            try:
                text = (top / group / name).read_text(encoding="ascii").strip()
            except OSError:
                continue
            if text.isdigit():  # not "max"
                yield int(text)


def warn_of_little_memory(budgets: Mapping[str, int], usable: int) -> None:
    """Log when the budgets (setting -> MiB) and the broker's own memory exceed the usable bytes."""
    needed = _OWN_MIB + sum(budgets.values())
    if needed > usable // _MIB:
        set_to = " ".join(f"{key}={value}" for key, value in budgets.items())
        log.warning(
            "memory.limit_exceeded_by_settings",
            limit_mb=usable // _MIB,
            settings_mb=needed,
            settings=set_to,
            effect="the system can kill the broker",
            remedy="lower these settings or raise the limit: docs/operation.md, little memory",
        )
