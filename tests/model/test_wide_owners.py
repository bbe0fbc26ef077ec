"""Histories of owners on bookies with more operations (``wide_owners``): a sample here, 1,000 with
MAGNETAR_CLUSTER_LONG=1 (``make cluster``).
"""

from __future__ import annotations

import os
from functools import partial

import pytest

from magnetar.storage.errors import BadVersionError, GuardChangedError, StorageError
from magnetar.storage.managed import factory
from magnetar.storage.managed.cursors.ack_state import AckState
from magnetar.storage.managed.cursors.cursor import ManagedCursor
from magnetar.storage.managed.cursors.early_look import EarlyLook
from magnetar.storage.managed.cursors.saver import CursorSaver
from magnetar.storage.managed.cursors.store import CursorStore
from magnetar.storage.managed.ledger_list import LedgerList
from magnetar.storage.managed.managed_ledger import ManagedLedger
from magnetar.storage.managed.trimmer import Trimmer
from tests.model.owners_on_bookies import ViolationError
from tests.model.wide_owners import play
from tests.storage.managed import test_managed_ledger
from tests.storage.managed.cursors import test_record_owner

SEEDS = 1000 if os.environ.get("MAGNETAR_CLUSTER_LONG") == "1" else 10


@pytest.mark.timeout(3600)
def test_histories_hold():
    assert sum(play(seed) for seed in range(SEEDS)) > 10 * SEEDS


def forget_parts_of_batches(patch):
    """The stored state of a cursor lacks the parts of batches."""
    snapshot = AckState.snapshot

    def forgetful(self, properties):
        state = snapshot(self, properties)
        state.partial.clear()
        return state

    patch.setattr(AckState, "snapshot", forgetful)


def forget_deletions_without_an_answer(patch):
    """A cursor whose record a deletion without an answer has deleted is not saved again."""
    delete = CursorStore.delete

    async def forgetful(self):
        try:
            await delete(self)
        finally:
            self._may_be_deleted = False

    patch.setattr(CursorStore, "delete", forgetful)


def overwrite_later_changes(patch):
    """A change of properties that fails puts back the values from before its begin."""

    async def change(self, change):
        before = self._list._change_properties(change(self._list.properties))
        try:
            await self._background.uninterrupted(self._list.save(), "save list")
        except Exception:
            self._list._change_properties(before)
            raise

    patch.setattr(ManagedLedger, "change_properties", change)


def later_parts_replace_earlier_parts(patch):
    """An acknowledgement of parts of a batch forgets the parts that were acknowledged before."""
    ack_partly = AckState.ack_partly

    def replaced(self, position, remaining):
        self.partial.pop(position, None)
        return ack_partly(self, position, remaining)

    patch.setattr(AckState, "ack_partly", replaced)


def trim_behind_an_unsaved_snapshot(patch):
    """The log drops entries up to a mark-delete position whose save is under way or failed."""

    async def saves_nothing(*_):
        return False

    patch.setattr(ManagedCursor, "released", ManagedCursor.mark_delete)
    patch.setattr(Trimmer, "_save_cursors", saves_nothing)


def answer_before_the_record_is_stored(patch):
    """A caller that waits for the save of a cursor goes on at once."""

    async def at_once(self):
        self._start()

    patch.setattr(CursorSaver, "flush", at_once)


def takeover_with_the_list_of_before(patch):
    """A new owner stores the list that it read before it fenced the ledgers, whatever the former owner stored since."""
    put, recover, taking_over = LedgerList._put, factory.recover_ledgers, []

    async def forced(self, value, certain, version):
        try:
            return await put(self, value, certain, version)
        except (BadVersionError, GuardChangedError):
            if self not in taking_over:
                raise
            return await self._metadata.put(self.path, value, (await self._metadata.get(self.path))[1])

    async def recover_forced(env, ledger_list):
        taking_over.append(ledger_list)
        try:
            return await recover(env, ledger_list)
        finally:
            taking_over.remove(ledger_list)

    patch.setattr(LedgerList, "_put", forced)
    patch.setattr(factory, "recover_ledgers", recover_forced)


def cursors_as_the_early_look_saw_them(patch):
    """An opening takes the records of cursors as they were before it stored the list."""
    recover_ledgers, read = EarlyLook.recover_ledgers, EarlyLook.read

    async def remember(self, nodes):
        found = [await self._env.metadata.get(f"{self._path}/{node}") for node in nodes]
        self.early = dict(zip(nodes, found, strict=True))
        await recover_ledgers(self, nodes)

    async def read_early(self, nodes):
        now = await read(self, nodes)
        self.records |= self.early
        return now

    patch.setattr(EarlyLook, "recover_ledgers", remember)
    patch.setattr(EarlyLook, "read", read_early)


PLANTED = {
    forget_parts_of_batches: 6,
    later_parts_replace_earlier_parts: 156,
    trim_behind_an_unsaved_snapshot: 101,
    answer_before_the_record_is_stored: 1,
    takeover_with_the_list_of_before: 20,
    cursors_as_the_early_look_saw_them: 13,
}
"""Each defect with the seed of a history that finds it."""
RARE = {
    forget_deletions_without_an_answer: partial(
        test_record_owner.test_a_cursor_whose_deletion_got_no_answer_is_saved_again, has_ledger=True
    ),
    overwrite_later_changes: lambda _patch: (
        test_managed_ledger.test_a_change_of_properties_that_fails_takes_back_nothing_of_a_later_change()
    ),
}
"""Defects that one of tens of thousands of histories finds, each with the test of one course of events that finds the
defect.
"""


@pytest.mark.parametrize("defect", RARE, ids=lambda defect: defect.__name__)
async def test_a_rare_defect_is_found_by_its_test(defect):
    with pytest.MonkeyPatch.context() as patch:
        defect(patch)
        with pytest.raises((AssertionError, StorageError)):
            await RARE[defect](patch)
    with pytest.MonkeyPatch.context() as patch:
        await RARE[defect](patch)


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
