"""The interfaces of the client to a metadata service. ZooKeeper implements them, and a twin in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from magnetar.bookkeeper.metadata.bookie_info import BookieAddress
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata, Versioned

__all__ = ["BookieRegistry", "LedgerMetadataStore"]


class LedgerMetadataStore(Protocol):
    """Versioned ledger metadata. Any call may raise MetadataUnavailableError: then a write may or may not have
    happened.
    """

    async def new_ledger_id(self) -> int:
        """Return an id that is greater than all ids drawn before, and that no later call returns again."""
        ...

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> int:
        """Store the metadata of a new ledger and return their version. Raises NodeExistsError."""
        ...

    async def read(self, ledger_id: int, *, latest: bool = False) -> Versioned:
        """Return the metadata and their version. With `latest` they include every write that any client completed
        before the call.

        Raises NoSuchLedgerError, LedgerMetadataError.
        """
        ...

    async def watch(self, ledger_id: int, changed: Callable[[], None]) -> int | None:
        """Return the present version, or None for a ledger that does not exist, and set a watch. The store calls
        `changed` once, on the loop: at the next change of the metadata, or when the lost connection may have hidden a
        change.
        """
        ...

    async def write(self, ledger_id: int, metadata: LedgerMetadata, version: int) -> int:
        """Compare-and-set; returns the new version. Raises NodeVersionError, NoSuchLedgerError."""
        ...

    async def delete(self, ledger_id: int) -> None:
        """Delete the metadata of the ledger. Raises NoSuchLedgerError."""
        ...

    def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers, ascending within each directory of the metadata."""
        ...


class BookieRegistry(Protocol):
    """The bookies that are registered now, their addresses, racks and groups."""

    @property
    def writable(self) -> Mapping[str, BookieAddress]: ...

    @property
    def read_only(self) -> Mapping[str, BookieAddress]: ...

    def address(self, bookie_id: str) -> BookieAddress | None:
        """Return the address that the bookie has or had in its registration; without a known registration the address
        in its id, or None.
        """
        ...

    def rack(self, bookie_id: str) -> str:
        """Return the rack of the bookie; bookies without a known rack are all in ``DEFAULT_RACK``."""
        ...

    @property
    def groups(self) -> Mapping[str, frozenset[str]]:
        """The members of each group of bookies, including members that are not registered now."""
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of the registered bookies; return a function that cancels this."""
        ...
