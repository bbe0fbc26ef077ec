"""The protocol of a table; opens a table by its format."""

from __future__ import annotations

import importlib
import pathlib
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.pipeline.lake.errors import NotATableError
from magnetar.pipeline.lake.table_files import TableFiles
from magnetar.pipeline.needed_packages import MissingError
from magnetar.pipeline.option_table import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from magnetar.pipeline.lake.data_file import Append, DataFile


class Committer(Protocol):
    """One table. Every method looks at the newest version of it; none keeps a lock between calls.

    place: where data files go; it is given to the tasks.
    partition_column: the column that stands in the directory names instead of the files; None when files hold it.
    """

    place: TableFiles
    partition_column: str | None

    def prepare(self, schema: pa.Schema) -> pa.Schema:
        """Create the table, or add the columns that it lacks; the schema that data files are written with.

        Raises: SchemaDriftError, NotATableError, LakeError.
        """

    def committed(self, topics: Iterable[str]) -> dict[str, int]:
        """Topic partition -> index up to which (exclusive) the table is complete, for the topics in the table."""

    def ledgers(self, topics: Iterable[str]) -> dict[str, int]:
        """Topic partition -> the newest ledger of its log when its last commit was planned, where the table has it."""

    def commit(self, append: Append) -> None:
        """Add the files; returns when the commit is durable.

        Raises: CommitConflictError when the table does not end where the append begins, or another commit won; nothing
                is committed then. SinkFullError, LakeError.
        """

    def files(self) -> list[DataFile]:
        """The data files of the newest version."""

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        """Exchange files for others with the same rows (compaction). Raises: as `commit`."""

    def vacuum(self, older_than_s: float, *, dry_run: bool = False) -> list[str]:
        """Remove data files that no version of the last `older_than_s` seconds refers to; returns their relative paths.

        Files younger than that are never removed: a running job may be about to commit them.
        """


FORMATS: Final = {
    "parquet": ("magnetar.pipeline.lake.parquet", "ParquetTable", "spark"),
    "delta": ("magnetar.pipeline.lake.delta", "DeltaLakeTable", "delta"),
    "iceberg": ("magnetar.pipeline.lake.iceberg", "IcebergTable", "iceberg"),
}
"""Format -> module, class, and the extra that installs its dependencies."""
_COMMITS: Final = {"parquet": "_magnetar/*.json", "delta": "_delta_log/*.json", "iceberg": "metadata/*.metadata.json"}
"""Format -> the files of its commits, below the folder of a table."""


def open_table(table_format: str, uri: str, options: Mapping[str, str] | None = None) -> Committer:
    """The table of this format at `uri`; it need not exist yet.

    Args:    uri: a directory or a URI of pyarrow's file systems.
             options: of the format (Delta: deltalake's storage options; Iceberg: properties of pyiceberg's catalog).
    Raises:  NotATableError for an unknown format, MissingError for a format whose library is not installed,
             OptionError where a local folder holds a table of another format alone: readers of the folder would find
             the rows of both.
    """
    if table_format not in FORMATS:
        raise NotATableError(f"format {table_format!r} is not known; there are {', '.join(FORMATS)}")
    if (other := _other_format(table_format, uri)) is not None:
        raise OptionError(f"{uri} holds a table of format {other}: give --format {other}, or another folder")
    module, name, extra = FORMATS[table_format]
    try:
        table: Committer = getattr(importlib.import_module(module), name)(uri, dict(options or {}))
    except ImportError as error:
        raise MissingError(f"{error}: install it with  pip install '/path/to/magnetar[{extra}]'") from error
    return table


def _other_format(table_format: str, uri: str) -> str | None:
    place = TableFiles(uri)
    if not place.is_local:
        return None
    held = [each for each, commits in _COMMITS.items() if any(pathlib.Path(place.uri).glob(commits))]
    return held[0] if held and table_format not in held else None
