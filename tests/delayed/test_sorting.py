"""The compiled sort against its twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.delayed import sorting
from magnetar.delayed.sorted_run import Columns

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
KEYS = st.tuples(st.one_of(I64, st.integers(0, 5)), st.one_of(I64, st.integers(0, 3)), st.integers(0, (1 << 32) - 1))
PARTS = st.lists(st.tuples(st.lists(KEYS, max_size=80), st.booleans()), max_size=8)


def columns_of(parts):
    return [Columns.of(sorted(keys) if in_order else keys) for keys, in_order in parts]


@given(parts=PARTS)
def test_all_rows_come_in_order(parts):
    columns = columns_of(parts)
    assert sorting.merge([Columns.empty(), *columns]).keys() == sorted(key for keys, _ in parts for key in keys)
    for part in columns:
        assert sorting.sort(part).keys() == sorted(part.keys())


def test_a_single_part_is_not_copied():
    part = Columns.of([(1, 2, 3)])
    assert sorting.merge([part]) is part


@pytest.mark.skipif(not sorting.COMPILED, reason="there is nothing to compare")
class TestCompiled:
    @given(parts=PARTS)
    def test_compiled_sorting_equals_the_twin(self, parts):
        columns = columns_of(parts)
        assert sorting._sorting.sorted_columns(columns) == sorting.pure_sorted_columns(columns)

    def test_many_rows_are_sorted_without_the_interpreter_lock(self):
        keys = [((k * 7919) % 10_007, k % 3, k) for k in range(50_000)]
        parts = [Columns.of(keys[k : k + 4096]) for k in range(0, len(keys), 4096)]
        assert sorting.merge(parts).keys() == sorted(keys)

    @pytest.mark.parametrize("parts", [[1], [(1, 2)], [(b"", b"", b"", b"")], [("", b"", b"")], 7])
    def test_invalid_columns_are_refused(self, parts):
        with pytest.raises(TypeError):
            sorting._sorting.sorted_columns(parts)

    @pytest.mark.parametrize("lengths", [(8, 8, 8), (16, 8, 4), (7, 8, 4), (8, 0, 4)])
    def test_columns_of_different_length_are_refused(self, lengths):
        with pytest.raises(ValueError, match="different length"):
            sorting._sorting.sorted_columns([tuple(map(bytes, lengths))])
