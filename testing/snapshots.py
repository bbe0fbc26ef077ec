"""Copies of a data directory, to which a broker can return.

The broker's data directory is a link to one of several directories beside it: `data -> data.live-3`. A restore gives
the next broker a copy of the snapshot under a new name, so that the old broker, which still closes its files, keeps its
own directory.
"""

from __future__ import annotations

import pathlib
import re
import shutil
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LIVE: Final = "live-"


class SnapshotError(ValueError):
    """There is no snapshot of this name, or the name is invalid."""


class Snapshots:
    """The snapshots of one data directory. `live`: where the broker is."""

    def __init__(self, data_dir: str) -> None:
        self._link = pathlib.Path(data_dir).absolute()
        self._link.parent.mkdir(parents=True, exist_ok=True)
        if self._link.is_symlink():
            self.live = self._link.resolve()
        else:
            self.live = self._beside(_LIVE + "1")
            if self._link.exists():
                self._link.rename(self.live)
            else:
                self.live.mkdir(mode=0o700, exist_ok=True)
            self._link.symlink_to(self.live.name)

    def _beside(self, name: str) -> pathlib.Path:
        return self._link.with_name(f"{self._link.name}.{name}")

    def _path(self, name: str) -> pathlib.Path:
        if not _NAME.fullmatch(name) or name.startswith("."):
            raise SnapshotError("a snapshot's name has letters, digits, _ . and - alone, at most 64")
        return self._beside("snapshot-" + name)

    def names(self) -> list[str]:
        prefix = self._link.name + ".snapshot-"
        return sorted(p.name.removeprefix(prefix) for p in self._link.parent.glob(prefix + "*"))

    def check(self, name: str) -> None:
        """Raises SnapshotError for an invalid name."""
        self._path(name)

    def take(self, name: str) -> None:
        """Copy the data directory; the broker must be closed. The copy, once complete, replaces the old snapshot."""
        path, new = self._path(name), self._beside("new-snapshot")
        shutil.rmtree(new, ignore_errors=True)
        try:
            _copy(self.live, new)
            shutil.rmtree(path, ignore_errors=True)
            new.rename(path)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def restore(self, name: str) -> pathlib.Path:
        """Make a copy of the snapshot the live directory; return the former directory, which may be removed once
        closed.

        Raises SnapshotError for a missing snapshot.
        """
        path = self._path(name)
        if not path.is_dir():
            known = ", ".join(self.names()) or "none"
            raise SnapshotError(f"there is no snapshot {name!r}; there are: {known}")
        before = self.live
        number = int(before.name.rpartition("-")[2]) if before.name.rpartition("-")[2].isdigit() else 0
        self.live = self._beside(f"{_LIVE}{number + 1}")
        shutil.rmtree(self.live, ignore_errors=True)
        _copy(path, self.live)
        self.point()
        return before

    def point(self) -> None:
        """Point the link at the live directory, atomically."""
        new = self._link.with_name(self._link.name + ".link")
        new.unlink(missing_ok=True)
        new.symlink_to(self.live.name)
        new.replace(self._link)

    def drop(self, name: str) -> None:
        shutil.rmtree(self._path(name), ignore_errors=True)


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK"))
