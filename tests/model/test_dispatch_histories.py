"""Random histories of one subscription (`dispatch_histories.py`), each of a seed of its own."""

import pytest

from tests.model.dispatch_histories import play


@pytest.mark.parametrize("first", range(0, 60, 10))
async def test_random_histories_of_a_subscription(first):
    for seed in range(first, first + 10):
        await play(seed)
