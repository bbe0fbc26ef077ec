"""Whether this process may open, or make, the store in a data directory; opens no file of the store for writing. Only
where the directory is absent, a trial makes another directory in its place, and removes it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.store_version import stored_format
from magnetar.storage.errors import UnsupportedFormatError

__all__ = ["obstacles"]


def obstacles(data_dir: str) -> list[str]:
    """Return a sentence for each place at which a start would fail: no directory, no right to write, or a store of a
    newer format.

    The lock and damage of the store are not looked at.
    """
    root = Path(os.path.abspath(data_dir))  # noqa: PTH100 - the path as it is named, with its links
    if not os.path.lexists(root):
        return _of_absent(root)
    found = _of_directory(root)
    if found:
        return [found]
    layout = Layout(str(root))
    folders = [_of_directory(Path(each)) for each in (layout.metadata, layout.journal, layout.ledgers)]
    files = [_of_file(each) for each in (layout.version, layout.lock)]
    return [each for each in (*folders, *files) if each] or _of_newer_format(layout)


def _of_newer_format(layout: Layout) -> list[str]:
    try:
        stored_format(RealFiles(), layout)
    except UnsupportedFormatError as error:
        return [str(error)]
    except OSError as error:
        return [f"{layout.version}: {error.strerror}"]
    return []


def _of_absent(root: Path) -> list[str]:
    """A start makes the directory in its nearest ancestor that exists."""
    ancestor = next(each for each in root.parents if os.path.lexists(each))
    found = _of_directory(ancestor) or _of_new_directories(ancestor)
    return [f"{found}; a start makes {root} there"] if found else []


def _of_new_directories(path: Path) -> str:
    """Some file systems, like that of /proc, take no directory whatever the rights; a full one takes none either."""
    try:
        Path(tempfile.mkdtemp(prefix=".magnetar-check-", dir=path)).rmdir()
    except OSError as error:
        return f"no directory can be made in {path} ({error.strerror})"
    return ""


def _of_directory(path: Path) -> str:
    if not os.path.lexists(path):
        return ""
    if not path.is_dir():
        return f"{path} is a link to a missing directory" if path.is_symlink() else f"{path} is no directory"
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return f"user {os.geteuid()} must have the right to read and write in {path}"
    return ""


def _of_file(path: str) -> str:
    if Path(path).exists() and not os.access(path, os.R_OK | os.W_OK):
        return f"user {os.geteuid()} must have the right to read and write {path}"
    return ""
