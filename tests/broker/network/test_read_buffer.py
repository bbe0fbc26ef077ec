import random

import pytest

from magnetar.broker.network.read_buffer import ReadBuffer, SharedReadBuffer
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.protocol.runs import EntryRun

LIMIT = 6 << 20


def feed(buffer, data, sizes):
    """All items of `data`, received in pieces of these sizes."""
    items, at = [], 0
    for size in sizes:
        piece = data[at : at + size]
        while piece:
            room = buffer.room()
            count = min(len(room), len(piece))
            assert count > 0
            room[:count] = piece[:count]
            got, error = buffer.received(count)
            assert error is None
            items += got
            piece = piece[count:]
        at += size
    return items


def send(body):
    base = pb.BaseCommand()
    base.type = pb.BaseCommand.SEND
    base.send.producer_id, base.send.sequence_id = 1, 1
    command = base.SerializeToString()
    return (4 + len(command) + len(body)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + body


@pytest.mark.parametrize("sizes", [[1], [3], [7, 1000], [100_000], [1 << 20]])
def test_frames_come_out_however_they_are_cut(sizes):
    chance = random.Random(1)
    frames = [replies.ping(), send(chance.randbytes(10)), send(chance.randbytes(300_000)), replies.pong(), send(b"z")]
    data = b"".join(frames)
    if sizes == [1]:
        data = frames[0] + frames[1] + frames[3]
    steps = [chance.choice(sizes) for _ in range(len(data) // min(sizes) + 1)]
    items = feed(ReadBuffer(SharedReadBuffer(), LIMIT), data, steps)
    bodies = [bytes(EntryRun.from_cut(i).data) for i in items if len(i) != 2]
    commands = [i for i in items if len(i) == 2]
    expected = [f for f in frames if f in data]
    assert len(bodies) + len(commands) >= len(expected) - 2  # consecutive SENDs may share a run
    assert b"".join(bodies) == b"".join(
        f[f.index(b"\x10\x01") + 2 :] for f in expected if f not in (frames[0], frames[3])
    )


def test_connections_share_one_buffer_and_keep_only_what_is_incomplete():
    shared = SharedReadBuffer()
    one, other = ReadBuffer(shared, LIMIT), ReadBuffer(shared, LIMIT)
    frame = replies.ping()
    assert feed(one, frame[:5], [5]) == []
    assert one.held_bytes == 5
    assert len(feed(other, frame, [len(frame)])) == 1
    assert other.held_bytes == 0
    assert len(feed(one, frame[5:], [len(frame)])) == 1
    assert one.held_bytes == 0


def test_an_announced_size_costs_nothing_before_its_bytes_come():
    buffer = ReadBuffer(SharedReadBuffer(), LIMIT)
    head = (5 << 20).to_bytes(4, "big") + (10).to_bytes(4, "big")
    assert feed(buffer, head, [8]) == []
    assert buffer.held_bytes == 8


def test_memory_of_a_large_frame_grows_with_what_has_arrived():
    buffer = ReadBuffer(SharedReadBuffer(), LIMIT)
    data = send(bytes(4 << 20))
    feed(buffer, data[: 1 << 20], [1 << 16] * 16)
    assert buffer.held_bytes <= 3 << 20
    items = feed(buffer, data[1 << 20 :], [1 << 18] * 13)
    assert len(items) == 1
    assert buffer.held_bytes == 0


def test_a_frame_over_the_limit_is_refused_on_its_header():
    buffer = ReadBuffer(SharedReadBuffer(), 1000)
    room = buffer.room()
    room[:4] = (997).to_bytes(4, "big")
    items, error = buffer.received(4)
    assert (items, error is not None) == ([], True)
