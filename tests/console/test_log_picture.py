"""The picture of a log."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.console.log_picture import WIDTH, log_picture


def stats(ledgers, cursors, current=0):
    return {
        "ledgers": [{"ledgerId": ledger, "entries": entries} for ledger, entries in ledgers],
        "currentLedgerEntries": current,
        "cursors": {name: {"markDeletePosition": position} for name, position in cursors.items()},
    }


def test_a_topic_without_ledgers_has_no_picture():
    assert log_picture({}) is None
    assert log_picture({"ledgers": []}) is None


def test_ledgers_are_as_wide_as_they_have_entries_and_cursors_stand_in_them():
    picture = log_picture(stats([(3, 100), (5, 0)], {"a": "3:99", "b": "5:149", "c": "3:-1"}, current=300))
    first, second = picture.boxes
    assert (first.label, second.label) == ("3", "5")
    assert second.entries == 300, "the open ledger is counted apart"
    assert 2.9 < second.width / first.width < 3.1
    places = {mark.name: mark.x for mark in picture.marks}
    assert places["c"] == 0
    assert abs(places["a"] - first.width) < 0.1
    assert abs(places["b"] - (first.width + second.width / 2)) < 0.1


def test_a_ledger_that_every_subscription_acknowledged_is_free():
    boxes = log_picture(stats([(1, 10), (2, 10), (3, 10)], {"a": "2:9", "b": "3:4"})).boxes
    assert [box.is_free for box in boxes] == [True, True, False]
    assert not any(box.is_free for box in log_picture(stats([(1, 10)], {})).boxes), "without cursors nothing is known"


def test_many_old_ledgers_are_drawn_together():
    picture = log_picture(stats([(i, 1) for i in range(500)], {}))
    assert len(picture.boxes) <= 60
    assert picture.boxes[0].label.startswith("0 to ")
    assert sum(box.entries for box in picture.boxes) == 500


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=200),
    st.lists(st.tuples(st.integers(-1, 250), st.integers(-1, 1200)), max_size=60),
)
def test_everything_is_inside_the_picture(entries, cursors):
    named = {f"s{i}": f"{ledger}:{entry}" for i, (ledger, entry) in enumerate(cursors)}
    picture = log_picture(stats(list(enumerate(entries)), named, current=entries[-1]))
    assert all(box.x >= 0 and box.x + box.width <= WIDTH + 0.5 for box in picture.boxes)
    assert all(0 <= mark.x <= WIDTH + 0.5 for mark in picture.marks)
    assert len(picture.marks) + picture.hidden_cursors == len(cursors)
