from __future__ import annotations

from magnetar.protocol import speed
from magnetar.storage.slab import Slab, Span
from tests.storage.records_for_tests import slab_of

BODIES = [b"a", b"bb" * 10, b"", b"dddd"]


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
