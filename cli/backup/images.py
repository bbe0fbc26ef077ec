"""Images of a data directory: takes them at one instant, writes, verifies, finds and restores them.

    DIR/20261122T030405.678Z/data/...      a complete data directory
    DIR/20261122T030405.678Z/manifest.json time of the broker's clock; inode, size and times of each ledger file

An image appears under its name when it is complete and verified. A ledger file unchanged since the previous image is a
hard link to its copy there, and free parts of the journal are holes, so an image costs only the space of new data. Each
image can be restored, or deleted, by itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.backup.freezing import broker_of, stopped
from magnetar.cli.backup.own_files import Folder, open_folder, open_own, regular_files
from magnetar.cli.errors import (
    BrokerFailedError,
    CommandLineError,
    ConflictError,
    DeniedError,
    FileError,
    NotFoundError,
)
from magnetar.storage.disk_sync import sync_all

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT: Final = 1
_SMALL_FOLDERS: Final = ("journal", "metadata")
_NAME: Final = "%Y%m%dT%H%M%S"
_PIECE: Final = 4 << 20
_BLOCK: Final = 64 << 10
_ZEROS: Final = bytes(_BLOCK)
_SPARE_DESCRIPTORS: Final = 64
_STEADY_S: Final = 5.0
"""A file that was written this recently may change again within the same tick of the file system's clock."""
_UNCHANGED: Final = -1
_COPIED: Final = -2
_YOUNG_S: Final = 60.0
_MOST_MS: Final = 253_402_300_800_000
"""The year 10,000, behind the last moment that has a name."""


@dataclass(slots=True)
class Taken:
    """The files of one instant: files that are written in place have been copied, ledger files are open.

    copied: the files of the journal and the metadata by their names within the data directory, not synced yet, with
    the bytes that are not holes.
    """

    moment_ms: int = 0
    stopped_ms: float = 0.0
    copied: dict[str, int] = field(default_factory=dict)
    ledgers: dict[str, tuple[int, os.stat_result]] = field(default_factory=dict)
    """Name -> descriptor and stat of the file; in place of a descriptor _UNCHANGED for an unchanged file of the
    previous image, and _COPIED for a file that was copied before the instant and is unchanged since.
    """


def take(data_dir: Path, target: Path, known: dict[str, list[int]], stack: ExitStack) -> Taken:
    """Copy journal and metadata, and open the ledger files, at one instant. `stack` closes the ledger files.

    The broker reuses segments of the journal, so the journal is copied while the broker is stopped: in blocks, into the
    page cache, at the speed of memory.

    Args:    target: the folder for the copies of journal and metadata.
             known: identities of the ledger files of the previous image; unchanged files are not opened.
    Raises:  CliError, OSError.
    """
    pid = broker_of(data_dir)
    _alone(data_dir, stack)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for name in ("ledgers", *_SMALL_FOLDERS):
        (target / name).mkdir(parents=True, mode=0o700)
    taken = Taken()
    most = sys.maxsize if hard == resource.RLIM_INFINITY else hard - _SPARE_DESCRIPTORS
    with open_folder(data_dir, "ledgers") as folder:
        early = _copy_early(folder, known, most, target / "ledgers")
    begun = time.monotonic()
    with nullcontext() if pid is None else stopped(pid):
        taken.moment_ms = time.time_ns() // 1_000_000
        _copy_small(data_dir, target, taken)
        with open_folder(data_dir, "ledgers") as folder:
            _open_ledgers(folder, known, early, most, taken, stack)
        taken.stopped_ms = (time.monotonic() - begun) * 1000 if pid is not None else 0.0
    for name in early:
        if taken.ledgers.get(name, (_UNCHANGED,))[0] != _COPIED:  # changed, or deleted
            (target / "ledgers" / name).unlink()
    if pid is None and broker_of(data_dir) is not None:
        raise ConflictError(f"a broker has started on {data_dir} meanwhile: try again")
    return taken


def _copy_small(data_dir: Path, target: Path, taken: Taken) -> None:
    """Copy VERSION, journal and metadata; not synced."""
    for part in ("", *_SMALL_FOLDERS):
        with open_folder(data_dir, part) as folder:
            for name in folder.names() if part else ["VERSION"]:
                place = Path(part, name)
                taken.copied[str(place)] = _copy_at_once(folder.open(name), target / place)


def _copy_early(folder: Folder, known: dict[str, list[int]], most: int, target: Path) -> dict[str, list[int]]:
    """Copy the new ledger files, but for those of the last seconds, if they are too many to open all of them at one
    instant; return their identities. Most ledger files are closed and do not change any more.
    """
    new = []
    for name in folder.names():
        with suppress(FileNotFoundError):  # the broker deletes ledgers meanwhile
            if identity(found := folder.stat(name)) != known.get(name):
                new.append((name, found.st_mtime))
    copied: dict[str, list[int]] = {}
    if len(new) <= most:
        return copied
    steady_s = time.time() - _STEADY_S
    for name, written_s in new:
        if written_s < steady_s:
            with suppress(FileNotFoundError), ExitStack() as stack:
                descriptor = folder.open(name)
                stack.callback(os.close, descriptor)
                found = os.fstat(descriptor)
                _copy(descriptor, target / name, found.st_size, lambda _size: None)
                copied[name] = identity(found)
    return copied


def _open_ledgers(
    folder: Folder,
    known: dict[str, list[int]],
    early: dict[str, list[int]],
    most: int,
    taken: Taken,
    stack: ExitStack,
) -> None:
    opened = 0
    for name in folder.names():
        found = folder.stat(name)
        if identity(found) == known.get(name):
            taken.ledgers[name] = (_UNCHANGED, found)
            continue
        if identity(found) == early.get(name):
            taken.ledgers[name] = (_COPIED, found)
            continue
        if opened >= most:
            raise ConflictError(f"more than {most} ledger files have just changed: raise the limit of descriptors")
        descriptor = folder.open(name)
        stack.callback(os.close, descriptor)
        opened += 1
        taken.ledgers[name] = (descriptor, os.fstat(descriptor))


def _alone(data_dir: Path, stack: ExitStack) -> None:
    """Lock the directory against a second backup, whose end would resume a broker that this backup has stopped.

    Raises: ConflictError.
    """
    descriptor = open_own(data_dir, "VERSION")
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConflictError(f"another backup of {data_dir} is under way: try again") from None


def identity(found: os.stat_result) -> list[int]:
    """Return the values that stay the same as long as a file is not written: inode, size and times."""
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def images(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return all complete images with their manifests, oldest first."""
    found = []
    for path in sorted(folder.glob("*/manifest.json")):
        try:
            with open_folder(path.parent) as image:
                manifest = parse_manifest(image.read(path.name))
        except (OSError, DeniedError):
            continue
        if manifest is not None and not path.parent.name.startswith("."):
            found.append((path.parent, manifest))
    return found


def parse_manifest(data: bytes) -> dict[str, Any] | None:
    """Return the facts of an image; None when `data` is no manifest of this format, as for an incomplete image."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None
    known, moment_ms = found.get("ledgers"), found.get("moment_ms")
    if type(moment_ms) is not int or not 0 <= moment_ms < _MOST_MS or not isinstance(known, dict):
        return None
    if type(found.setdefault("new_bytes", 0)) is not int:
        return None
    return found


def write_image(data_dir: Path, folder: Path, progress: Callable[[int], None]) -> dict[str, Any]:
    """Take an image into the folder and verify it; return its path and facts. Raises: CliError, OSError."""
    _require_outside(folder, data_dir)
    make_folder(folder, 0o700)
    earlier = images(folder)
    manifest: dict[str, Any] = earlier[-1][1] if earlier else {}
    previous = earlier[-1][0] / "data" / "ledgers" if earlier else None
    known = manifest.get("ledgers", {}) if manifest.get("source") == str(data_dir.resolve()) else {}
    remove_abandoned(folder)
    with ExitStack() as stack:
        partial = folder / f".partial-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        stack.callback(os.close, _locked(partial))
        try:
            taken = take(data_dir, partial / "data", known, stack)
            moment = datetime.fromtimestamp(taken.moment_ms / 1000, UTC)
            name = f"{moment.strftime(_NAME)}.{taken.moment_ms % 1000:03d}Z"
            new_bytes = _write(taken, partial / "data", previous, progress)
            verify_directory(partial / "data")
            facts = {
                "format": FORMAT,
                "moment_ms": taken.moment_ms,
                "source": str(data_dir.resolve()),
                "new_bytes": new_bytes,
                "stopped_ms": round(taken.stopped_ms, 1),
                "ledgers": {each: identity(found) for each, (_, found) in taken.ledgers.items()},
            }
            _write_file(partial / "manifest.json", json.dumps(facts).encode())
            sync_folders(partial)
            partial.rename(folder / name)
            _sync(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return {"image": str(folder / name), **{key: facts[key] for key in ("moment_ms", "new_bytes", "stopped_ms")}}


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Create the folder, and the folders above it, where they are missing; their names are durable on return."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        each.mkdir(mode=mode if each is missing[0] else 0o777, exist_ok=True)
        _sync(each.parent)


def _require_outside(folder: Path, data_dir: Path) -> None:
    """Raise CommandLineError for a folder of images in the data directory: both would be lost together."""
    if not (data_dir / "LOCK").exists():
        return  # no data directory, as `take` reports
    place = folder.resolve()
    for part in ("", "ledgers", *_SMALL_FOLDERS):  # any of them may be a link to another disk
        root = (data_dir / part).resolve()
        if root == place or root in place.parents:
            raise CommandLineError(f"{folder} lies in the data directory {data_dir}: name a folder outside")


def remove_abandoned(folder: Path) -> None:
    """Remove the unfinished images of backups that were killed: no process holds their lock.

    A folder younger than a minute stays, since its backup may be about to take the lock.
    """
    for partial in folder.glob(".partial-*"):
        try:
            if time.time() - partial.stat().st_mtime > _YOUNG_S:
                os.close(_locked(partial))
                shutil.rmtree(partial, ignore_errors=True)
        except OSError:  # at work, of another user, or gone
            continue


def _locked(folder: Path) -> int:
    """Lock the folder; return the descriptor that holds the lock. Raises OSError, BlockingIOError for a held lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _write(taken: Taken, target: Path, previous: Path | None, progress: Callable[[int], None]) -> int:
    """Write all files of the image into the target and sync them; return the bytes that are not hard links."""
    total = 0
    for name, size in taken.copied.items():
        _sync(target / name)
        total += size
        progress(size)
    for name, (descriptor, found) in taken.ledgers.items():
        path = target / "ledgers" / name
        if descriptor == _COPIED:
            total += found.st_size
            progress(found.st_size)
            continue
        if descriptor == _UNCHANGED:
            assert previous is not None, "known files come from an image"
            os.link(previous / name, path)
            continue
        _copy(descriptor, path, found.st_size, progress)
        total += found.st_size
    return total


def _copy(descriptor: int, path: Path, size: int, progress: Callable[[int], None]) -> None:
    """Copy the first `size` bytes of a ledger file, which only grows behind them, and sync the copy.

    Raises: FileError when the file is shorter.
    """
    with path.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        at = 0
        while at < size:
            data = os.pread(descriptor, min(_PIECE, size - at), at)
            if not data:
                raise FileError(f"{path.name} became shorter than it was: nothing was kept")
            file.write(data)
            at += len(data)
            progress(len(data))
        file.flush()
        sync_all(file.fileno())


def _copy_at_once(descriptor: int, target: Path) -> int:
    """Copy the whole file in blocks, not synced; close the descriptor; return the number of bytes written.

    Blocks of zeros become holes: the broker allocates segments of the journal in advance, so most of an idle broker's
    journal takes neither time nor space.
    """
    size = 0
    with os.fdopen(descriptor, "rb", buffering=0) as read, target.open("xb") as written:
        os.fchmod(written.fileno(), 0o600)
        while block := read.read(_BLOCK):
            if block == _ZEROS:
                written.seek(_BLOCK, os.SEEK_CUR)
            else:
                written.write(block)
                size += len(block)
        written.truncate(written.tell())
    return size


def _write_file(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        sync_all(file.fileno())


def sync_folders(root: Path) -> None:
    """Sync all folders below `root`, so that the names of all files are durable on return."""
    for folder, _, _ in os.walk(root):
        _sync(Path(folder))


def _sync(path: Path) -> None:
    """Sync a folder, or a file that has been written and closed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_all(descriptor)
    finally:
        os.close(descriptor)


def verify_directory(data_dir: Path) -> None:
    """Run `magnetar verify` on the directory. Raises: BrokerFailedError with the findings."""
    # Without -P a folder `magnetar` in the working directory could take the place of this program.
    command = [sys.executable, "-P", "-m", "magnetar", "verify", str(data_dir)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this project's program
    (data_dir / "LOCK").unlink(missing_ok=True)
    if ended.returncode != 0:
        verdict = "is damaged" if "\nDAMAGED" in f"\n{ended.stdout}" else "cannot be verified"
        raise BrokerFailedError(
            f"the copy {verdict}, nothing was kept: {(ended.stdout + ended.stderr)[-2000:].strip()}"
        )


def chosen_image(folder: Path, at_ms: int | None) -> tuple[Path, dict[str, Any]]:
    """Return the newest image, or with `at_ms` the newest image at or before this time of the broker's clock.

    Raises: NotFoundError.
    """
    found = images(folder)
    fitting = [each for each in found if at_ms is None or each[1]["moment_ms"] <= at_ms]
    if not fitting:
        oldest = f"; the oldest is {found[0][0].name}" if found else ""
        raise NotFoundError(f"{folder} has no image{' of that time or before' if found else ''}{oldest}")
    return fitting[-1]


def _keep(_data_dir: Path) -> None:
    """Check nothing."""


def restore_image(
    image: Path, target: Path, progress: Callable[[int], None], check: Callable[[Path], None] = _keep
) -> None:
    """Make a data directory from an image; `target` appears when the directory is complete and `check` takes it.

    Raises: ConflictError when `target` is not empty; CommandLineError when `target` lies in the image; DeniedError when
    the image contains links or FIFOs; FileError, OSError, and the errors of `check`.
    """
    require_replaceable(target)
    if image.resolve() in target.resolve().parents:
        raise CommandLineError(f"{target} lies in the image {image}: name a directory outside")
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    make_folder(target.parent)
    try:
        for name, descriptor in regular_files(image / "data"):
            if descriptor < 0:
                (partial / name).mkdir(mode=0o700)
            else:
                _copy(descriptor, partial / name, os.fstat(descriptor).st_size, progress)
        check(partial)
        hand_over(partial, target if target.exists() else image)
        sync_folders(partial)
        publish_directory(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def require_replaceable(target: Path) -> None:
    """Raise ConflictError unless `target` is absent, or an empty directory that a rename can replace."""
    if target.exists() and any(target.iterdir()):
        raise ConflictError(f"{target} is not empty: move it away first, and stop the broker that uses it")
    if target.is_mount():
        raise ConflictError(f"{target} is a mount point, which cannot be replaced: name a directory in it")


def hand_over(made: Path, example: Path) -> None:
    """Give a directory that root made, and all in it, to the owner of `example`, for a broker of that user."""
    facts = example.stat()
    if os.geteuid() != 0 or facts.st_uid == 0:
        return
    for folder, folders, files in os.walk(made, topdown=False):  # the directory itself last: until then it is closed
        for name in (*folders, *files):
            os.lchown(Path(folder, name), facts.st_uid, facts.st_gid)
    os.lchown(made, facts.st_uid, facts.st_gid)


def publish_directory(made: Path, target: Path) -> None:
    """Rename a complete, synced directory to `target`, which is absent or empty; durable on return."""
    if target.exists():
        target.rmdir()
    made.rename(target)
    _sync(target.parent)
