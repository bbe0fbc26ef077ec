"""A data directory for a reader that runs beside the broker."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES, LEDGER_MAGIC, parse_file_header
from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.layout import Layout, ledger_id_of
from magnetar.storage.embedded.ledger_files import head_shift
from magnetar.storage.embedded.ledger_head import NO_PROOF, parse_ledger_head, proof_of
from magnetar.storage.embedded.store_version import parse_version
from magnetar.storage.errors import DamagedFileError, NoSuchLedgerError
from magnetar.storage.reading.ledger_segment import LedgerSegment

if TYPE_CHECKING:
    from magnetar.storage.embedded.files import File, FileSystem
    from magnetar.storage.reading.ledger_segment import Walked

__all__ = ["DataDirectory"]

_MOST_VERSION_BYTES = 4096


class DataDirectory:
    """Opens ledgers of one data directory for reading.

    Raises FileNotFoundError when ``path`` is no data directory, UnsupportedFormatError when a newer version wrote it,
    DamagedFileError, and OSError (PermissionError) when it cannot be read.
    """

    def __init__(self, path: str, files: FileSystem | None = None) -> None:
        self.path = posixpath.abspath(path)
        self._files = files or RealFiles()
        self._layout = Layout(self.path)
        if not self._files.exists(self._layout.version) or not self._files.exists(self._layout.ledgers):
            raise FileNotFoundError(f"{self.path} is not a data directory (no VERSION and ledgers/)")
        file = self._files.open_read_only(self._layout.version)
        try:
            _, self.store_id = parse_version(self._layout.version, file.read(_MOST_VERSION_BYTES, 0))
        finally:
            file.close()

    def ledger_ids(self) -> list[int]:
        """Ids of the ledgers that have a file, ascending. A ledger gets its file with its first entry."""
        found = map(ledger_id_of, self._files.list_dir(self._layout.ledgers))
        return sorted(ledger_id for ledger_id in found if ledger_id is not None)

    def open_ledger(self, ledger_id: int, walked: Walked | None = None) -> LedgerSegment:
        """The ledger, open for reading; close it, or use it in a ``with``.

        ``walked`` is the result of an earlier ``LedgerSegment.walked`` of this ledger: that part is readable without a
        search for the end of the file. Reads check its records nevertheless.

        Raises NoSuchLedgerError when it has no file (deleted, or nothing written behind yet), DamagedFileError when the
        file's header is damaged or is that of another ledger or store, UnsupportedFormatError.
        """
        path = self._layout.ledger(ledger_id)
        try:
            file = self._files.open_read_only(path)
        except FileNotFoundError:
            raise NoSuchLedgerError(ledger_id) from None
        try:
            shift = self._check_header(file, path, ledger_id)
            proof = self._proof(file, path, ledger_id, FILE_HEADER_BYTES + shift)
            return LedgerSegment(_Shifted(file, shift), path, ledger_id, walked, proof)
        except BaseException:
            file.close()
            raise

    def _check_header(self, file: File, path: str, ledger_id: int) -> int:
        """Check the header; return the bytes of the file's head beyond the header. Raises as ``open_ledger``."""
        data = file.read(FILE_HEADER_BYTES, 0)
        if not data:
            raise NoSuchLedgerError(ledger_id)  # the broker is about to write its first entry
        header = parse_file_header(path, data, LEDGER_MAGIC)
        if header.file_id != ledger_id or header.store_id != self.store_id:
            raise DamagedFileError(path, 0, f"the file of ledger {header.file_id} of store {header.store_id.hex()}")
        return head_shift(file, ledger_id) or 0

    def _proof(self, file: File, path: str, ledger_id: int, head_bytes: int) -> int:
        try:
            properties = parse_ledger_head(path, file.read(head_bytes, 0)).properties
        except DamagedFileError:
            return NO_PROOF  # the broker is about to write the rest of the head
        return proof_of(self.store_id, ledger_id, properties)


class _Shifted:
    """A view of a ledger file in which the records begin at byte 64, whatever the size of the file's head."""

    def __init__(self, file: File, shift: int) -> None:
        self._file, self._shift = file, shift

    def read(self, size: int, offset: int) -> bytes:
        return self._file.read(size, offset + self._shift)

    def size(self) -> int:
        return max(0, self._file.size() - self._shift)

    def close(self) -> None:
        self._file.close()
