"""Joins small files of a table into large files. Rows, their order by index, and the table's position stay."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from magnetar.pipeline.lake.errors import CommitConflictError
from magnetar.pipeline.lake.writer import DEFAULT_WRITE, SplitWriter, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from magnetar.pipeline.lake.committer import Committer
    from magnetar.pipeline.lake.data_file import DataFile
    from magnetar.pipeline.lake.table_files import TableFiles

_BATCH_ROWS = 4096
_MOST_ATTEMPTS = 20


def plan_groups(files: Iterable[DataFile], *, target_bytes: int) -> list[list[DataFile]]:
    """Groups of files to join: runs, in order of their indexes, of at least two files below half the target.

    Only files of one topic partition and one date stand in a group, and together they have at most `target_bytes`.
    """
    groups: list[list[DataFile]] = []
    ordered = sorted(files, key=lambda each: (each.topic, each.date or "", each.min_index, each.path))
    for _, same in itertools.groupby(ordered, key=lambda each: (each.topic, each.date)):
        run: list[DataFile] = []
        for each in same:
            small = each.bytes < target_bytes // 2
            if run and (not small or sum(other.bytes for other in run) + each.bytes > target_bytes):
                groups.append(run)
                run = []
            if small:
                run.append(each)
        groups.append(run)
    return [group for group in groups if len(group) > 1]


def join_files(
    place: TableFiles,
    group: Sequence[DataFile],
    schema: pa.Schema,
    prefix: str,
    *,
    partition_column: str | None,
    options: WriteOptions = DEFAULT_WRITE,
) -> list[DataFile]:
    """Write the rows of a group into new files; holds one row group of one input at a time. Nothing is committed.

    Raises: SinkFullError, OSError. No new file is left then.
    """
    with SplitWriter(
        place, prefix, schema, topic=group[0].topic, partition_column=partition_column, options=options
    ) as writer:
        for each in group:
            with place.open_input(each.path) as source, pq.ParquetFile(source) as parquet:
                for batch in parquet.iter_batches(_BATCH_ROWS):
                    writer.write(batch)
        return writer.close()


def replace_group(table: Committer, group: Sequence[DataFile], added: Sequence[DataFile]) -> bool:
    """Commit a joined group; repeats the commit when another job's commit came first.

    Returns: False when another compaction has replaced files of the group, or the last attempt met another commit too;
    the new files are removed then.
    """
    for _ in range(_MOST_ATTEMPTS):
        try:
            table.replace(group, added)
        except CommitConflictError:
            if not {each.path for each in table.files()}.issuperset(each.path for each in group):
                break
        else:
            return True
    for each in added:
        table.place.remove(each.path)
    return False
