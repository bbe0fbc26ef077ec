import pickle

import pytest

from magnetar.pipeline.damage import Quarantined, Reason
from magnetar.pipeline.errors import CorruptEntryError
from magnetar.pipeline.quarantine import MAX_KEPT, Quarantine

FOUND = Quarantined("persistent://a/b/c", 3, 4, Reason.BATCH, "cut off", batch_index=5, index=99, messages=2)


def test_failing_names_position_reason_and_remedy():
    with pytest.raises(
        CorruptEntryError, match=r"a/b/c 3:4:5 \(index 99\): batch: cut off; with onCorrupt=quarantine"
    ) as e:
        Quarantine("fail").add(FOUND)
    assert pickle.loads(pickle.dumps(e.value)).quarantined == FOUND


def test_all_are_counted_and_the_first_kept():
    quarantine = Quarantine("quarantine")
    for _ in range(MAX_KEPT + 5):
        quarantine.add(FOUND)
    assert (len(quarantine), len(quarantine.entries), quarantine.messages) == (
        MAX_KEPT + 5,
        MAX_KEPT,
        2 * (MAX_KEPT + 5),
    )


def test_entries_without_damage_never_fail():
    quarantine = Quarantine("fail")
    quarantine.report(FOUND)
    assert quarantine.counts == {Reason.BATCH: 1}


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="fail or quarantine, not 'skip'"):
        Quarantine("skip")
