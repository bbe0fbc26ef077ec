from magnetar.pipeline.decode.chunked_messages import Chunk, ChunkedMessages


def chunk(uuid, number, total=3, payload=b"x"):
    return Chunk(uuid, number, total, 1, number, payload)


def test_the_oldest_gives_way_to_the_bound_of_messages():
    pending = ChunkedMessages(max_messages=2, max_message_bytes=100)
    for uuid in (b"a", b"b", b"c"):
        assert pending.add(chunk(uuid, 0)) is None
    (given_up,) = pending.take_given_up()
    assert "too many" in given_up.detail
    assert pending.add(chunk(b"a", 1)) is None
    assert pending.misses_beginning(chunk(b"a", 2))
    assert pending.take_given_up() == []


def test_the_oldest_gives_way_to_the_bound_of_bytes():
    pending = ChunkedMessages(max_bytes=5, max_message_bytes=100)
    pending.add(chunk(b"a", 0, payload=b"1234"))
    pending.add(chunk(b"b", 0, payload=b"12"))
    assert len(pending.take_given_up()) == 1
    assert len(pending.unfinished()) == 1


def test_a_single_message_may_pass_the_bound_of_all():
    pending = ChunkedMessages(max_bytes=1, max_message_bytes=100)
    assert [pending.add(chunk(b"a", k, payload=b"12")) for k in range(3)][2].payload == b"121212"
    assert pending.take_given_up() == []
