"""Finds the ledgers of a data directory from ledger files and journal, without the metadata."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.layout import ledger_id_of
from magnetar.storage.embedded.ledger_head import parse_ledger_head
from magnetar.storage.errors import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout

__all__ = ["FoundLedgers", "LedgerIdentity"]

_HEAD_BYTES = 1 << 20


class LedgerIdentity(NamedTuple):
    """The identity of one ledger."""

    ledger_id: int
    properties: Mapping[str, str] | None
    """None: no properties were found, because the file has format 1 or a damaged head."""
    created_ms: int
    in_file: bool
    """False: only the journal has the ledger, which may have been deleted since."""
    was_known: bool = False
    """Whether the readable part of the metadata lists the ledger."""


class FoundLedgers:
    """Gathers identities. The identity from a file replaces an identity from the journal, because a ledger with a file
    was not deleted.
    """

    def __init__(self) -> None:
        self._found: dict[int, LedgerIdentity] = {}

    def add_journalled(self, ledger_id: int, properties: Mapping[str, str] | None) -> None:
        """Add a ledger with records in the journal. ``properties``: from the birth record; None for another record."""
        known = self._found.get(ledger_id)
        if known is None:
            self._found[ledger_id] = LedgerIdentity(ledger_id, properties, 0, in_file=False)
        elif known.properties is None and properties is not None:
            self._found[ledger_id] = known._replace(properties=properties)

    def add_files(self, files: FileSystem, layout: Layout, store_id: bytes | None) -> None:
        """Add all ledger files of this store."""
        for name in files.list_dir(layout.ledgers):
            ledger_id = ledger_id_of(name)
            if ledger_id is None:
                continue
            file = files.open_read_only(posixpath.join(layout.ledgers, name))
            try:
                data = file.read(_HEAD_BYTES, 0)
            finally:
                file.close()
            try:
                head = parse_ledger_head(name, data)
            except DamagedFileError:
                self._add_file(LedgerIdentity(ledger_id, None, 0, in_file=True))
                continue
            if head.header.file_id == ledger_id and store_id in {None, head.header.store_id}:
                self._add_file(LedgerIdentity(ledger_id, head.properties, head.header.created_ms, in_file=True))

    def all(self) -> list[LedgerIdentity]:
        """The identities, ascending by ledger id."""
        return [self._found[ledger_id] for ledger_id in sorted(self._found)]

    def _add_file(self, identity: LedgerIdentity) -> None:
        known = self._found.get(identity.ledger_id)
        if known is not None and identity.properties is None:
            identity = identity._replace(properties=known.properties)
        self._found[identity.ledger_id] = identity
