"""The control groups of this process, of version 1 and 2, as the lines "id:controllers:path" name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["GROUPS", "VERSION_2", "group_paths"]

GROUPS: Final = "sys/fs/cgroup"
VERSION_2: Final = ""
"""The name of the controller in the line of version 2, which stands for all controllers."""


def group_paths(root: Path) -> dict[str, str]:
    """Controller -> path of the group below its mount point; empty where the system has no groups. Inside a container
    the path may be a path of the host; then the group is the root of the groups that the container sees.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    paths: dict[str, str] = {}
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths |= dict.fromkeys(controllers.split(","), path.strip("/"))
    return paths
