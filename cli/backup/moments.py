"""Finds the moments of the broker's clock that images cover, and builds a data directory for such a moment.

Every moment between two successive images of one store can be restored: the earlier image has the state, the later
image has the messages stored since (`storage/joining/`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from magnetar.cli.backup.images import (
    hand_over,
    images,
    make_folder,
    publish_directory,
    require_replaceable,
    restore_image,
    sync_folders,
    verify_directory,
)
from magnetar.cli.backup.own_files import open_own
from magnetar.cli.errors import ConflictError, DeniedError, FileError, NotFoundError
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.reading.errors import StorageError, StoreMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


__all__ = ["covered", "leading_nodes", "restore_moment", "schema_nodes", "span_of", "time_text"]

Image = tuple["Path", dict[str, Any]]


def time_text(moment_ms: int) -> str:
    """Return the time in the form of `--at` and `--until`: `2026-01-02T03:04:05.678Z`."""
    moment = datetime.fromtimestamp(moment_ms // 1000, UTC)
    return f"{moment.strftime('%Y-%m-%dT%H:%M:%S')}.{moment_ms % 1000:03d}Z"


def covered(found: Sequence[Image]) -> list[int]:
    """Return for each image, oldest first, the oldest moment (ms) from which on all moments up to the image can be
    restored.

    This is the moment of the previous image if that image is of the same store, else the moment of the image itself.
    """
    stores = [_store(path / "data") for path, _ in found]
    moments: list[int] = [facts["moment_ms"] for _, facts in found]
    return [
        moments[k - 1] if k and stores[k] is not None and stores[k] == stores[k - 1] else moments[k]
        for k in range(len(found))
    ]


def _store(data: Path) -> bytes | None:
    """Return the id of the store of an image, None if it is unknown: also where VERSION is a link or a FIFO."""
    from magnetar.storage.joining.stores import store_of  # noqa: PLC0415 - the engine, which no other command needs

    try:
        os.close(open_own(data, "VERSION"))
    except (OSError, DeniedError):
        return None
    return store_of(data)


def span_of(folder: Path, until_ms: int) -> tuple[Image, Image]:
    """Return the image at or before the moment and the image at or after it; twice the same image at its own moment.

    Raises: NotFoundError that names the covered moments, ConflictError when the two images are of different stores.
    """
    found = images(folder)
    if not found:
        raise NotFoundError(f"{folder} has no image")
    oldest, newest = found[0][1]["moment_ms"], found[-1][1]["moment_ms"]
    if until_ms > newest:
        raise NotFoundError(f"the newest moment that the images cover is {time_text(newest)}; take an image first")
    if until_ms < oldest:
        raise NotFoundError(f"the oldest moment that the images cover is {time_text(oldest)}")
    before = [each for each in found if each[1]["moment_ms"] <= until_ms][-1]
    if before[1]["moment_ms"] == until_ms:
        return before, before
    behind = next(each for each in found if each[1]["moment_ms"] > until_ms)
    since = covered(found)[found.index(behind)]
    if since > until_ms:
        raise ConflictError(
            f"{before[0].name} and {behind[0].name} are of different stores: no moment between them can be restored; "
            f"--at {time_text(until_ms)} gives the state of {before[0].name}"
        )
    return before, behind


def restore_moment(
    span: tuple[Image, Image],
    target: Path,
    until_ms: int,
    progress: Callable[[int], None],
    check: Callable[[Path], None] = verify_directory,
) -> None:
    """Make a data directory as of the moment; it appears when complete and verified. The images do not change.

    While it runs, it needs space for both images on the disk of the target. Raises: CliError, OSError.
    """
    before, behind = (path for path, _ in span)
    if before == behind:
        restore_image(before, target, progress, check)
        return
    require_replaceable(target)
    work = target.with_name(f".{target.name}.until")
    shutil.rmtree(work, ignore_errors=True)
    make_folder(target.parent)
    try:
        work.mkdir(mode=0o700)
        restore_image(before, work / "data", progress)
        restore_image(behind, work / "behind", progress)
        _join(work / "data", work / "behind", until_ms)
        check(work / "data")
        hand_over(work / "data", target if target.exists() else before)
        sync_folders(work / "data")
        publish_directory(work / "data", target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _join(data: Path, behind: Path, until_ms: int) -> None:
    # Imported here, because no other command needs the engine.
    from magnetar.storage.joining.stores import TopicNodes, join_stores  # noqa: PLC0415

    with _quiet():
        try:
            asyncio.run(join_stores(data, behind, until_ms, TopicNodes(schema_nodes, leading_nodes)))
        except StoreMismatchError as error:
            raise ConflictError(f"only the moments of the two images themselves can be restored: {error}") from error
        except StorageError as error:
            raise FileError(f"the moment cannot be restored, nothing was kept: {error}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Show only errors of the engine's log, on standard error: standard output belongs to the command."""
    import structlog  # noqa: PLC0415 - the same

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.reset_defaults()


def schema_nodes(name: str) -> Sequence[str]:
    """Return the paths of the schemas of a managed ledger's topic; none for a managed ledger without a topic."""
    topic = TopicName.from_persistence_name(name)
    return [f"/schemas/{topic.namespace}/{quote(topic.base.local_name, safe='')}"] if topic is not None else []


def leading_nodes(name: str) -> Sequence[str]:
    """Return the paths of tenant, namespace, the partitioned topic and the policies of a managed ledger's topic."""
    topic = TopicName.from_persistence_name(name)
    if topic is None:
        return []
    place = f"{topic.namespace}/{topic.domain}/{quote(topic.base.local_name, safe='')}"
    return [
        f"/admin/policies/{topic.tenant}",
        f"/admin/policies/{topic.namespace}",
        f"/admin/partitioned-topics/{place}",
        f"/admin/topic-policies/{place}",
    ]
