"""A Delta table, through deltalake: without a JVM, readable for every Delta reader.

The table is append-only and partitioned by `__date`. Each topic partition is an application of the transaction log
(``txn`` action: app id ``magnetar:<topic partition>``, version = index up to which the table is complete), so the
position and the files of a commit are one atomic action. deltalake does not retry commits: a commit that meets another
commit fails, and the caller then compares its range with the new position.

On a local disk the data files are synced before a commit names them. deltalake names the file of a commit without a
sync; a method syncs its commit, and the commit before it, which may be another job's, before it returns. When the
machine stops before that sync, the newest commit may be missing, empty (then it does not count) or incomplete, and
nothing depends on that commit.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from magnetar.pipeline.lake.data_file import Append, DataFile, ensure_follows
from magnetar.pipeline.lake.errors import CommitConflictError, LakeError, NotATableError, SchemaDriftError
from magnetar.pipeline.lake.schema import merge
from magnetar.pipeline.lake.table_files import TableFiles, raising_full
from magnetar.pipeline.lake.writer import DATE_COLUMN, NO_DATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

APP_ID: Final = "magnetar:"
LEDGER_ID: Final = "magnetar-ledger:"
"""App id whose version is the newest ledger of the topic partition when the commit was planned."""
_LOG: Final = "_delta_log"
_DATE = pa.field(DATE_COLUMN, pa.date32())
_HOUR_S = 3600


class DeltaLakeTable:
    """A `Committer`. Options: deltalake's storage options."""

    partition_column: str | None = DATE_COLUMN

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self.place = TableFiles(uri).without("%", "deltalake")
        self._options = dict(options or {}) or None
        self._table: DeltaTable | None = None

    def prepare(self, schema: pa.Schema) -> pa.Schema:
        table = self._newest()
        if table is None:
            self._create(schema)
            table = self._newest()
            assert table is not None, "it was created, or another process has created it"
        have = _schema_of(table)
        merged = merge(have, schema, widen=False)
        added = [field for field in merged if field.name not in have.names]
        for field in merged:
            if field.name in have.names and not field.type.equals(have.field(field.name).type):
                raise SchemaDriftError(field.name, have.field(field.name).type, field.type)
        if added:
            try:
                with raising_full(self.place.uri):
                    before = table.version()
                    table.alter.add_columns([Field.from_arrow(field) for field in added])
                    self._sync_log(before)
            except DeltaError as error:
                raise CommitConflictError(f"{self.place.uri}: columns could not be added: {error}") from error
        return merged

    def committed(self, topics: Iterable[str]) -> dict[str, int]:
        return self._versions(APP_ID, topics)

    def ledgers(self, topics: Iterable[str]) -> dict[str, int]:
        return self._versions(LEDGER_ID, topics)

    def _versions(self, prefix: str, topics: Iterable[str]) -> dict[str, int]:
        table = self._newest()
        found = {topic: table.transaction_version(prefix + topic) for topic in topics} if table is not None else {}
        return {topic: version for topic, version in found.items() if version is not None}

    def commit(self, append: Append) -> None:
        table = self._existing()
        ensure_follows(self.committed(append.firsts()), append)
        properties = CommitProperties(
            max_commit_retries=0,
            app_transactions=[
                *(Transaction(APP_ID + topic, end) for topic, end in append.ends().items()),
                *(Transaction(LEDGER_ID + topic, ledger_id) for topic, ledger_id in append.ledgers.items()),
            ],
            custom_metadata={
                "magnetar.spans": json.dumps([[span.topic, span.start, span.end] for span in append.spans]),
                "magnetar.lost": json.dumps([[span.topic, span.start, span.end] for span in append.lost]),
                "magnetar.quarantined": str(append.quarantined),
            },
        )
        self._write(table, [_add(each, data_change=True) for each in append.files], properties)

    def files(self) -> list[DataFile]:
        table = self._newest()
        if table is None:
            return []
        return [_data_file(row) for row in pa.table(table.get_add_actions(flatten=True)).to_pylist()]

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        table = self._existing()
        if not {each.path for each in self.files()}.issuperset(each.path for each in removed):
            raise CommitConflictError("another compaction has replaced these files")
        now = time.time_ns() // 1_000_000
        gone = [
            RemoveAction(
                each.path,
                data_change=False,
                deletion_timestamp=now,
                size=each.bytes,
                partition_values={DATE_COLUMN: each.date},
            )
            for each in removed
        ]
        properties = CommitProperties(max_commit_retries=0, custom_metadata={"magnetar.operation": "compaction"})
        self._write(table, [*gone, *(_add(each, data_change=False) for each in added)], properties)

    def vacuum(self, older_than_s: float, *, dry_run: bool = False) -> list[str]:
        return self._existing().vacuum(
            retention_hours=math.ceil(older_than_s / _HOUR_S),
            dry_run=dry_run,
            enforce_retention_duration=False,
            full=True,
        )

    # --- deltalake --------------------------------------------------------------------------------------------------

    def _newest(self) -> DeltaTable | None:
        """Open the table at its newest version; None for a missing table."""
        if self._table is None:
            try:
                self._table = DeltaTable(self.place.uri, storage_options=self._options)
            except TableNotFoundError:
                return None
            except DeltaError as error:
                raise LakeError(f"{self.place.uri}: {self._incomplete() or error}") from error
            if self._table.metadata().partition_columns != [DATE_COLUMN]:
                raise NotATableError(f"{self.place.uri} is a Delta table that was not made by this pipeline")
        else:
            self._table.update_incremental()
        return self._table

    def _existing(self) -> DeltaTable:
        table = self._newest()
        if table is None:
            raise NotATableError(f"{self.place.uri}: no Delta table")
        return table

    def _create(self, schema: pa.Schema) -> None:
        with raising_full(self.place.uri):
            try:
                DeltaTable.create(
                    self.place.uri,
                    Schema.from_arrow(schema.append(_DATE)),
                    mode="error",
                    partition_by=[DATE_COLUMN],
                    configuration={"delta.appendOnly": "true"},
                    storage_options=self._options,
                )
            except DeltaError as error:
                if not DeltaTable.is_deltatable(self.place.uri, self._options):
                    raise LakeError(f"{self.place.uri}: {error}") from error
            self._sync_log(0)

    def _write(self, table: DeltaTable, actions: list[Any], properties: CommitProperties) -> None:
        with raising_full(self.place.uri):
            before = table.version()
            try:
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    partition_by=[DATE_COLUMN],
                    commit_properties=properties,
                    post_commithook_properties=PostCommitHookProperties(create_checkpoint=True),
                )
            except CommitFailedError as error:
                raise CommitConflictError(f"{self.place.uri}: another commit came first ({error})") from error
            except DeltaError as error:
                raise LakeError(f"{self.place.uri}: {error}") from error
            self._sync_log(before)

    def _sync_log(self, first: int) -> None:
        """Return when the commits from version `first` on are on the disk, with the checkpoints that belong to them."""
        if not self.place.is_local:
            return
        names = [f"{_LOG}/_last_checkpoint"]
        for version in range(first, self._existing().version() + 1):
            names += [f"{_LOG}/{version:020d}.json", f"{_LOG}/{version:020d}.checkpoint.parquet"]
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # there are few checkpoints, and readers remove old commits
                self.place.sync(name)

    def _incomplete(self) -> str:
        """The text for a table whose newest commit is incomplete; empty when another error is the reason."""
        commits = [each.path for each in self.place.list(_LOG) if each.path.endswith(".json")]
        if not commits:
            return ""
        try:
            with self.place.open_input(commits[-1]) as file:
                for line in file.read().splitlines():
                    json.loads(line)
        except ValueError:
            return (
                f"{commits[-1]} is incomplete, because the machine stopped while it was written; no finished export "
                "depends on it: remove that file"
            )
        return ""


def _schema_of(table: DeltaTable) -> pa.Schema:
    """Arrow types as pyarrow has them, without the partition column."""
    schema = pa.schema(table.schema().to_arrow())
    fields = [pa.field(f.name, _plain(f.type)) for f in schema if f.name != DATE_COLUMN]
    return pa.schema(fields)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Maps and lists with pyarrow's own names of their parts, so that types compare equal."""
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(i).name, _plain(kind.field(i).type)) for i in range(kind.num_fields)])
    return kind


def _add(each: DataFile, *, data_change: bool) -> AddAction:
    limits: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    if each.min_index >= 0:
        limits[0]["__index"], limits[1]["__index"] = each.min_index, each.max_index
    if each.topic:
        limits[0]["__topic"] = limits[1]["__topic"] = each.topic
    stats = {"numRecords": each.rows, "minValues": limits[0], "maxValues": limits[1], "nullCount": {}}
    changed = (each.max_time_us or 0) // 1000
    return AddAction(each.path, each.bytes, {DATE_COLUMN: each.date}, changed, data_change, json.dumps(stats))


def _data_file(row: Mapping[str, Any]) -> DataFile:
    date = row.get(f"partition.{DATE_COLUMN}")
    low, high = row.get("min.__index"), row.get("max.__index")
    topic = row.get("min.__topic")
    return DataFile(
        row["path"],
        topic if topic is not None and topic == row.get("max.__topic") else "",
        None if date in (None, NO_DATE) else str(date),
        row["num_records"] or 0,
        row["size_bytes"],
        -1 if low is None else low,
        -1 if high is None else high,
    )
