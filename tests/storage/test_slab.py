from __future__ import annotations

from array import array

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests, speed
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.runs import EntryRun
from magnetar.storage.slab import Slab, Span, slab_of_run
from tests.storage.records_for_tests import slab_of

BODIES = [b"a", b"bb" * 10, b"", b"dddd"]
NOW = 1_700_000_000_000
compiled = pytest.mark.skipif(not speed.COMPILED, reason="Python changes no bytes")


def run_of(count: int, gap: int) -> EntryRun:
    """Entries of 1,000 bytes with checksums, as a client sends them."""
    frames = []
    for k in range(count):
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=k, publish_time=1).SerializeToString()
        covered = len(metadata).to_bytes(4, "big") + metadata + bytes([k]) * 1000
        frames.append(requests.send(1, k, k, 1, b"\x0e\x01" + crc32c(covered).to_bytes(4, "big") + covered))
    data = b"".join(frames)
    return EntryRun.from_cut(speed.cut(data, 0, len(data), 1 << 20, gap)[1][0])


def test_entries_are_found_by_index():
    slab = slab_of(7, 100, BODIES)
    assert (slab.count, len(slab), slab.last_entry_id) == (4, 4, 103)
    assert [bytes(slab.body(k)) for k in range(4)] == BODIES
    assert slab.position(2) == (7, 102)
    assert slab.size_bytes == len(slab.data) == len(slab.record_view())


def test_records_are_those_of_the_helper():
    slab = slab_of(7, 100, BODIES)
    offsets, end, reason = speed.scan_records(slab.data, 0, len(slab.data), 7)
    assert (bytes(offsets), end, reason) == (slab.offsets, len(slab.data), None)


def test_a_part_shares_the_buffer():
    slab = slab_of(7, 100, BODIES)
    part = slab.part(1, 3)
    assert part.data is slab.data
    assert (part.first_entry_id, part.count) == (101, 2)
    assert [bytes(part.body(k)) for k in range(2)] == BODIES[1:3]
    assert bytes(part.record_view()) == slab.data[33 : 33 + 52 + 32]
    assert part.size_bytes == 84


def test_spans():
    slab = slab_of(7, 100, BODIES)
    span = slab.span(101, 102)
    assert span == slab.slice(1, 3) == Span(slab, 1, 3)
    assert (span.entries, span.first_position, span.last_position) == (2, (7, 101), (7, 102))
    assert [bytes(span.body(k)) for k in range(2)] == BODIES[1:3]
    assert span.size_bytes == 84
    assert slab.span(0, 1000) == Span(slab, 0, 4)
    assert slab.span(103, 50).entries == 0
    assert slab.span(0, 50).entries == 0
    assert slab.span(500, 600).entries == 0
    assert span.cut(1) == (Span(slab, 1, 2), Span(slab, 2, 3))
    assert span.cut(9) == (span, Span(slab, 3, 3))


def test_facts_are_computed_once(monkeypatch):
    calls = []

    def entry_facts(*arguments):
        calls.append(arguments)
        return ("facts", arguments[-1])

    monkeypatch.setattr(speed, "entry_facts", entry_facts)
    slab = slab_of(7, 0, BODIES)
    assert slab.facts() is slab.facts()
    assert slab.facts(want_hash=True) == ("facts", True)
    assert slab.facts() == ("facts", True)
    assert len(calls) == 2


def test_repr_names_the_entries():
    assert "7:100..103" in repr(slab_of(7, 100, BODIES))
    assert isinstance(slab_of(7, 100, BODIES), Slab)


def records(run: EntryRun, start: int, end: int, index: int) -> tuple[bytes, bytes]:
    slab = slab_of_run(run, start, end, 7, 9, 8, NOW, index)
    assert (slab.ledger_id, slab.first_entry_id, slab.count) == (7, 9, end - start)
    return slab.data, slab.offsets


@compiled
def test_a_run_learns_its_gap_and_the_next_one_gives_its_own_bytes():
    first = run_of(3, 0)
    copied, _ = records(first, 0, 3, 10)
    assert first.wanted_gap == 32 + 6 + 7 + 2
    second = run_of(3, first.wanted_gap)
    data, offsets = records(second, 0, 3, 10)
    assert data is second.data
    assert (data, offsets) == (copied, second.offsets)
    assert speed.scan_records(data, 0, len(data), 7) == (offsets, len(data), None)
    assert second.are_records
    assert slab_of_run(run_of(3, first.wanted_gap), 0, 3, 7, 9, 8, NOW, 10).checksum == crc32c(data)
    assert not second.wanted_gap


@compiled
def test_where_the_index_grows_by_a_byte_within_the_run_there_is_a_copy():
    run = run_of(3, 32 + 6 + 7 + 2)
    before = bytes(bytearray(run.data))
    data, offsets = records(run, 0, 3, 125)
    assert data is not run.data
    assert run.data == before
    assert not run.are_records
    assert run.wanted_gap == 32 + 6 + 7 + 3
    assert speed.scan_records(data, 0, len(data), 7) == (offsets, len(data), None)


@compiled
def test_bytes_are_given_away_once():
    run = run_of(2, 32 + 6 + 7 + 2)
    data, _ = records(run, 0, 2, 10)
    before = bytes(bytearray(data))
    again, _ = records(run, 0, 2, 20)
    assert data == before
    assert again != data


@pytest.mark.parametrize("gap", [0, 47])
def test_a_part_of_a_run_is_a_copy(gap):
    run, plain = run_of(4, gap), run_of(4, 0)
    assert records(run, 1, 3, 10) == records(plain, 1, 3, 10)
    assert not run.are_records


@compiled
def test_an_entry_without_a_checksum_of_its_own_is_read_for_that_of_its_record():
    body = b"no checksum" * 100
    gap = 32 + 6 + 7 + 2
    run = EntryRun(
        1, 1, bytes(gap) + body, array("q", [0, gap + len(body)]).tobytes(), bytes(8), bytes(8),
        array("q", [1]).tobytes(), None, bytes(4), 0, 0, 1, True, len(body), gap,
    )  # fmt: skip
    data, offsets = records(run, 0, 1, 10)
    assert run.are_records
    assert speed.scan_records(data, 0, len(data), 7) == (offsets, len(data), None)
