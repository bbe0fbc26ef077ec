"""Defects put into the client on purpose: the histories must find each of them."""

from __future__ import annotations

import contextlib

import pytest

from magnetar.bookkeeper.ledgers import recovery
from magnetar.bookkeeper.ledgers.add_window import AddWindow
from magnetar.bookkeeper.ledgers.fencing import read_last_confirmed
from magnetar.bookkeeper.ledgers.writer import LedgerWriter

__all__ = ["PLANTED", "planted"]


def trust_without_confirmation(patch):
    """The writer counts acknowledgements although the bookies may have forgotten a fence."""

    async def confirm(self):
        self._confirming, self._trust_timer = False, None
        for acks in self.delivered():
            acks.trusted = True
        self._drain()

    patch.setattr(LedgerWriter, "_confirm", confirm)


def keep_acknowledgements_of_the_place(patch):
    """A bookie that takes a place counts as if it had the entries that its predecessor acknowledged."""
    join = AddWindow.join

    def leave(self, place):
        replica = self.replicas[place]
        if replica is not None:
            self.__dict__.setdefault("_left", {})[place] = max(replica.through, *replica.ahead, -1)
        self.replicas[place] = None

    def inherit(self, place):
        replica = join(self, place)
        replica.through = max(replica.through, self.__dict__.get("_left", {}).pop(place, -1))
        return replica

    patch.setattr(AddWindow, "leave", leave)
    patch.setattr(AddWindow, "join", inherit)


def one_acknowledgement_is_enough(patch):
    """The ack quorum is one less than it should be."""
    complete = AddWindow.complete

    def early(self, *, trusted_only):
        self.ack_quorum -= self.ack_quorum > 1
        try:
            return complete(self, trusted_only=trusted_only)
        finally:
            self.ack_quorum = self.__dict__.setdefault("_real", self.ack_quorum + 1)

    init = AddWindow.__init__

    def remember(self, size, write, ack):
        init(self, size, write, ack)
        self._real = ack

    patch.setattr(AddWindow, "__init__", remember)
    patch.setattr(AddWindow, "complete", early)


def confirm_while_the_ensemble_changes(patch):
    """The writer confirms entries that the new segment then leaves out."""

    def set_nothing(self, value):
        pass

    patch.setattr(LedgerWriter, "changing", property(lambda _self: False, set_nothing), raising=False)


def silence_is_absence(patch):
    """A recovery takes a silent bookie for a bookie that lacks the entry."""
    ask = recovery._Recovery._ask

    async def deaf(self, bookie, entry_id):
        with contextlib.suppress(Exception):
            return await ask(self, bookie, entry_id)

    patch.setattr(recovery._Recovery, "_ask", deaf)


def recover_without_fencing(patch):
    """A recovery reads without a fence, so the writer can go on."""

    async def read_plainly(context, ledger_id, metadata, digester, key, *, fence, seen):
        return await read_last_confirmed(context, ledger_id, metadata, digester, key, fence=False, seen=seen)

    patch.setattr(recovery, "read_last_confirmed", read_plainly)
    patch.setattr(recovery, "DO_FENCING", 0)


PLANTED = {
    trust_without_confirmation: 14,
    keep_acknowledgements_of_the_place: 45,
    one_acknowledgement_is_enough: 1,
    confirm_while_the_ensemble_changes: 49,
    silence_is_absence: 50,
    recover_without_fencing: 0,
}
"""Each defect with the seed of a history that finds it; when the histories have changed since, another history finds
it.
"""


@contextlib.contextmanager
def planted(defect):
    with pytest.MonkeyPatch.context() as patch:
        defect(patch)
        yield
