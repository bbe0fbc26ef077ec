"""The transactions of the files to import: read once, before the first record of a partition is stored.

A transaction may begin in one segment and end in a later segment. For a segment of a partition's directory the survey
therefore covers the segments from the first given segment on, and, behind the last given segment, further segments of
the directory until every open transaction has ended. Any other file is a separate log.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.client.errors import InputError
from magnetar.converters.kafka.log_file import LogFile
from magnetar.converters.kafka.transactions import TransactionSurvey
from magnetar.converters.kafka_entry.import_plan import SequenceMode, place_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from magnetar.converters.kafka.log_file import LogDamage
    from magnetar.converters.kafka.transactions import Transactions
    from magnetar.importing.progress import Progress
    from magnetar.importing.source import Source


@dataclass(frozen=True, slots=True)
class _Surveyed:
    """The transactions found, and the size that each file had when it was read."""

    transactions: Transactions
    sizes: dict[Path, int]


class TransactionReader:
    """Finds the `Transactions` of each source. Reading blocks the calling thread.

    Args: files: all files that the command imports.
          skip_open: count transactions without an end marker as aborted.
    """

    def __init__(self, files: Sequence[Path], progress: Progress, *, skip_open: bool = False) -> None:
        self._files = files
        self._progress = progress
        self._skip_open = skip_open
        self._partitions: dict[Path, _Surveyed] = {}

    def of(self, source: Source) -> Transactions:
        """Return the transactions of the source's log. Raises: InputError when a file cannot be read."""
        if SequenceMode.for_file(source.path.name) is not SequenceMode.OFFSET:
            return self._ended(self._survey([source.path], source.path, source.mode))
        directory = source.path.absolute().parent
        known = self._partitions.get(directory)
        # The active segment of a running Kafka grows: an earlier survey lacks the batches appended since.
        if known is None or known.sizes.get(source.path.absolute(), -1) < source.size:
            known = self._partitions[directory] = self._survey_partition(directory, source.mode)
        return self._ended(known)

    def _ended(self, found: _Surveyed) -> Transactions:
        return found.transactions.with_open_aborted() if self._skip_open else found.transactions

    def _survey_partition(self, directory: Path, mode: SequenceMode) -> _Surveyed:
        given = sorted(path.absolute() for path in self._files if path.absolute().parent == directory)
        segments = sorted(
            path
            for path in directory.glob("*.log")
            if SequenceMode.for_file(path.name) is SequenceMode.OFFSET and path >= given[0]
        )
        return self._survey(segments, given[-1], mode)

    def _survey(self, paths: Sequence[Path], last_given: Path, mode: SequenceMode) -> _Surveyed:
        survey, sizes = TransactionSurvey(), {}
        for path in paths:
            if path > last_given and not survey.has_open:
                break
            sizes[path] = self._survey_file(path, mode, survey)
        return _Surveyed(survey.result(), sizes)

    def _survey_file(self, path: Path, mode: SequenceMode, survey: TransactionSurvey) -> int:
        """Add the batches of one file to the survey; return the size of the file."""
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        try:
            size = os.fstat(descriptor).st_size

            def note(_damage: LogDamage) -> None:
                survey.damage()

            log = LogFile(lambda position, length: os.pread(descriptor, length, position), size, on_damage=note)
            for item in log.batches():
                survey.add(item.batch, place_of(item, mode))
                self._progress.surveying(path, item.next_position, size)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        finally:
            os.close(descriptor)
        return size
