"""An Iceberg table, through pyiceberg: the data files that tasks wrote are added to it as they are.

The table is partitioned by ``day(__brokerPublishTime)``. The position of each topic partition is a table property
(``magnetar.committed-index.<topic partition>``) that changes in the same commit as the files; each snapshot's summary
names the ranges that it added. A commit requires the snapshot that it started from, and pyiceberg's own retries are off
(they would write an old position over a newer position). On a local disk the data files, manifests and metadata files
are synced before the catalog names them, and the catalog's own database before a commit returns.

Options are properties of the catalog. Without options the catalog is an SQLite file beside the data (``catalog.db``),
for a single machine; ``{"type": "rest", "uri": ...}`` and pyiceberg's other catalogs serve several.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, parquet_files_to_data_files, schema_to_pyarrow
from pyiceberg.table import TableProperties
from pyiceberg.transforms import DayTransform
from sqlalchemy.exc import OperationalError

from magnetar.pipeline.lake.data_file import Append, DataFile, ensure_follows
from magnetar.pipeline.lake.errors import CommitConflictError, NotATableError, SinkFullError
from magnetar.pipeline.lake.schema import merge
from magnetar.pipeline.lake.table_files import TableFiles, raising_full, sync_with_directories
from magnetar.pipeline.lake.vacuum import remove_unreferenced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

COMMITTED: Final = "magnetar.committed-index."
LEDGER: Final = "magnetar.newest-ledger."
_TIME = "__brokerPublishTime"
_DATABASE = "catalog.db"
_NAMESPACE = "magnetar.namespace"
"""Option: the namespace of the catalog that the table is in; `lake` by default."""
_TABLE_PROPERTIES = {
    TableProperties.COMMIT_NUM_RETRIES: "0",
    "write.metadata.metrics.column.__topic": "full",
    "write.parquet.compression-codec": "zstd",
}


class IcebergTable:
    """A `Committer`. The table's name is the last part of `uri`."""

    partition_column: str | None = None

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self.place = TableFiles(uri).without("%#?", "pyiceberg")
        properties = dict(options or {})
        self._namespace = properties.pop(_NAMESPACE, "lake")
        self._properties = properties
        name = posixpath.basename(self.place.uri)
        self._identifier = (self._namespace, name)
        self._location = f"file://{self.place.uri}" if self.place.is_local else self.place.uri
        self._loaded: Catalog | None = None

    def prepare(self, schema: pa.Schema) -> pa.Schema:
        table = self._newest()
        if table is None:
            table = self._create(schema)
        have = _plain_schema(table)
        merged = merge(have, schema, widen=True)
        if not merged.equals(have):
            try:
                with table.update_schema() as update:
                    update.union_by_name(merged)
            except CommitFailedException as error:
                raise CommitConflictError(f"{self.place.uri}: columns could not be added: {error}") from error
        return merged

    def committed(self, topics: Iterable[str]) -> dict[str, int]:
        return self._numbers(COMMITTED, topics)

    def ledgers(self, topics: Iterable[str]) -> dict[str, int]:
        return self._numbers(LEDGER, topics)

    def _numbers(self, prefix: str, topics: Iterable[str]) -> dict[str, int]:
        table = self._newest()
        properties = table.properties if table is not None else {}
        return {topic: int(properties[prefix + topic]) for topic in topics if prefix + topic in properties}

    def commit(self, append: Append) -> None:
        table = self._existing()
        found = {topic: table.properties.get(COMMITTED + topic) for topic in append.firsts()}
        ensure_follows({topic: int(end) for topic, end in found.items() if end is not None}, append)
        summary = {
            "magnetar.spans": json.dumps([[span.topic, span.start, span.end] for span in append.spans]),
            "magnetar.lost": json.dumps([[span.topic, span.start, span.end] for span in append.lost]),
            "magnetar.quarantined": str(append.quarantined),
        }
        ends = {COMMITTED + topic: str(end) for topic, end in append.ends().items()}
        ends |= {LEDGER + topic: str(ledger_id) for topic, ledger_id in append.ledgers.items()}
        with _conflicts(self.place.uri), table.transaction() as transaction:
            transaction.set_properties(ends)
            with transaction.update_snapshot(snapshot_properties=summary).fast_append() as update:
                for each in self._as_data_files(table, append.files):
                    update.append_data_file(each)
        self._sync_catalog()

    def files(self) -> list[DataFile]:
        table = self._newest()
        if table is None or table.current_snapshot() is None:
            return []
        return [self._data_file(each) for each in table.inspect.files().to_pylist()]

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        table = self._existing()
        gone = {self._absolute(each.path) for each in removed}
        known = {each.file.file_path: each.file for each in table.scan().plan_files()}
        if not gone <= known.keys():
            raise CommitConflictError("another compaction has replaced these files")
        summary = {"magnetar.operation": "compaction"}
        with (
            _conflicts(self.place.uri),
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=summary).overwrite() as update,
        ):
            for path in gone:
                update.delete_data_file(known[path])
            for each in self._as_data_files(table, added):
                update.append_data_file(each)
        self._sync_catalog()

    def vacuum(self, older_than_s: float, *, dry_run: bool = False) -> list[str]:
        table = self._existing()
        if not dry_run:
            limit = int((time.time() - older_than_s) * 1000)
            old = [each.snapshot_id for each in table.snapshots()[:-1] if each.timestamp_ms < limit]
            if old:
                with _conflicts(self.place.uri):
                    table.maintenance.expire_snapshots().by_ids(old).commit()
                self._sync_catalog()
        return remove_unreferenced(self.place, self._needed, older_than_s, dry_run=dry_run)

    def _needed(self) -> set[str]:
        """The data files of every snapshot."""
        table, found = self._existing(), set()
        for snapshot in table.snapshots():
            found.update(table.inspect.files(snapshot.snapshot_id)["file_path"].to_pylist())
        return {self._relative(path) for path in found}

    # --- pyiceberg --------------------------------------------------------------------------------------------------

    def _catalog(self) -> Catalog:
        if self._loaded is None:
            properties = self._properties
            if not properties:
                if not self.place.is_local:
                    raise NotATableError(f"{self.place.uri}: name a catalog, for example with --table-option type=rest")
                with raising_full(self.place.uri):
                    self.place.make_directory()
                database = f"sqlite:///{self.place.absolute(_DATABASE)}"
                properties = {"type": "sql", "uri": database, "warehouse": self._location}
            if self.place.is_local:
                properties = {PY_IO_IMPL: f"{SyncedFiles.__module__}.{SyncedFiles.__qualname__}", **properties}
            with _raising_full_catalog(self.place.uri):
                self._loaded = load_catalog("magnetar", **properties)
            weakref.finalize(self, self._loaded.close)  # else its database ends unclosed
        return self._loaded

    def _newest(self) -> Table | None:
        try:
            table = self._catalog().load_table(self._identifier)
        except NoSuchTableError:
            return None
        if table.properties.get(TableProperties.COMMIT_NUM_RETRIES) != "0":
            raise NotATableError(f"{self.place.uri} is an Iceberg table that was not made by this pipeline")
        return table

    def _existing(self) -> Table:
        table = self._newest()
        if table is None:
            raise NotATableError(f"{self.place.uri}: no Iceberg table")
        return table

    def _create(self, schema: pa.Schema) -> Table:
        catalog = self._catalog()
        with _raising_full_catalog(self.place.uri), contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(self._namespace)
        # Another process may create the table at the same time.
        with (
            contextlib.suppress(TableAlreadyExistsError, CommitFailedException),
            raising_full(self.place.uri),
            _raising_full_catalog(self.place.uri),
            catalog.create_table_transaction(
                self._identifier, schema, location=self._location, properties=_TABLE_PROPERTIES
            ) as transaction,
        ):
            mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
            if _TIME in schema.names:
                with transaction.update_spec() as update:
                    update.add_field(_TIME, DayTransform(), "date")
        return self._existing()

    def _sync_catalog(self) -> None:
        """Sync the catalog's database and its directory: SQLite syncs its file, but not the removal of its journal."""
        with contextlib.suppress(FileNotFoundError):  # another catalog
            self.place.sync(_DATABASE)

    def _as_data_files(self, table: Table, files: Sequence[DataFile]) -> Iterable[Any]:
        """Reads the footer of each file for its statistics and its partition."""
        return parquet_files_to_data_files(
            table.io, table.metadata, iter([self._absolute(each.path) for each in files])
        )

    def _absolute(self, path: str) -> str:
        return f"{self._location}/{path}"

    def _relative(self, path: str) -> str:
        root = urlsplit(self._location).path if self.place.is_local else self._location
        return posixpath.relpath(path.removeprefix("file://"), root)

    def _data_file(self, row: Mapping[str, Any]) -> DataFile:
        metrics = row["readable_metrics"] or {}
        index, topic = metrics.get("__index") or {}, metrics.get("__topic") or {}
        date = (row.get("partition") or {}).get("date")
        low, high = index.get("lower_bound"), index.get("upper_bound")
        name = topic.get("lower_bound")
        return DataFile(
            self._relative(row["file_path"]),
            name if name is not None and name == topic.get("upper_bound") else "",
            None if date is None else str(date),
            row["record_count"],
            row["file_size_in_bytes"],
            -1 if low is None else low,
            -1 if high is None else high,
        )


class SyncedFiles(PyArrowFileIO):
    """pyiceberg's access to files, for a local disk: a written file is durable once it is closed."""

    def new_output(self, location: str) -> PyArrowFile:
        made = super().new_output(location)
        made.__class__ = _SyncedFile
        return made


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        return _SyncedStream(super().create(overwrite), urlsplit(self.location).path)


class _SyncedStream:
    """A pyarrow file."""

    def __init__(self, stream: pa.NativeFile, path: str) -> None:
        self._stream, self._path = stream, path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Raises: OSError."""
        if not self._stream.closed:
            self._stream.close()
            table = posixpath.dirname(posixpath.dirname(self._path))  # the file is in TABLE/metadata
            sync_with_directories(self._path, posixpath.dirname(table))


@contextlib.contextmanager
def _raising_full_catalog(uri: str) -> Iterator[None]:
    """Turns SQLite's error of a full disk, which has no errno, into SinkFullError."""
    try:
        yield
    except OperationalError as error:
        if "disk is full" not in str(error):
            raise
        raise SinkFullError(uri, "the database of the catalog finds no room") from error


@contextlib.contextmanager
def _conflicts(uri: str) -> Iterator[None]:
    """Turns the errors of a lost race into CommitConflictError."""
    try:
        with raising_full(uri), _raising_full_catalog(uri):
            yield
    except (CommitFailedException, OperationalError) as error:
        raise CommitConflictError(f"{uri}: another commit came first ({error})") from error


def _plain_schema(table: Table) -> pa.Schema:
    """Arrow types as the decoder gives them."""
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(i).name, _plain(kind.field(i).type)) for i in range(kind.num_fields)])
    return kind
