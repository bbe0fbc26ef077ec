"""Every error the room raises.

::

    BookKeeperError
     +- ClientClosedError                    used after close
     +- WireError                            an answer of a bookie, or a stored entry, with contradictory content
     +- BookieError(bookie_id)               an error of one bookie; other replicas may answer
     |   +- BookieUnreachableError           no connection, connection lost, no answer in time
     |   +- BookieRefusedError               the bookie answered with an error code
     +- LedgerError(ledger_id)
     |   +- NoSuchLedgerError                never created, or deleted
     |   +- EntryError(entry_id)
     |   |   +- NoSuchEntryError             beyond the end, or not on any replica
     |   |   +- DamagedEntryError            replicas answered, but no answer has an intact entry
     |   |   +- ReadFailedError              too few replicas answered; may be tried again
     |   +- LedgerFencedError                another client recovered the ledger (or deleted it): no more adds
     |   +- LedgerClosedError                add after close
     |   +- EntryTooLargeError               larger than a bookie takes; nothing was sent
     |   +- WrongPasswordError               the bookies know the ledger by another password or digest
     |   +- NotEnoughBookiesError            not enough writable bookies for a new ensemble, or to reach the ack quorum
     |   +- AddTimeoutError                  the ack quorum did not answer in time; the outcome is unknown
     |   +- RecoveryFailedError              too few bookies answered to find the end of the ledger; try again
     |   +- LedgerMetadataError              stored metadata that cannot be read, or of an unknown kind
     +- MetadataError(path)                  the metadata service
         +- NoSuchNodeError                  the node (or the parent of a node to create) does not exist
         +- NodeExistsError                  a node of this path exists already
         +- NodeVersionError                 compare-and-set lost: the node has another version
         +- NodeNotEmptyError                a node with children cannot be deleted
         +- MetadataAccessError              authentication failed, or the access list forbids the operation
         +- MetadataRequestError             the service refuses the request (value too large, bad path)
         +- MetadataUnavailableError         connection lost or deadline passed: the outcome of a write is unknown
             +- SessionExpiredError          the session ended: its ephemeral nodes are gone
             +- TooManyRequestsError         refused: too many requests wait for the service
"""

from __future__ import annotations

__all__ = [
    "AddTimeoutError",
    "BookKeeperError",
    "BookieError",
    "BookieRefusedError",
    "BookieUnreachableError",
    "ClientClosedError",
    "DamagedEntryError",
    "EntryError",
    "EntryTooLargeError",
    "LedgerClosedError",
    "LedgerError",
    "LedgerFencedError",
    "LedgerMetadataError",
    "MetadataAccessError",
    "MetadataError",
    "MetadataRequestError",
    "MetadataUnavailableError",
    "NoSuchEntryError",
    "NoSuchLedgerError",
    "NoSuchNodeError",
    "NodeExistsError",
    "NodeNotEmptyError",
    "NodeVersionError",
    "NotEnoughBookiesError",
    "ReadFailedError",
    "RecoveryFailedError",
    "SessionExpiredError",
    "TooManyRequestsError",
    "WireError",
    "WrongPasswordError",
]


class BookKeeperError(Exception):
    """Root of the room's errors."""


class ClientClosedError(BookKeeperError):
    """The client is closed."""


class WireError(BookKeeperError):
    """Bytes of a bookie that no correct bookie sends, or an entry whose digest does not fit."""


class BookieError(BookKeeperError):
    """An error of a single bookie."""

    def __init__(self, bookie_id: str, detail: str) -> None:
        super().__init__(bookie_id, detail)
        self.bookie_id, self.detail = bookie_id, detail

    def __str__(self) -> str:
        return f"bookie {self.bookie_id}: {self.detail}"


class BookieUnreachableError(BookieError):
    """No answer: whether the bookie executed the request is unknown."""


class BookieRefusedError(BookieError):
    """The bookie answered with an error; ``code`` as in ``wire.frames.Code``."""

    def __init__(self, bookie_id: str, code: int, detail: str) -> None:
        super().__init__(bookie_id, detail)
        self.code = code


class LedgerError(BookKeeperError):
    """An error of a single ledger."""

    what = "failed"

    def __init__(self, ledger_id: int, detail: str = "") -> None:
        super().__init__(ledger_id, detail)
        self.ledger_id, self.detail = ledger_id, detail

    def __str__(self) -> str:
        return f"ledger {self.ledger_id}: {self.what}{': ' if self.detail else ''}{self.detail}"


class NoSuchLedgerError(LedgerError):
    what = "no such ledger"


class LedgerFencedError(LedgerError):
    what = "fenced: another client recovered or deleted it"


class LedgerClosedError(LedgerError):
    what = "closed, no more adds"


class EntryTooLargeError(LedgerError):
    """The entry is too large; the client has sent nothing."""

    def __init__(self, ledger_id: int, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(ledger_id, f"{size_bytes} bytes, a bookie takes {limit_bytes}")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes

    what = "entry too large"


class WrongPasswordError(LedgerError):
    what = "wrong password or digest type, or a bookie that wants credentials"


class NotEnoughBookiesError(LedgerError):
    what = "not enough bookies"


class AddTimeoutError(LedgerError):
    """A later recovery may or may not find the entries."""

    what = "the ack quorum did not answer in time"


class RecoveryFailedError(LedgerError):
    """The ledger stays in recovery and may be opened again; nothing is lost."""

    what = "recovery failed"


class LedgerMetadataError(LedgerError):
    what = "unusable metadata"


class EntryError(LedgerError):
    """An error of a single entry."""

    def __init__(self, ledger_id: int, entry_id: int, detail: str = "") -> None:
        super().__init__(ledger_id, detail)
        self.entry_id = entry_id

    def __str__(self) -> str:
        return f"entry {self.ledger_id}:{self.entry_id}: {self.what}{': ' if self.detail else ''}{self.detail}"


class NoSuchEntryError(EntryError):
    what = "no such entry"


class DamagedEntryError(EntryError):
    what = "damaged on every replica that answered"


class ReadFailedError(EntryError):
    what = "too few replicas answered"


class MetadataError(BookKeeperError):
    """An operation on one node of the metadata service failed."""

    what = "failed"

    def __init__(self, path: str, detail: str = "") -> None:
        super().__init__(path, detail)
        self.path, self.detail = path, detail

    def __str__(self) -> str:
        return f"metadata node {self.path}: {self.what}{': ' if self.detail else ''}{self.detail}"


class NoSuchNodeError(MetadataError):
    what = "no such node"


class NodeExistsError(MetadataError):
    what = "exists already"


class NodeVersionError(MetadataError):
    """The node changed after the caller read it; the caller has to read it again before another write."""

    what = "has another version"


class NodeNotEmptyError(MetadataError):
    what = "has children"


class MetadataAccessError(MetadataError):
    what = "access denied"


class MetadataRequestError(MetadataError):
    what = "request refused"


class MetadataUnavailableError(MetadataError):
    """The service did not answer. A read may be repeated; a write may or may not have happened: read the node first."""

    what = "the metadata service did not answer"


class SessionExpiredError(MetadataUnavailableError):
    what = "the session expired"


class TooManyRequestsError(MetadataUnavailableError):
    """The session refused the request, because too many requests wait; the service did not get it."""

    what = "too many requests wait for the metadata service"
