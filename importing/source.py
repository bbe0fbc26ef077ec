"""A file to be imported: opened once, read by position, and recognized by its name and its first batch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from magnetar.client.errors import InputError
from magnetar.converters.kafka.log_file import LogDamage, LogFile
from magnetar.converters.kafka_entry.import_plan import SequenceMode, producer_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def find_files(paths: list[Path]) -> list[Path]:
    """The files to import, in order; a directory stands for the segments (*.log) in it by name.

    Raises: InputError.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            segments = sorted(path.glob("*.log"))
            if not segments:
                raise InputError(f"{path}: no segments (*.log) in this directory{_hint(path)}")
            files += segments
        else:
            files.append(path)
    return files


def _hint(path: Path) -> str:
    """Name a partition's directory below a directory that holds such directories, like Kafka's log directory."""
    below = sorted(
        each.parent for each in path.glob("*/*.log") if SequenceMode.for_file(each.name) is SequenceMode.OFFSET
    )
    return f"; give the directory of a partition, such as {below[0]}" if below else ""


def is_empty_segment(path: Path) -> bool:
    """Kafka keeps a segment of no bytes for a partition without records, and behind removed records."""
    try:
        return SequenceMode.for_file(path.name) is SequenceMode.OFFSET and path.stat().st_size == 0
    except OSError:
        return False


class Source:
    """One open file. Close it, or use it as a context manager.

    name: the producer's name. Label and first batch decide it, so it stays the same when the file grows.
    """

    def __init__(self, path: Path, *, label: str | None = None, mode: SequenceMode | None = None) -> None:
        """Open the file and read its first batch. Raises: InputError when it cannot be read or holds no batch."""
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
            self.size = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        self.mode = mode or SequenceMode.for_file(path.name)
        absolute = path.absolute()
        try:
            self.name = producer_name(
                label or f"{absolute.parent.name}/{absolute.name}", self._first_batch(), self.mode
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def log(self, on_damage: Callable[[LogDamage], None] | None = None) -> LogFile:
        """Return the batches of the file from its beginning, up to the size that the file had when it was opened."""
        return LogFile(self._read, self.size, on_damage=on_damage)

    def _read(self, position: int, length: int) -> bytes:
        try:
            return os.pread(self._descriptor, length, position)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read at position {position}: {error.strerror}") from error

    def _first_batch(self) -> bytes:
        # The import itself judges damage in front of the first batch; here, damage must not change the producer's name.
        for item in self.log(lambda _damage: None).batches():
            return bytes(item.batch.buffer)
        raise InputError(
            f"{self.path}: no Kafka record batch in its {self.size} bytes; a log segment (.log) or a file of "
            "concatenated batches (magic 0, 1, 2) is expected"
        )
