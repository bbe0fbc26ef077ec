"""Rows of a stream's batch in files, until all of them are sent.

    <folder>/<batch>/<task>-<attempt>.arrow   rows of one task, an Arrow IPC stream
    <folder>/<batch>/manifest.json            names of the files that count, in order; written once, as a whole
    <folder>/<batch>/<number>-partitions.json numbers of partitions of the topics of the manifest's `number`-th file
    <folder>/<batch>/refused.json             why the batch may never be sent
    <folder>/<batch>/sent.json                all of them are stored in their topics

The manifest decides which attempt of each task counts. From then on the batch's rows and their order are fixed, so
sending may be interrupted and repeated. A batch that is computed again, even with other rows or another order, finds
the manifest and leaves its own rows out. In a local path the rows are on the disk before the manifest names them, and
the manifest before the first row is sent. A topic may get partitions before a batch is sent again: its rows go to the
partitions of the first attempt, since deduplication goes by partition. Executors and driver need the same folder: a
local path on one machine, else a shared folder (`s3://`, `hdfs://`, `gs://`, a mount).
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from magnetar.pipeline.lake.table_files import sync_with_directories
from magnetar.pipeline.option_table import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_MANIFEST, _REFUSED, _SENT = "manifest.json", "refused.json", "sent.json"


class StagingError(RuntimeError):
    """A staged file cannot be found or read, or the files are those of another stream."""


class Staging:
    """The files of one sink. `folder`: a path or a URI of a file system that pyarrow knows."""

    def __init__(self, folder: str, sink_id: str) -> None:
        self._files, root = _file_system(folder)
        self._top = root.rstrip("/")
        self._root = f"{self._top}/{sink_id}"

    def stage(self, batch_id: int, task: int, attempt: str, batches: Iterable[pa.RecordBatch]) -> tuple[str, int]:
        """Write a task's rows; (name of the file, rows). The empty name stands for no rows. A task that fails leaves no
        file, since on a full disk each further attempt would take more of it. Raises: OSError.
        """
        folder, name, rows = self._folder(batch_id), f"{task:05d}-{attempt}.arrow", 0
        remaining = iter(batches)
        first = next(remaining, None)
        if first is None:
            return "", 0
        self._files.create_dir(folder, recursive=True)
        try:
            with (
                self._files.open_output_stream(f"{folder}/{name}") as out,
                pa.ipc.new_stream(out, first.schema) as writer,
            ):
                for batch in _with_first(first, remaining):
                    writer.write_batch(batch)
                    rows += batch.num_rows
            self._sync(f"{folder}/{name}")
        except BaseException:
            with contextlib.suppress(OSError):  # the first error counts
                self._files.delete_file(f"{folder}/{name}")
            raise
        return name, rows

    def check_newest(self, batch_id: int) -> None:
        """Raises: StagingError when the folder has a later batch: a stream repeats only its newest batch, so another
        stream with this sink id left the files. OSError.
        """
        newest = max(self._batches(), default=batch_id)
        if newest > batch_id:
            raise StagingError(
                f"{self._root} has rows of batch {newest}, and this is batch {batch_id}: the stream has begun anew "
                "under its former option sinkId, with a new checkpoint; give another sinkId, or another "
                "stagingDirectory where the topic is new too"
            )

    def manifest(self, batch_id: int) -> list[str] | None:
        """Names of the batch's files in their order; None before `publish`. Raises: OSError."""
        text = self._read(batch_id, _MANIFEST)
        return None if text is None else list(text["files"])

    def publish(self, batch_id: int, names: Sequence[str]) -> list[str]:
        """Write the manifest with these names, unless it exists. Returns the names in the manifest. Raises: OSError."""
        former = self.manifest(batch_id)
        if former is not None:
            return former
        self._write(batch_id, _MANIFEST, {"files": list(names)})
        return list(names)

    def is_sent(self, batch_id: int) -> bool:
        """Whether every row of the batch is stored in its topic. Raises: OSError."""
        return self._read(batch_id, _SENT) is not None

    def mark_sent(self, batch_id: int, report: dict[str, Any]) -> None:
        """Record that every row of the batch is stored. Raises: OSError."""
        self._write(batch_id, _SENT, report)

    def refuse(self, batch_id: int, why: str) -> None:
        """Have every later attempt to send the batch fail: that attempt could not know that it must not. Raises:
        OSError.
        """
        self._write(batch_id, _REFUSED, {"why": why})

    def check_refused(self, batch_id: int) -> None:
        """Raises: StagingError with the reason when an earlier attempt has refused the batch. OSError."""
        refused = self._read(batch_id, _REFUSED)
        if refused is not None:
            raise StagingError(refused["why"])

    def rows(self, batch_id: int, name: str) -> Iterator[pa.RecordBatch]:
        """The rows of one file. Raises: StagingError, OSError."""
        path = f"{self._folder(batch_id)}/{name}"
        try:
            with self._files.open_input_stream(path) as file, pa.ipc.open_stream(file) as reader:
                yield from reader
        except FileNotFoundError as error:
            raise StagingError(
                f"{path} is gone: option stagingDirectory must be a folder that driver and executors share"
            ) from error
        except pa.ArrowInvalid as error:
            raise StagingError(f"{path} cannot be read: {error}") from error

    def partition_counts(self, batch_id: int, number: int) -> StagedCounts:
        """The numbers of partitions for the rows of the manifest's `number`-th file. Raises: OSError."""
        name = f"{number:05d}-partitions.json"
        known: dict[str, int] = self._read(batch_id, name) or {}
        return StagedCounts(known, lambda counts: self._write(batch_id, name, counts))

    def forget_before(self, batch_id: int) -> None:
        """Delete the files of sent batches before `batch_id`. Raises: OSError."""
        for batch in self._batches():
            if batch < batch_id and self.is_sent(batch):
                self._files.delete_dir(self._folder(batch))

    def _batches(self) -> list[int]:
        """The batches that have a folder."""
        selector = fs.FileSelector(self._root, allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        return [int(name) for name in names if name.isdecimal()]

    def _folder(self, batch_id: int) -> str:
        return f"{self._root}/{batch_id}"

    def _read(self, batch_id: int, name: str) -> Any:
        try:
            with self._files.open_input_stream(f"{self._folder(batch_id)}/{name}") as file:
                return json.loads(file.read())
        except FileNotFoundError:
            return None

    def _write(self, batch_id: int, name: str, content: dict[str, Any]) -> None:
        """Write a file whole or not at all: a file of another name is renamed when it is complete."""
        folder = self._folder(batch_id)
        self._files.create_dir(folder, recursive=True)
        with self._files.open_output_stream(f"{folder}/{name}.new") as out:
            out.write(json.dumps(content).encode())
        self._sync(f"{folder}/{name}.new")
        self._files.move(f"{folder}/{name}.new", f"{folder}/{name}")
        self._sync(f"{folder}/{name}")

    def _sync(self, path: str) -> None:
        """Return when a file of a local folder, and its name, are on the disk; the folder's own name with them."""
        if isinstance(self._files, fs.LocalFileSystem):
            sync_with_directories(path, posixpath.dirname(self._top))


class StagedCounts:
    """The number of partitions of each partitioned topic at the first attempt to send a file. See `PartitionCounts`."""

    def __init__(self, known: dict[str, int], write: Callable[[dict[str, Any]], None]) -> None:
        self._known, self._write = known, write

    def known(self, topic: str) -> int | None:
        """See `PartitionCounts`."""
        return self._known.get(topic)

    def keep(self, topic: str, count: int) -> None:
        """See `PartitionCounts`. Raises: OSError."""
        self._known[topic] = count
        self._write(self._known)


def _with_first(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _file_system(folder: str) -> tuple[fs.FileSystem, str]:
    """Spark writes local folders as `file:/path`, which pyarrow does not take. Raises: OptionError."""
    if folder.startswith("file:"):
        folder = "/" + folder.removeprefix("file:").lstrip("/")
    if "://" not in folder:
        return fs.LocalFileSystem(), folder
    try:
        files, path = fs.FileSystem.from_uri(folder)
    except (pa.ArrowInvalid, OSError) as error:
        raise OptionError(f"option stagingDirectory: {folder}: {error}") from error
    return files, path
