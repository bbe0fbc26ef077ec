"""Return codes of the bookie, protocol V2 (BookkeeperProtocol.proto numbers V3's differently)."""

from __future__ import annotations

import enum

__all__ = ["ABSENT", "Code", "code_name"]


class Code(enum.IntEnum):
    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO_ERROR = 101
    UNAUTHORIZED = 102
    """The master key is not the ledger's: another password."""
    BAD_VERSION = 103
    FENCED = 104
    READ_ONLY = 105
    TOO_MANY_REQUESTS = 106
    UNKNOWN_LEDGER_STATE = 107
    """The bookie does not know whether it has the entry: never "no such entry"."""


ABSENT = frozenset({Code.NO_LEDGER, Code.NO_ENTRY})
"""The bookie does not hold the entry."""


def code_name(code: int) -> str:
    """Text for errors and logs, also of a code that is not known."""
    try:
        return Code(code).name
    except ValueError:
        return f"code {code}"
