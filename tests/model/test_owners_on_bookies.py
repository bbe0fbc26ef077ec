"""Histories of owners on bookies (``owners_on_bookies``): a sample here, 5,000 with MAGNETAR_CLUSTER_LONG=1 (``make
cluster``).
"""

from __future__ import annotations

import os

import pytest

from magnetar.storage.bookkeeper import ledger_store
from magnetar.storage.bookkeeper.ledger_store import BookKeeperLedgerStore
from magnetar.storage.errors import StorageError
from magnetar.storage.managed import trimmer
from magnetar.storage.managed.ledger_switch import LedgerSwitch
from tests.model.owners_on_bookies import ViolationError, play

SEEDS = 5000 if os.environ.get("MAGNETAR_CLUSTER_LONG") == "1" else 30


@pytest.mark.timeout(3600)
def test_histories_hold():
    assert sum(play(seed) for seed in range(SEEDS)) > 10 * SEEDS


def readers_end_with_their_writer(patch):
    """A reader of a ledger that this process once wrote ends with the last entry that this process confirmed, also after
    the end of its log.
    """
    reader_of = BookKeeperLedgerStore._reader
    patch.setattr(ledger_store, "WeakValueDictionary", dict)
    patch.setattr(BookKeeperLedgerStore, "_reader", lambda self, ledger_id, _first: reader_of(self, ledger_id, -1))


def append_before_the_list_is_stored(patch):
    """Entries go to a ledger that the stored list may never name."""

    async def list_next(self, writer):
        self.ledger_list.ahead = writer.ledger_id
        try:
            await self.ledger_list.save()
        except StorageError:
            self.ledger_list.ahead = None

    patch.setattr(LedgerSwitch, "_list_next", list_next)


def drop_what_no_cursor_released(patch):
    """A trim forgets one of the cursors."""
    ledgers_to_drop = trimmer.ledgers_to_drop

    def forgetful(slots, mark_deletes, *arguments, **named):
        return ledgers_to_drop(slots, mark_deletes[1:], *arguments, **named)

    patch.setattr(trimmer, "ledgers_to_drop", forgetful)


PLANTED = {
    readers_end_with_their_writer: 688,
    append_before_the_list_is_stored: 1,
    drop_what_no_cursor_released: 3,
}
"""Each defect with the seed of a history that finds it."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", PLANTED, ids=lambda defect: defect.__name__)
def test_a_planted_defect_is_found(defect):
    with pytest.MonkeyPatch.context() as patch:
        defect(patch)
        for seed in (PLANTED[defect], *range(300)):
            try:
                play(seed)
            except ViolationError:
                return
    pytest.fail("no history finds it")
