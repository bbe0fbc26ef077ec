"""Every error the storage room raises.

::

    StorageError
     +- LedgerError(ledger_id)
     |   +- NoSuchLedgerError          deleted, or never created here
     |   +- NoSuchEntryError           beyond the last confirmed entry
     |   +- LedgerFencedError          another owner recovered (and so closed) the ledger
     |   +- LedgerClosedError          append after close
     |   +- EntryTooLargeError         larger than the store takes
     |   +- CorruptEntryError          the entry's bytes are damaged; its neighbours are not
     +- DamagedFileError               a file whose header, index or footer is damaged
     +- UnsupportedFormatError         a file that a newer version wrote
     +- StoreLockedError               another process uses the data directory
     +- StoreMismatchError             the parts of the data directory do not belong together
     +- MetadataDamagedError           the metadata are damaged, missing or too old: a start would forget topics
     +- StorageFullError               no space left; retry later, the engine resumes by itself
     +- StorageFailedError             write or fsync failed; the engine acknowledges no further write
     +- StorageUnavailableError        a service that the store needs does not answer; try again later
     +- StorageClosedError             used after close
     +- ManagedLedgerError(name)
     |   +- NoSuchManagedLedgerError   never created, or deleted
     |   +- NoSuchCursorError          the managed ledger has no cursor of this name
     |   +- ManagedLedgerFencedError   another owner changed its ledger list
     |   |   +- ManagedLedgerOutdatedError   entries exist whose appends failed: open it anew
     |   +- ManagedLedgerClosedError   used after close
     |   +- ManagedLedgerTerminatedError   no more appends for ever
     |   +- WriteFailedError           an append failed; no further appends until ready_to_create_new_ledger()
     +- CursorStateError               stored acknowledgements that cannot be read
     +- LedgerListError                a stored ledger list or cursor record that cannot be read
     +- MetadataError(path)
         +- BadVersionError            compare-and-set lost
         +- NoNodeError                delete or conditional put of a node that does not exist
         +- NotEmptyError              delete of a node with children, in a store that keeps none without a parent
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.position import Position

__all__ = [
    "BadVersionError",
    "CorruptEntryError",
    "CursorStateError",
    "DamagedFileError",
    "EntryTooLargeError",
    "LedgerClosedError",
    "LedgerError",
    "LedgerFencedError",
    "LedgerListError",
    "ManagedLedgerClosedError",
    "ManagedLedgerError",
    "ManagedLedgerFencedError",
    "ManagedLedgerOutdatedError",
    "ManagedLedgerTerminatedError",
    "MetadataDamagedError",
    "MetadataError",
    "NoNodeError",
    "NoSuchCursorError",
    "NoSuchEntryError",
    "NoSuchLedgerError",
    "NoSuchManagedLedgerError",
    "NotEmptyError",
    "StorageClosedError",
    "StorageError",
    "StorageFailedError",
    "StorageFullError",
    "StorageUnavailableError",
    "StoreLockedError",
    "StoreMismatchError",
    "UnsupportedFormatError",
    "WriteFailedError",
]


class StorageError(Exception):
    """Base class of all errors of storage."""


class LedgerError(StorageError):
    """An error of a single ledger."""

    what = "error"

    def __init__(self, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"ledger {self.ledger_id}: {self.what}"


class NoSuchLedgerError(LedgerError):
    what = "no such ledger"


class LedgerFencedError(LedgerError):
    what = "fenced: it was recovered and closed by someone else"


class LedgerClosedError(LedgerError):
    what = "closed, no more appends"


class NoSuchEntryError(LedgerError):
    """The ledger has no such entry (yet)."""

    def __init__(self, ledger_id: int, entry_id: int) -> None:
        super().__init__(ledger_id)
        self.entry_id = entry_id

    def __str__(self) -> str:
        return f"ledger {self.ledger_id}: no entry {self.entry_id}"


class EntryTooLargeError(LedgerError):
    """The store refuses the entry before it writes any byte of it. Other appends succeed."""

    def __init__(self, ledger_id: int, entry_id: int, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(ledger_id)
        self.entry_id, self.size_bytes, self.limit_bytes = entry_id, size_bytes, limit_bytes

    def __str__(self) -> str:
        return f"ledger {self.ledger_id}: entry of {self.size_bytes} bytes, the store takes {self.limit_bytes}"


class CorruptEntryError(LedgerError):
    """The bytes of this entry are damaged. A reader may continue at ``position.next()``."""

    def __init__(self, position: Position, detail: str = "") -> None:
        super().__init__(position.ledger_id)
        self.position, self.detail = position, detail

    def __str__(self) -> str:
        return f"entry {self.position} is damaged{': ' if self.detail else ''}{self.detail}"


class DamagedFileError(StorageError):
    """A file's own structure (header, index, footer) is damaged at ``offset``."""

    def __init__(self, path: str, offset: int, detail: str) -> None:
        super().__init__(path, offset, detail)
        self.path, self.offset, self.detail = path, offset, detail

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.detail}"


class UnsupportedFormatError(StorageError):
    """A file of a format version this program does not know. It is left untouched."""

    def __init__(self, path: str, found: int, supported: int) -> None:
        super().__init__(path, found, supported)
        self.path, self.found, self.supported = path, found, supported

    def __str__(self) -> str:
        return (
            f"{self.path} has format version {self.found}, this program reads up to version {self.supported}: "
            "a newer Magnetar wrote it, and can use it"
        )


class StoreLockedError(StorageError):
    """Another process uses the data directory."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(path, pid)
        self.path, self.pid = path, pid

    def __str__(self) -> str:
        owner = f"process {self.pid}" if self.pid else "another process"
        return f"data directory {self.path} is in use by {owner}"


class StoreMismatchError(StorageError):
    """Metadata, journal and ledgers come from different stores (a file was lost or copied)."""


class MetadataDamagedError(StorageError):
    """Acknowledged metadata are lost and the store cannot restore them. The store has changed no file."""

    def __init__(self, data_dir: str, problems: Sequence[str]) -> None:
        super().__init__(data_dir, tuple(problems))
        self.data_dir, self.problems = data_dir, tuple(problems)

    def __str__(self) -> str:
        return (
            f"the metadata of {self.data_dir} are damaged, and starting would forget topics; nothing was changed: "
            f"{'; '.join(self.problems)}. Put back an intact copy of the whole data directory, or run "
            f"`magnetar verify --repair metadata {self.data_dir}`, which rebuilds the lists of topics and ledgers and "
            "reports losses"
        )


class StorageFullError(StorageError):
    """No space is left on the device. Later appends may succeed. The outcome of the failed append is unknown: its
    entries are not readable now, but may exist after a restart.
    """


class StorageFailedError(StorageError):
    """A write or fsync failed: the engine has stopped acknowledging for good (restart after repairing the disk)."""


class StorageUnavailableError(StorageError):
    """A service that the store needs (ZooKeeper, bookies) does not answer. The outcome of a write is unknown."""


class StorageClosedError(StorageError):
    """The engine is closed."""


class ManagedLedgerError(StorageError):
    """An error of a single managed ledger."""

    what = "error"

    def __init__(self, name: str, detail: str = "") -> None:
        super().__init__(name, detail)
        self.name, self.detail = name, detail

    def __str__(self) -> str:
        return f"managed ledger {self.name}: {self.what}{': ' if self.detail else ''}{self.detail}"


class NoSuchManagedLedgerError(ManagedLedgerError):
    what = "no such managed ledger"


class NoSuchCursorError(ManagedLedgerError):
    what = "no such cursor"


class ManagedLedgerFencedError(ManagedLedgerError):
    """Another owner changed the ledger list or a cursor's record. Close the managed ledger; then it may be reopened."""

    what = "fenced: another owner has it"


class ManagedLedgerOutdatedError(ManagedLedgerFencedError):
    """The recovery after a failed append found entries that the owner of the managed ledger does not know."""

    what = "must be opened anew: entries exist whose appends failed"


class ManagedLedgerClosedError(ManagedLedgerError):
    what = "closed"


class ManagedLedgerTerminatedError(ManagedLedgerError):
    what = "terminated, no more appends"


class WriteFailedError(ManagedLedgerError):
    """An earlier append failed. The managed ledger refuses appends until ``ready_to_create_new_ledger()`` is called."""

    what = "an earlier append failed"


class CursorStateError(StorageError):
    """Stored acknowledgements of a cursor that cannot be read."""


class LedgerListError(StorageError):
    """A stored ledger list or cursor record that cannot be read."""


class MetadataError(StorageError):
    """An error of a single metadata node."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"metadata node {self.path}"


class BadVersionError(MetadataError):
    """The node's version differs from the expected version (the node changed, exists already, or is gone)."""

    def __init__(self, path: str, expected: int, found: int) -> None:
        super().__init__(path)
        self.expected, self.found = expected, found

    def __str__(self) -> str:
        return f"metadata node {self.path}: version {self.found}, expected {self.expected} (-1 means absent)"


class GuardChangedError(MetadataError):
    """The node of a write's guard has another version, or is gone. Nothing was written."""

    def __str__(self) -> str:
        return f"metadata node {self.path} changed before a write that depends on it"


class NoNodeError(MetadataError):
    def __str__(self) -> str:
        return f"metadata node {self.path}: no such node"


class NotEmptyError(MetadataError):
    """The node has children. The store has not changed the node."""

    def __str__(self) -> str:
        return f"metadata node {self.path} has children"
