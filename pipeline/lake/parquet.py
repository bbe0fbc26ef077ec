"""A table of Parquet files with a log of manifests.

    publish_date=YYYY-MM-DD/*.parquet    data files, as every reader of a partitioned directory expects them
    _magnetar/<20 digits>.json           manifest n: files added and removed by commit n

A commit writes its manifest to a temporary file, syncs it, and gives it its name with link(2), which fails when the
name exists: of two commits with the same number one wins. A reader of a consistent version takes the files that the
manifests name (`dataset`); a reader of the whole directory may also see files of a commit that is under way, of killed
tasks, and files that `join-files` has replaced.

    {"format": 2, "number": n, "time_ms": ..., "schema": base64 Arrow IPC, "added": [DataFile], "removed": [path],
     "spans": [[topic, start, end]], "lost": [...], "quarantined": n, "committed": {topic: end},
     "ledgers": {topic: newest ledger}}

A table of format 1 keeps this format and its directories, which are called __date=YYYY-MM-DD.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from magnetar.pipeline.lake.data_file import Append, DataFile, ensure_follows
from magnetar.pipeline.lake.errors import CommitConflictError, NotATableError
from magnetar.pipeline.lake.schema import merge
from magnetar.pipeline.lake.table_files import TableFiles, raising_full
from magnetar.pipeline.lake.vacuum import remove_unreferenced
from magnetar.pipeline.lake.writer import DATE_COLUMN, PUBLISH_DATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LOG: Final = "_magnetar"
_COLUMNS: Final = {1: DATE_COLUMN, 2: PUBLISH_DATE}
"""Format of a table -> its partition column."""
_NEWEST: Final = 2


class ParquetTable:
    """A `Committer`. Needs a local (or POSIX network) file system: object stores have no link(2)."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self.place = TableFiles(uri)
        if not self.place.is_local:
            raise NotATableError(f"{uri}: a Parquet table needs a local file system; use Delta or Iceberg there")
        if options:
            raise NotATableError(f"a Parquet table has no options, but {', '.join(options)} is given")
        self._log = pathlib.Path(self.place.uri) / LOG
        self._seen: list[dict[str, Any]] = []

    @property
    def partition_column(self) -> str | None:
        """The column of the table, or of the table that the first commit makes."""
        return _COLUMNS[self._format()]

    def _format(self) -> int:
        manifests = self._manifests()
        return int(manifests[0]["format"]) if manifests else _NEWEST

    def prepare(self, schema: pa.Schema) -> pa.Schema:
        manifests = self._manifests()
        column = self.partition_column
        if any(name.lower() == column for name in schema.names):
            raise NotATableError(
                f"the topic's schema has a field {column}, which a Parquet table has for its directories: "
                "leave the field out with --columns, or use --format delta"
            )
        return merge(_schema_of(manifests[-1]), schema, widen=True) if manifests else schema

    def committed(self, topics: Iterable[str]) -> dict[str, int]:
        manifests = self._manifests()
        known = manifests[-1]["committed"] if manifests else {}
        return {topic: known[topic] for topic in topics if topic in known}

    def ledgers(self, topics: Iterable[str]) -> dict[str, int]:
        manifests = self._manifests()
        known = manifests[-1].get("ledgers", {}) if manifests else {}
        return {topic: known[topic] for topic in topics if topic in known}

    def commit(self, append: Append) -> None:
        manifests = self._manifests()
        committed = dict(manifests[-1]["committed"]) if manifests else {}
        ensure_follows(committed, append)
        schema = merge(_schema_of(manifests[-1]), append.schema, widen=True) if manifests else append.schema
        self._publish(
            len(manifests),
            schema,
            committed | append.ends(),
            (manifests[-1].get("ledgers", {}) if manifests else {}) | dict(append.ledgers),
            added=append.files,
            spans=[[span.topic, span.start, span.end] for span in append.spans],
            lost=[[span.topic, span.start, span.end] for span in append.lost],
            quarantined=append.quarantined,
        )

    def files(self) -> list[DataFile]:
        alive: dict[str, DataFile] = {}
        for manifest in self._manifests():
            for path in manifest["removed"]:
                alive.pop(path, None)
            alive.update({each["path"]: DataFile.from_json(each) for each in manifest["added"]})
        return list(alive.values())

    def schema(self) -> pa.Schema:
        """Return the schema of the newest version. Raises: NotATableError for an absent table."""
        manifests = self._manifests()
        if not manifests:
            raise NotATableError(f"{self.place.uri}: no table")
        return _schema_of(manifests[-1])

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        manifests = self._manifests()
        alive = {each.path for each in self.files()}
        if not alive.issuperset(each.path for each in removed):
            raise CommitConflictError("another compaction has replaced these files")
        newest = manifests[-1]
        self._publish(
            len(manifests),
            _schema_of(newest),
            newest["committed"],
            newest.get("ledgers", {}),
            added=added,
            removed=[each.path for each in removed],
        )

    def vacuum(self, older_than_s: float, *, dry_run: bool = False) -> list[str]:
        recent = (time.time() - older_than_s) * 1000

        def needed() -> set[str]:
            kept = {each.path for each in self.files()}
            for manifest in self._manifests():
                if manifest["time_ms"] >= recent:
                    kept.update(manifest["removed"])
            return kept

        return remove_unreferenced(self.place, needed, older_than_s, dry_run=dry_run)

    # --- the log ----------------------------------------------------------------------------------------------------

    def _manifests(self) -> list[dict[str, Any]]:
        """Return all manifests in order; the table reads each manifest once."""
        while (path := self._path(len(self._seen))).exists():
            manifest = json.loads(path.read_text(encoding="utf-8"))
            if manifest["format"] not in _COLUMNS:
                raise NotATableError(f"{path}: written by a newer version (format {manifest['format']})")
            self._seen.append(manifest)
        return self._seen

    def _path(self, number: int) -> pathlib.Path:
        return self._log / f"{number:020d}.json"

    def _publish(
        self,
        number: int,
        schema: pa.Schema,
        committed: Mapping[str, int],
        ledgers: Mapping[str, int],
        *,
        added: Sequence[DataFile],
        removed: Sequence[str] = (),
        **more: Any,
    ) -> None:
        """Raises: CommitConflictError when this number is taken, SinkFullError."""
        manifest = {
            "format": self._format(),
            "number": number,
            "time_ms": time.time_ns() // 1_000_000,
            "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
            "added": [each.to_json() for each in added],
            "removed": list(removed),
            "committed": dict(committed),
            "ledgers": dict(ledgers),
            **more,
        }
        path = self._path(number)
        draft = self._log / f".{uuid.uuid4().hex}.tmp"
        with raising_full(str(path)):
            self._log.mkdir(parents=True, exist_ok=True)
            try:
                with draft.open("x", encoding="utf-8") as file:
                    json.dump(manifest, file)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(draft, path)
            except FileExistsError as error:
                raise CommitConflictError(f"{path} is there already: another commit came first") from error
            finally:
                with contextlib.suppress(FileNotFoundError):
                    draft.unlink()
            self.place.sync(f"{LOG}/{path.name}")


def dataset(uri: str) -> ds.Dataset:
    """Return the newest version of the Parquet table at `uri` as a dataset of pyarrow, with the partition column.

    The dataset holds each message once, beside running jobs too, and has all columns of the table: null in files that
    lack the column.

    Raises: NotATableError for an absent table.
    """
    table = ParquetTable(uri)
    schema = table.schema()
    column = pa.field(table.partition_column, pa.date32())
    return ds.dataset(
        [table.place.absolute(each.path) for each in table.files()],
        schema=schema.append(column),
        format="parquet",
        partitioning=ds.partitioning(pa.schema([column]), flavor="hive"),
    )


def _schema_of(manifest: Mapping[str, Any]) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(manifest["schema"])))
