import os

from magnetar.broker.network.pieces import PIECE_BYTES, Pieces


def test_bytes_come_in_order_and_in_pieces():
    pieces, data = Pieces(), [os.urandom(size) for size in (3 * PIECE_BYTES, 0, 5, PIECE_BYTES, PIECE_BYTES + 1)]
    for each in data:
        pieces.add(each)
    assert pieces.size == sum(map(len, data))
    found = []
    while pieces.size:
        found.append(pieces.take())
    assert b"".join(found) == b"".join(data)
    assert [len(each) for each in found] == [PIECE_BYTES] * 3 + [5] + [PIECE_BYTES] * 2 + [1]


def test_all_bytes_at_once():
    pieces = Pieces()
    pieces.add(bytes(PIECE_BYTES + 1))
    pieces.take()
    pieces.add(b"b")
    assert b"".join(pieces.take_all()) == b"\0b" and pieces.size == 0
    assert pieces.take_all() == []
