"""Message ids of an ACK by ledger: the compiled helper and its twin agree."""

import random

import pytest
from frames_for_tests import mutated
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.protocol import acks
from magnetar.protocol import pulsar_api_pb2 as pb

IDS = st.tuples(
    st.sampled_from([0, 1, 7, 2**63 - 1] * 5 + [2**63, 2**64 - 1]),
    st.sampled_from([0, 1, 300, 2**32 - 1] * 5 + [2**32, 2**64 - 1]),
    st.sampled_from([[]] * 20 + [[0], [1, -1]]),
)


def ack(ids):
    command = pb.CommandAck(consumer_id=3, ack_type=pb.CommandAck.Individual, request_id=9)
    for ledger_id, entry_id, ack_set in ids:
        command.message_id.add(ledgerId=ledger_id, entryId=entry_id, partition=-1, batch_index=2, ack_set=ack_set)
    return command


@given(ids=st.lists(IDS, max_size=12))
@settings(max_examples=300, deadline=None)
def test_twins_agree(ids):
    command = ack(ids)
    found = acks.whole_entries(command)
    assert found == acks.pure_whole_entries(command)
    assert found is None or list(found) == list(dict.fromkeys(ledger_id for ledger_id, _, _ in ids))


def test_entries_keep_their_order_in_each_ledger():
    ids = [(1, 5, []), (2, 9, []), (1, 4, []), (1, 4, [])]
    assert acks.whole_entries(ack(ids)) == {1: [5, 4, 4], 2: [9]}
    assert acks.whole_entries(ack([*ids, (1, 6, [1])])) is None


@given(seed=st.integers(0, 2**60))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_entries_or_none(seed):
    compiled = pytest.importorskip("magnetar.protocol._acks")
    rng = random.Random(seed)
    data = ack([(rng.randrange(3), rng.randrange(500), []) for _ in range(rng.randrange(6))]).SerializeToString()
    found = compiled.whole_entries(mutated(rng, data))
    assert found is None or all(isinstance(entries, list) for entries in found.values())
