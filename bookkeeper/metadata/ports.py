"""The ports of the client to a metadata service. Implemented on ZooKeeper, and by a twin in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from magnetar.bookkeeper.metadata.bookie_info import BookieAddress
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata, Versioned

__all__ = ["BookieRegistry", "LedgerMetadataStore"]


class LedgerMetadataStore(Protocol):
    """Versioned ledger metadata. Any call may raise MetadataUnavailableError: then a write may have happened."""

    async def new_ledger_id(self) -> int:
        """An id greater than all before it, never given again."""
        ...

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> int:
        """Returns the version. Raises NodeExistsError."""
        ...

    async def read(self, ledger_id: int, *, latest: bool = False) -> Versioned:
        """`latest`: not older than the newest write completed anywhere when this was called.

        Raises NoSuchLedgerError, LedgerMetadataError.
        """
        ...

    async def watch(self, ledger_id: int, changed: Callable[[], None]) -> int | None:
        """The present version, None of a ledger that does not exist. `changed` is called once on the loop, when the
        metadata change after that, or when the service was lost and may have missed a change.
        """
        ...

    async def write(self, ledger_id: int, metadata: LedgerMetadata, version: int) -> int:
        """Compare-and-set; returns the new version. Raises NodeVersionError, NoSuchLedgerError."""
        ...

    async def delete(self, ledger_id: int) -> None:
        """Raises NoSuchLedgerError."""
        ...

    def ledger_ids(self) -> AsyncIterator[int]:
        """Ids of all ledgers, ascending within each directory."""
        ...


class BookieRegistry(Protocol):
    """Which bookies there are now."""

    @property
    def writable(self) -> Mapping[str, BookieAddress]: ...

    @property
    def read_only(self) -> Mapping[str, BookieAddress]: ...

    def address(self, bookie_id: str) -> BookieAddress | None:
        """The address of a bookie that is or was registered; else the address in its id."""
        ...

    def rack(self, bookie_id: str) -> str:
        """The rack of the bookie; bookies without a known rack share a rack."""
        ...

    @property
    def groups(self) -> Mapping[str, frozenset[str]]:
        """Members of each group of bookies, registered now or not."""
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after bookies came or went; returns the cancel function."""
        ...
