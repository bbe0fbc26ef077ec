from magnetar.pipeline.decode import look_back
from magnetar.pipeline.decode.headers import Headers
from magnetar.pipeline.decode.look_back import chunk_at, joined_backwards
from tests.pipeline import entries_for_tests as e


def last_of(bodies, at):
    chunk = e.chunk_of(bodies[at:], first=at)
    return chunk_at(chunk, Headers(chunk, verify=True), 0)


def joined(bodies, earlier, **bounds):
    pairs = ((chunk, Headers(chunk, verify=True)) for chunk in earlier)
    found = joined_backwards(pairs, last_of(bodies, len(bodies) - 1), bounds.get("max_bytes", 1000))
    return found and (found.payload, found.ledger_id, found.entry_id)


def test_chunks_are_found_among_others():
    bodies = e.chunks(b"abc", [1, 1], uuid="u")
    others = e.chunks(b"xyz", [1, 1], uuid="v")
    earlier = [e.chunk_of([bodies[1], others[1], e.plain()], first=4), e.chunk_of([others[0], bodies[0]], first=2)]
    assert joined(bodies, earlier) == (b"abc", 9, 3)


def test_of_a_repeated_chunk_the_first_counts():
    bodies = e.chunks(b"abc", [1, 1])
    assert joined(bodies, [e.chunk_of([bodies[0], bodies[1], bodies[1]])]) == (b"abc", 9, 0)


def test_a_missing_chunk_makes_it_incomplete():
    bodies = e.chunks(b"abcd", [1, 1, 1])
    assert joined(bodies, [e.chunk_of([bodies[0], bodies[2]])]) is None
    assert joined(bodies, []) is None


def test_the_search_is_bounded(monkeypatch):
    bodies = e.chunks(b"abc", [1, 1])
    before = e.chunk_of(bodies[:2])
    assert joined(bodies, [before], max_bytes=2) is None
    monkeypatch.setattr(look_back, "MAX_ENTRIES", 1)
    assert joined(bodies, [e.chunk_of([e.plain()], first=5), before]) is None
