"""Settings of a client; the defaults suit a broker's ledgers."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.bookkeeper.bookies.placement import PlacementRules
from magnetar.bookkeeper.bookies.tls import BookieSecurity
from magnetar.bookkeeper.wire.digests import DigestType
from magnetar.bookkeeper.wire.frames import DEFAULT_MAX_FRAME_BYTES

__all__ = ["ClientOptions", "LedgerOptions"]


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """The quorums of a new ledger: the writer sends each entry to ``write_quorum`` of ``ensemble_size`` bookies, and
    the entry is acknowledged once ``ack_quorum`` of them have the entry on disk.
    """

    ensemble_size: int = 3
    write_quorum: int = 2
    ack_quorum: int = 2
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            raise ValueError(
                f"ensemble size {self.ensemble_size} >= write quorum {self.write_quorum} >= ack quorum "
                f"{self.ack_quorum} >= 1 does not hold"
            )


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Limits and deadlines. Times in seconds."""

    connect_timeout_s: float = 10.0
    add_timeout_s: float = 5.0
    """The writer replaces a bookie that has not answered an add for this time (BookKeeper: addEntryTimeoutSec)."""
    add_quorum_timeout_s: float = 60.0
    """When an add has had no ack quorum for this time, the writer fails, and with it all waiting adds."""
    close_timeout_s: float = 30.0
    """Deadline for the write of the metadata that close a ledger; after it the ledger stays open until a recovery."""
    read_timeout_s: float = 5.0
    unanswered_timeout_s: float = 60.0
    """The connection to a bookie ends when a read has had no answer for so long, at most twice as long, although the
    bookie answers others: such a read would count against ``max_reads_per_bookie`` forever.
    """
    speculative_read_s: float = 1.0
    """A read without an answer after this time also goes to the next replica; 0: only after an error."""
    recovery_timeout_s: float = 30.0
    """Deadline of a whole recovery."""
    recovery_read_ahead: int = 16
    """Entries that a recovery reads and writes at the same time."""
    quarantine_s: float = 60.0
    """New ensembles leave out a bookie for this time after a failed add, as long as other bookies suffice."""
    quarantine_ratio: float = 1.0
    """Probability that a failed add puts its bookie into quarantine: less than 1 where many clients see one failure."""
    reconnect_delay_s: float = 0.05
    longest_reconnect_delay_s: float = 2.0
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    """The bookies' ``nettyMaxFrameSizeBytes``: a bookie resets the connection of a client that sends more."""
    write_buffer_bytes: int = 4 << 20
    """Bound for each connection: adds wait while the connection has more unsent bytes."""
    max_in_flight_bytes: int = 64 << 20
    """Bound for each ledger: ``append`` waits while more bytes are unacknowledged."""
    max_lag_bytes: int = 32 << 20
    """Bound for each ledger: the writer replaces the slowest bookie when it keeps more confirmed bytes for that
    bookie.
    """
    max_reads_per_bookie: int = 1000
    """Limit of a bookie's reads without an answer; a further read goes to the next replica."""
    batch_reads: bool = True
    """Read many entries by one request; bookies before 4.17 do not have this request."""
    batch_read_bytes: int = 1 << 20
    placement: PlacementRules = field(default_factory=PlacementRules)
    disk_weights: bool = False
    """Prefer bookies with more free disk space when choosing bookies for a ledger."""
    disk_info_interval_s: float = 86_400.0
    disk_info_retry_s: float = 60.0
    """The interval after a bookie did not answer the request for its free space."""
    security: BookieSecurity = field(default_factory=BookieSecurity)
    local_host: str = ""
    """Host of this process: if a bookie runs on this host, readers prefer replicas in its rack, then in its region."""
