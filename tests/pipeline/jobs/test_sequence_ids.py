from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.jobs.sequence_ids import SequenceIds

IDS = st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 30)), max_size=60)


@given(IDS, IDS)
def test_beside_a_set(first, second):
    ids, seen = SequenceIds(), set()
    repeated = ids.add([name for name, _ in first], [number for _, number in first])
    assert repeated == [place for place, pair in enumerate(first) if pair in first[:place]]
    seen.update(first)
    other = SequenceIds()
    other.add([name for name, _ in second], [number for _, number in second])
    both = {name for name, _, _ in ids.overlaps(other)}
    assert both == {name for name, number in second if (name, number) in seen}
    ids.merge(other)
    seen.update(second)
    for name, number in seen:
        assert ids.add([name], [number]) == [0]
    for name in (b"a", b"b"):
        for number in range(31):
            if (name, number) not in seen:
                assert ids.add([name], [number]) == []
                seen.add((name, number))


def test_consecutive_ids_are_one_run():
    ids = SequenceIds()
    ids.add([b"p"] * 1000, list(range(1000)))
    assert len(ids) == 1
