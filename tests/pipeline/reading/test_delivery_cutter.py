"""Pushed entries in columns, other commands as any client gets them, however the stream is cut into pieces."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.reading.delivery_cutter import DeliveryCutter, as_chunks
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.answers import AnswerCutter


def message(ledger_id, entry_id, body, consumer_id=1):
    command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE)
    command.message.consumer_id = consumer_id
    command.message.message_id.ledgerId, command.message.message_id.entryId = ledger_id, entry_id
    raw = command.SerializeToString()
    return (4 + len(raw) + len(body)).to_bytes(4, "big") + len(raw).to_bytes(4, "big") + raw + body


FRAMES = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), st.binary(max_size=60)),
        st.just(None),
    ),
    max_size=12,
)


@given(frames=FRAMES, cuts=st.sets(st.integers(0, 900)), before=st.integers(0, 20))
def test_pieces_of_any_size_give_the_same(frames, cuts, before):
    """before: bytes of the first frame that came before this cutter took over."""
    entries = [(ledger, k, body) for k, (ledger, body) in enumerate(f for f in frames if f is not None)]
    rest = iter(entries)
    parts = [requests.pong() if f is None else message(*next(rest)) for f in frames]
    data = b"".join(parts)
    old, blocks = AnswerCutter(), []
    head = parts[0][: min(before, len(parts[0]) - 1)] if parts else b""
    assert not old.feed(head)
    cutter = DeliveryCutter(1, blocks.append, old)
    edges = sorted({len(head), len(data), *(c for c in cuts if len(head) < c < len(data))})
    answers = [a for i, j in pairwise(edges) for a in cutter.feed(data[i:j])]
    assert [a.command.type for a in answers] == [pb.BaseCommand.PONG] * frames.count(None)
    chunks = as_chunks("persistent://public/default/t", -1, blocks)
    found = [(c.ledger_id, int(c.entry_ids[k]), bytes(c.entry(k))) for c in chunks for k in range(len(c))]
    assert found == entries


def test_messages_for_another_consumer_are_no_entries():
    blocks = []
    [answer] = DeliveryCutter(1, blocks.append, AnswerCutter()).feed(message(1, 2, b"x", consumer_id=9))
    assert (answer.command.message.consumer_id, answer.entry, blocks) == (9, b"x", [])
