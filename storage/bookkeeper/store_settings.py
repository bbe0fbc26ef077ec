"""Settings of the engine on BookKeeper."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.bookkeeper.options import ClientOptions, LedgerOptions
from magnetar.bookkeeper.wire.digests import DigestType

__all__ = ["BookKeeperSettings"]


@dataclass(frozen=True, slots=True)
class BookKeeperSettings:
    """Quorums as Pulsar's ``managedLedgerDefault*``. All brokers of a cluster need the same password."""

    ensemble_size: int = 2
    write_quorum: int = 2
    ack_quorum: int = 2
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    cache_bytes: int = 64 << 20
    """Recent slabs of all ledgers, for readers of the tail."""
    max_record_bytes: int = 5 << 20
    """Largest record (32 bytes of header and the entry); the bookies' frame limit is the other bound."""
    client: ClientOptions = field(default_factory=ClientOptions)

    def ledger_options(self, component: str | None) -> LedgerOptions:
        """Of a new ledger; Pulsar gives compacted ledgers another digest than all others."""
        digest_type = DigestType.CRC32 if component == "compacted-ledger" else self.digest_type
        return LedgerOptions(self.ensemble_size, self.write_quorum, self.ack_quorum, digest_type, self.password)
