"""MESSAGE frames as columns: the compiled helper, its twin and the cutter of all frames agree."""

import random
from types import SimpleNamespace

import delivery_twins
import pytest
from delivery_twins import CONSUMER, frame
from hypothesis import example, given, settings
from hypothesis import strategies as st

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.answers import AnswerCutter
from magnetar.protocol.deliveries import DeliveryColumn, deliveries, pure_deliveries
from magnetar.protocol.message_id import signed


@given(seed=st.integers(0, 2**60))
@settings(max_examples=300, deadline=None)
def test_twins_agree(seed):
    compiled = pytest.importorskip("magnetar.protocol._deliveries")
    delivery_twins.check_deliveries(compiled, random.Random(seed))


def test_the_comparison_notices_a_difference():
    wrong = SimpleNamespace(deliveries=lambda *_: (b"", 0))
    with pytest.raises(AssertionError):
        repeat(wrong)


def repeat(helper):
    for seed in range(20):
        delivery_twins.check_deliveries(helper, random.Random(seed))


@pytest.mark.parametrize("cut", [deliveries, pure_deliveries])
@given(seed=st.integers(0, 2**60))
@example(seed=5_648_626_379)  # another command beside the MESSAGE
@settings(max_examples=200, deadline=None)
def test_the_columns_agree_with_the_cutter_of_all_frames(cut, seed):
    rng = random.Random(seed)
    data = b"".join(frame(rng) for _ in range(rng.randrange(8)))
    table, end = cut(data, 0, CONSUMER)
    rows = memoryview(table).cast("q").tolist()
    n = len(rows) // len(DeliveryColumn)
    found = [
        (rows[k], rows[n + k], data[rows[DeliveryColumn.START * n + k] : rows[DeliveryColumn.END * n + k]])
        for k in range(n)
    ]
    answers = AnswerCutter().feed(data[:end])
    assert [each.command.type for each in answers] == [pb.BaseCommand.MESSAGE] * n
    ids = [each.command.message.message_id for each in answers]
    assert found == [(signed(i.ledgerId), signed(i.entryId), a.entry) for i, a in zip(ids, answers, strict=True)]
