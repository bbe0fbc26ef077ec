"""Upkeep of a table: joining small files, removing files that nothing refers to."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magnetar.pipeline.lake.compaction import join_files, plan_groups, replace_group

if TYPE_CHECKING:
    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.lake.committer import Committer
    from magnetar.pipeline.lake.data_file import DataFile
    from magnetar.pipeline.lake.table_files import TableFiles
    from magnetar.pipeline.progress import Progress


@dataclass(frozen=True, slots=True)
class JoinPiece:
    """One group of files for one task; pickles."""

    place: TableFiles
    group: tuple[DataFile, ...]
    schema: pa.Schema
    partition_column: str | None
    prefix: str


def join_piece(piece: JoinPiece) -> list[DataFile]:
    """Write the rows of a group into new files. Raises: SinkFullError, OSError; no new file is left then."""
    return join_files(piece.place, piece.group, piece.schema, piece.prefix, partition_column=piece.partition_column)


def join_small_files(
    table: Committer, runner: Runner, progress: Progress, *, target_bytes: int = 512 << 20
) -> dict[str, Any]:
    """Join small files of one topic partition and date into files of about `target_bytes`.

    Each group is a separate commit, so a stopped job keeps its finished work; running exports are not affected.
    """
    groups = plan_groups(table.files(), target_bytes=target_bytes)
    schema = table.prepare(pa.schema([]))
    run = uuid.uuid4().hex[:8]
    pieces = [
        JoinPiece(table.place, tuple(group), schema, table.partition_column, f"joined-{run}-{number:06d}")
        for number, group in enumerate(groups)
    ]
    weights = [float(sum(each.bytes for each in group)) for group in groups]
    progress.begin(sum(weights))
    report = {"groups": len(groups), "files_before": sum(map(len, groups)), "files_after": 0, "skipped": 0}
    at_once = max(1, runner.cores) * 4
    for start in range(0, len(pieces), at_once):
        joined = runner.map(join_piece, pieces[start : start + at_once], progress, weights[start : start + at_once])
        for group, added in zip(groups[start : start + at_once], joined, strict=True):
            if replace_group(table, group, added):
                report["files_after"] += len(added)
            else:
                report["skipped"] += 1
    return report
