"""Histories of owners on bookies whose log is compacted (``compacting_owners``): a sample here, 500 with
MAGNETAR_CLUSTER_LONG=1 (``make cluster``).
"""

from __future__ import annotations

import os

import pytest

from magnetar.broker.compaction.topic_compaction import COMPACTION_CURSOR, TopicCompaction
from magnetar.storage.managed.cursors.cursor import ManagedCursor
from magnetar.storage.position import LATEST
from tests.model.compacting_owners import play
from tests.model.owners_on_bookies import ViolationError

SEEDS = 500 if os.environ.get("MAGNETAR_CLUSTER_LONG") == "1" else 10


@pytest.mark.timeout(3600)
def test_histories_hold():
    assert sum(play(seed) for seed in range(SEEDS)) > 10 * SEEDS


def report_before_the_record_is_stored(patch):
    """A compaction succeeds whose record is in the memory of its owner alone."""

    async def in_memory(self, cursor, record):
        cursor.note_properties(record.properties())
        self._record = record

    patch.setattr(TopicCompaction, "_save", in_memory)


def drop_what_is_not_compacted(patch):
    """A trim pays no regard to the cursor of compaction."""
    released = ManagedCursor.released.fget
    patch.setattr(
        ManagedCursor, "released", property(lambda self: LATEST if self.name == COMPACTION_CURSOR else released(self))
    )


def delete_the_ledger_before_the_record(patch):
    """The compacted ledger goes before the record names its successor."""
    replaced = TopicCompaction._replace

    async def early(self, cursor, new):
        if self._current is not None:
            await self._ledgers.delete(self._current.ledger.ledger_id)
        await replaced(self, cursor, new)

    patch.setattr(TopicCompaction, "_replace", early)


PLANTED = {
    report_before_the_record_is_stored: 1,
    drop_what_is_not_compacted: 11,
    delete_the_ledger_before_the_record: 0,
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
