"""Divides the file descriptors of the process: storage first, then the web port, then clients.

    kind             share of the limit L (RLIMIT_NOFILE)
    reserve          640, at most half of L: ledger files, journal, metadata, threads' pipes, extra connections
    of it extra      32 connections beyond the share of each port, at most L/16
    of it ledgers    four fifths: ledger files kept open at a time, each with two descriptors; 40 and the extra
                     connections are left
    web port         a quarter of the rest, at most maxHttpServerConnections
    binary port      the remaining descriptors, at most brokerMaxConnections

So no number of connections can keep storage from opening a file. At its start the process raises its limit to the
maximum that the system allows (`raise_limit`).
"""

import contextlib
import resource
from typing import Final, NamedTuple

_RESERVE: Final = 640
_MOST_USEFUL: Final = 1 << 20
_MOST_OF_MACOS: Final = 10_240
"""macOS shows no maximum and refuses more than this (OPEN_MAX)."""
_MOST_LEDGER_FILES: Final = 256
_LEAST_LEDGER_FILES: Final = 4
_MOST_EXTRA: Final = 32
_OTHER_FILES: Final = 40
"""Journal, metadata, listeners, event loop, threads and short uses: an idle broker has about 20 of them open."""


class DescriptorShares(NamedTuple):
    """Numbers of descriptors by use; `limit` is the limit of the process.

    extra: connections beyond the share of each port; the binary port refuses them with a reason, the web port serves
    probes.
    """

    limit: int
    ledger_files: int
    web_connections: int
    connections: int
    extra: int = _MOST_EXTRA

    @classmethod
    def of_limit(cls, limit: int, most_web: int, most_connections: int) -> "DescriptorShares":
        """Divide `limit` descriptors. most_connections: with 0 only the limit bounds the connections."""
        extra = max(1, min(_MOST_EXTRA, limit // 16))
        others = _OTHER_FILES + 2 * extra
        reserve = min(_RESERVE, max(limit // 2, others + 2 * _LEAST_LEDGER_FILES))
        rest = limit - reserve
        web = max(1, min(most_web, rest // 4))
        connections = max(1, rest - web)
        return cls(
            limit,
            max(_LEAST_LEDGER_FILES, min(_MOST_LEDGER_FILES, reserve * 2 // 5, (reserve - others) // 2)),
            web,
            min(most_connections, connections) if most_connections else connections,
            extra,
        )


def process_limit() -> int:
    """Return how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_USEFUL if soft == resource.RLIM_INFINITY else min(soft, _MOST_USEFUL)


def raise_limit() -> int:
    """Raise the limit of descriptors to the maximum that the system allows this process; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_USEFUL if hard == resource.RLIM_INFINITY else min(hard, _MOST_USEFUL)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        for limit in (wanted, _MOST_OF_MACOS):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(limit, wanted)), hard))
                break
    return process_limit()
