"""Removing unreferenced data files: files of killed tasks, and files that compaction has replaced."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from magnetar.pipeline.lake.writer import DATE_COLUMN, PUBLISH_DATE

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from magnetar.pipeline.lake.table_files import TableFiles

STAGING: Final = "_staging"
"""Directory of a table for files between the phases of a job; a job that ends removes its part."""

_DATA: Final = (f"{DATE_COLUMN}=", f"{PUBLISH_DATE}=", "data")
"""Beginnings of the directories of data files."""


def remove_unreferenced(
    place: TableFiles, needed: Callable[[], AbstractSet[str]], older_than_s: float, *, dry_run: bool = False
) -> list[str]:
    """Remove Parquet files that are not `needed` and were last changed `older_than_s` seconds ago or earlier.

    needed: called after the files are listed, so its result includes a file that a job commits meanwhile.

    Nothing else is touched: no other file type, nothing in a directory whose name begins with "_" or "." (logs and
    metadata), except for directories of the partition column.
    Returns: the relative paths, ascending.
    """
    limit = time.time() - older_than_s
    old = [each.path for each in place.list() if each.changed_s <= limit and is_data_file(each.path)]
    kept = needed()
    found = [path for path in old if path not in kept]
    if not dry_run:
        for path in found:
            place.remove(path)
    return found


def remove_staging(place: TableFiles, older_than_s: float, *, dry_run: bool = False) -> list[str]:
    """Remove the remains of killed jobs below `STAGING`, last changed `older_than_s` seconds ago or earlier; returns
    the paths.
    """
    limit = time.time() - older_than_s
    found = [each.path for each in place.list(STAGING) if each.changed_s <= limit]
    if not dry_run:
        for path in found:
            place.remove(path)
    return found


def is_data_file(path: str) -> bool:
    """Whether `SplitWriter` may have made a file of this path: a Parquet file in `data/` or a directory of a date."""
    directory, _, name = path.rpartition("/")
    return name.endswith(".parquet") and not name.startswith((".", "_")) and directory.startswith(_DATA)
