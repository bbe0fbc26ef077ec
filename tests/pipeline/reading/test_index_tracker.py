"""Indexes of entries from brokers that send indexes, that do not send them, and that have none."""

import dataclasses
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.entry_chunk import EntryChunk
from magnetar.pipeline.errors import CatalogUnavailableError
from magnetar.pipeline.reading.index_tracker import NO_INDEX, IndexTracker, with_index
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.metadata import parse_entry_metadata, split_entry


def sent(messages, payload=b"x"):
    """An entry as a client sent it."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=messages)
    raw = metadata.SerializeToString()
    return struct.pack(">I", len(raw)) + raw + payload


@st.composite
def logs(draw):
    """(ledger, entry, messages, index of the last message) of a log; some entries are not delivered."""
    index, found = draw(st.integers(0, 100)) - 1, []
    for ledger in range(draw(st.integers(1, 4))):
        for entry in range(draw(st.integers(1, 12))):
            messages = draw(st.integers(1, 5))
            index += messages
            found.append((ledger, entry, messages, index))
    return found


@given(log=logs(), missing=st.sets(st.integers(0, 40)), told=st.booleans(), cuts=st.sets(st.integers(0, 40)))
def test_every_entry_has_its_index_whatever_is_not_delivered(log, missing, told, cuts):
    index_of = {(ledger, entry): (last - n + 1, last) for ledger, entry, n, last in log}
    tracker = IndexTracker(lambda position: index_of[position])
    for chunk, rows in chunks_of(log, missing, cuts, told=told):
        found = tracker.track(chunk)
        assert found.last_index.tolist() == [last for *_, last in rows]
        assert found.messages.tolist() == [n for _, _, n, _ in rows]
        assert found.chunk.entry_ids.tolist() == [entry for _, entry, *_ in rows]
        for k, (*_, last) in enumerate(rows):
            assert parse_entry_metadata(found.chunk.entry(k)).index == last
            assert bytes(split_entry(bytes(found.chunk.entry(k)))[1]) == b"x"
        if rows[-1][1] in cuts:
            tracker.restart()
    assert not told or not tracker.asked


def chunks_of(log, missing, cuts, *, told):
    """The delivered entries, cut at ledgers and anywhere else."""
    rows = []
    for k, row in enumerate(log):
        if k in missing:
            continue
        if rows and (rows[-1][0] != row[0] or k in cuts):
            yield chunk(rows, told=told), rows
            rows = []
        rows.append(row)
    if rows:
        yield chunk(rows, told=told), rows


def chunk(rows, *, told):
    bodies = [with_index(sent(n), last) if told else sent(n) for _, _, n, last in rows]
    return chunk_of(rows[0][0], bodies, [entry for _, entry, *_ in rows])


def chunk_of(ledger_id, bodies, entry_ids=None):
    """Entries of a ledger, numbered from 0."""
    made = EntryChunk.of_bodies("persistent://public/default/t", bodies, ledger_id=ledger_id)
    return made if entry_ids is None else dataclasses.replace(made, entry_ids=np.array(entry_ids, np.int64))


def test_a_log_without_indexes_is_passed_on_as_it_is():
    found = IndexTracker(lambda _: None).track(chunk_of(1, [sent(3)]))
    assert (found.last_index.tolist(), found.messages.tolist()) == ([NO_INDEX], [3])
    assert bytes(found.chunk.entry(0)) == sent(3)


def test_other_broker_entry_metadata_are_kept():
    stored = pb.BrokerEntryMetadata(broker_timestamp=7)
    raw = stored.SerializeToString()
    body = b"\x0e\x02" + struct.pack(">I", len(raw)) + raw + sent(1)
    found = IndexTracker(lambda _: (5, 5)).track(chunk_of(1, [body]))
    assert parse_entry_metadata(found.chunk.entry(0)) == pb.BrokerEntryMetadata(broker_timestamp=7, index=5)


def test_entries_without_an_answer_of_the_broker_are_left_for_later():
    def ask(position):
        if position.entry_id == 4:
            raise CatalogUnavailableError("the admin API is away")
        return (0, 0)

    tracker = IndexTracker(ask)
    found = tracker.track(chunk_of(1, [sent(1)] * 3, [0, 1, 4]))
    assert (found.chunk.entry_ids.tolist(), found.last_index.tolist()) == ([0, 1], [0, 1])
    with pytest.raises(CatalogUnavailableError):
        tracker.track(chunk_of(1, [sent(1)], [4]))
