"""Groups the message ids of an ACK by ledger, if the ACK acknowledges whole entries only. Compiled, else the pure twin,
chosen as in `speed.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.protocol import pulsar_api_pb2 as pb

__all__ = ["COMPILED", "MAX_ENTRY_ID", "MAX_LEDGER_ID", "pure_whole_entries", "whole_entries"]

MAX_ENTRY_ID = (1 << 32) - 1  # the limit of the bitmaps; no ledger gets so many entries
MAX_LEDGER_ID = (1 << 63) - 1


def pure_whole_entries(command: pb.CommandAck) -> dict[int, list[int]] | None:
    """Return the acknowledged entries of each ledger, in their order; None when an id has an ack set or is above
    MAX_LEDGER_ID or MAX_ENTRY_ID.
    """
    ledgers: dict[int, list[int]] = {}
    for ident in command.message_id:
        ledger_id, entry_id = ident.ledgerId, ident.entryId
        if ident.ack_set or entry_id > MAX_ENTRY_ID or ledger_id > MAX_LEDGER_ID:
            return None
        ledgers.setdefault(ledger_id, []).append(entry_id)
    return ledgers


COMPILED = False
whole_entries = pure_whole_entries

if not os.environ.get("MAGNETAR_PURE"):
    try:
        from magnetar.protocol._acks import whole_entries as _compiled
    except ImportError:  # no compiler at install time: the twin is used
        pass
    else:
        COMPILED = True

        def whole_entries(command: pb.CommandAck) -> dict[int, list[int]] | None:
            """As ``pure_whole_entries``; to serialize and read the ids costs less than an object for each id."""
            return _compiled(command.SerializePartialToString())
