"""Writes the metadata log: one frame per group of operations, one sync per frame. Runs in the metadata thread.

Order of writes when a log is full: the next log is durable before the end frame closes this log. The writer makes a
spare log ahead, so that a full disk leaves room for the deletions that free space.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.files import NO_DESCRIPTOR
from magnetar.storage.embedded.metadata.log_format import (
    CHANGES,
    CONFIRM,
    END,
    FIRST_FRAME_AT,
    PAGE_BYTES,
    LogHeader,
    copy_bytes,
    encode_frame,
    encode_log_header,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.files import File, FileSystem
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.metadata.load import LoadedMetadata
    from magnetar.storage.interfaces import Clock

__all__ = ["LogEnvironment", "LogWriter", "make_log"]

_END_BYTES = 2 * PAGE_BYTES
_ZEROS = bytes(1 << 16)
_SPARE_SHARE = 16
"""The writer makes a spare log only while this many logs fit into the free space."""
_KEPT_SHARE = 8
"""Growth leaves the space of this many logs to deletions and other small changes."""


class LogEnvironment(NamedTuple):
    """The environment of the writer."""

    files: FileSystem
    layout: Layout
    clock: Clock
    entropy: Callable[[int], bytes]
    log_bytes: int
    """Size of a log in bytes; a log whose first frame needs more is larger."""


def make_log(world: LogEnvironment, store_id: bytes, number: int, first_sequence: int, room: int = 0) -> LogHeader:
    """Make an empty log with ``room`` bytes for its first frame, durable with its name on return. Raises OSError."""
    header = _place_log(world, store_id, number, first_sequence, room)
    world.files.sync_dir(world.layout.metadata)
    return header


def _place_log(world: LogEnvironment, store_id: bytes, number: int, first_sequence: int, room: int) -> LogHeader:
    """Like ``make_log``, but the name is not durable on return. Raises OSError; then the log has no name."""
    (salt,) = struct.unpack("<Q", world.entropy(8))
    size = max(world.log_bytes, FIRST_FRAME_AT + room + _END_BYTES)
    header = LogHeader(store_id, number, first_sequence, salt, size, world.clock.now_ms())
    temporary = world.layout.spare_log
    file = world.files.open(temporary, create=True)
    try:
        if file.size() != size:
            _fill(file, size)
        file.write([encode_log_header(header)], 0)
        _once(file.sync)
    finally:
        file.close()
    world.files.rename(temporary, world.layout.metadata_log(number))
    return header


def _once(sync: Callable[[], None]) -> None:
    """Call ``sync``. Raises OSError with EIO for a failed sync, also for lack of space, so that no caller tries the
    sync again. Without a free descriptor no sync took place, so that error stays as it is.
    """
    try:
        sync()
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            raise
        raise OSError(errno.EIO, f"sync: {error}") from error


def _fill(file: File, size: int) -> None:
    """Write zeros instead of a hole, so that later frames change only bytes of the file."""
    file.truncate(0)
    for at in range(0, size, len(_ZEROS)):
        file.write([_ZEROS[: size - at]], at)


class LogWriter:
    """Appends to the newest log. ``append``, ``confirm`` and ``rotate`` raise OSError; after any error other than lack
    of space or of a descriptor the caller writes nothing more.
    """

    def __init__(self, world: LogEnvironment, loaded: LoadedMetadata) -> None:
        self._world = world
        self._log = loaded.log
        self._at = loaded.scans[-1].end_offset
        self.last_sequence = loaded.last_sequence
        """The sequence of the newest durable frame."""
        self._following: LogHeader | None = None
        self._confirmed = True
        self._has_spare = False
        self._file = world.files.open(world.layout.metadata_log(self._log.number))
        self.appended_bytes = sum(scan.end_offset - FIRST_FRAME_AT for scan in loaded.scans)
        """Bytes logged since the last snapshot."""

    @property
    def next_sequence(self) -> int:
        return self.last_sequence + 1

    @property
    def store_id(self) -> bytes:
        return self._log.store_id

    @property
    def number(self) -> int:
        """The number of the log in use."""
        return self._log.number

    @property
    def confirmed(self) -> bool:
        """Whether a frame follows the last frame of changes, so that a start notices the loss of the changes."""
        return self._confirmed

    def append(self, payload: bytes) -> None:
        """Write one frame of changes, durable on return. Raises OSError."""
        self._write(CHANGES, payload)
        self._confirmed = False

    def confirm(self) -> None:
        """If the last frame holds changes, write an empty frame behind it: from then on a start notices the loss of the
        last changes. Raises OSError.
        """
        if not self._confirmed:
            self._write(CONFIRM, b"")
            self._confirmed = True

    def rotate(self, room: int = 0) -> None:
        """Continue in the next log, made with ``room`` bytes for its first frame unless an earlier, failed call made
        that log. Raises OSError; the caller may repeat the call after lack of space.
        """
        files, layout = self._world.files, self._world.layout
        if self._following is None:
            number = self._log.number + 1
            self._following = _place_log(self._world, self.store_id, number, self.next_sequence + 1, room)
            self._has_spare = False
        # From here on a start may find the next log. Its first sequence leaves one sequence for this log: the end frame
        # must be the next frame here.
        _once(partial(files.sync_dir, layout.metadata))
        file = files.open(layout.metadata_log(self._following.number))
        try:
            self._put(END, b"")
        except BaseException:
            file.close()
            raise
        self._file.close()
        self._file, self._log, self._following = file, self._following, None
        self._at = FIRST_FRAME_AT

    def has_room(self, growth_bytes: int) -> bool:
        """Whether changes that add so many bytes leave space for deletions. True where the space cannot be measured."""
        try:
            free = self._world.files.free_bytes(self._world.layout.metadata)
        except OSError:
            return True
        return free >= _KEPT_SHARE * self._world.log_bytes + 2 * growth_bytes

    def prepare_spare(self) -> None:
        """Make the spare file of the next log when the log in use is half full, unless the disk is short of space. The
        method ignores OSError.
        """
        files, layout = self._world.files, self._world.layout
        if self._has_spare or self._at * 2 < self._log.size_bytes:
            return
        with contextlib.suppress(OSError):
            if files.free_bytes(layout.metadata) < _SPARE_SHARE * self._world.log_bytes:
                return
            file = files.open(layout.spare_log, create=True)
            try:
                _fill(file, self._world.log_bytes)
            finally:
                file.close()
            self._has_spare = True

    def close(self) -> None:
        self._file.close()

    def _write(self, kind: int, payload: bytes) -> None:
        room = 2 * copy_bytes(len(payload))
        # Two rotations are necessary when an earlier, failed rotation made the next log for a smaller frame.
        while self._following is not None or self._at + room + _END_BYTES > self._log.size_bytes:
            self.rotate(room)
        self._put(kind, payload)

    def _put(self, kind: int, payload: bytes) -> None:
        copies = encode_frame(self._log, self.next_sequence, kind, payload, self._world.clock.now_ms())
        self._file.write(copies, self._at, durable=True)
        size = sum(map(len, copies))
        self._at += size
        self.appended_bytes += size
        self.last_sequence += 1
