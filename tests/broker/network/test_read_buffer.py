import random

import pytest

from magnetar.broker.network.read_buffer import (
    HANDSHAKE_FRAME_BYTES,
    HANDSHAKE_READ_BYTES,
    ReadBuffer,
    SharedReadBuffer,
)
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.protocol.runs import EntryRun

LIMIT = 6 << 20


def admitted(shared, limit):
    """The buffer of a connection whose handshake is done."""
    buffer = ReadBuffer(shared, limit)
    buffer.admit(limit)
    return buffer


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
    items = feed(admitted(SharedReadBuffer(), LIMIT), data, steps)
    bodies = [bytes(EntryRun.from_cut(i).data) for i in items if len(i) != 2]
    commands = [i for i in items if len(i) == 2]
    expected = [f for f in frames if f in data]
    assert len(bodies) + len(commands) >= len(expected) - 2  # consecutive SENDs may share a run
    assert b"".join(bodies) == b"".join(
        f[f.index(b"\x10\x01") + 2 :] for f in expected if f not in (frames[0], frames[3])
    )


def test_connections_share_one_buffer_and_keep_only_incomplete_frames():
    shared = SharedReadBuffer()
    one, other = admitted(shared, LIMIT), admitted(shared, LIMIT)
    frame = replies.ping()
    assert feed(one, frame[:5], [5]) == []
    assert one.held_bytes == 5
    assert len(feed(other, frame, [len(frame)])) == 1
    assert other.held_bytes == 0
    assert len(feed(one, frame[5:], [len(frame)])) == 1
    assert one.held_bytes == 0


def test_an_announced_size_costs_nothing_before_its_bytes_come():
    buffer = admitted(SharedReadBuffer(), LIMIT)
    head = (5 << 20).to_bytes(4, "big") + (10).to_bytes(4, "big")
    assert feed(buffer, head, [8]) == []
    assert buffer.held_bytes == 8


def test_memory_of_a_large_frame_grows_with_received_bytes():
    buffer = admitted(SharedReadBuffer(), LIMIT)
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


def test_before_the_handshake_a_frame_is_small():
    buffer = ReadBuffer(SharedReadBuffer(), LIMIT)
    room = buffer.room()
    room[:4] = (HANDSHAKE_FRAME_BYTES - 3).to_bytes(4, "big")
    items, error = buffer.received(4)
    assert (items, error is not None) == ([], True)
    trickled = ReadBuffer(SharedReadBuffer(), LIMIT)
    head = (HANDSHAKE_FRAME_BYTES - 4).to_bytes(4, "big") + (10).to_bytes(4, "big")
    feed(trickled, head + bytes(HANDSHAKE_FRAME_BYTES - 9), [1000] * 70)
    assert trickled.held_bytes <= 2 * HANDSHAKE_FRAME_BYTES


def test_before_the_handshake_a_read_is_small():
    buffer = ReadBuffer(SharedReadBuffer(), 5 << 20)
    assert len(buffer.room()) == HANDSHAKE_READ_BYTES
    buffer.room()[:5] = b"\0\0\0\x10x"
    assert buffer.received(5) == ([], None)
    assert len(buffer.room()) == HANDSHAKE_READ_BYTES
    buffer.admit(5 << 20)
    assert len(buffer.room()) > 32 * HANDSHAKE_READ_BYTES


@pytest.mark.parametrize("behind", [b"", replies.ping()])
def test_a_large_frame_behind_the_handshake_in_one_read(behind):
    buffer = ReadBuffer(SharedReadBuffer(), LIMIT)
    data = replies.ping() + send(bytes(300_000)) + behind
    room = buffer.room()
    count = len(room)
    room[:] = data[:count]
    items, error = buffer.received(count)
    assert (len(items), error is not None) == (1, True)
    buffer.admit(LIMIT)
    assert buffer.may_cut_again
    assert buffer.again() == ([], None)
    assert not buffer.may_cut_again
    rest = data[count:]
    assert len(feed(buffer, rest, [len(rest)])) == 1 + bool(behind)
    assert buffer.held_bytes == 0


@pytest.mark.parametrize("behind", [b"", replies.ping()])
def test_a_large_frame_behind_a_handshake_that_waits_for_its_turn(behind):
    """Other connections use the shared buffer before the turn comes."""
    shared = SharedReadBuffer()
    buffer, other = ReadBuffer(shared, LIMIT), ReadBuffer(shared, LIMIT)
    data = replies.ping() + send(bytes(300_000)) + behind
    room = buffer.room()
    count = len(room)
    room[:] = data[:count]
    assert buffer.received(count)[1] is not None
    buffer.keep_refused()
    other.room()[:] = bytes(len(other.room()))
    assert not buffer.may_cut_again
    buffer.admit(LIMIT)
    assert buffer.may_cut_again
    assert buffer.again() == ([], None)
    assert not buffer.may_cut_again
    items = feed(buffer, data[count:], [len(data) - count])
    assert [bytes(item[2])[-300_000:] for item in items[:1]] == [bytes(300_000)]
    assert len(items) == 1 + bool(behind)
    assert buffer.held_bytes == 0


def test_a_wrong_record_stays_wrong_for_every_sender():
    buffer = ReadBuffer(SharedReadBuffer(), LIMIT)
    room = buffer.room()
    room[:4] = (LIMIT * 2).to_bytes(4, "big")
    assert buffer.received(4)[1] is not None
    assert not buffer.may_cut_again
    buffer.admit(LIMIT)
    assert buffer.may_cut_again
    assert buffer.again()[1] is not None
    assert not buffer.may_cut_again


def test_the_buffer_of_a_large_frame_is_little_larger_than_the_frame():
    buffer, most = admitted(SharedReadBuffer(), LIMIT), 0
    data = send(bytes(5 << 20))
    for at in range(0, len(data) - 1, 1 << 16):
        feed(buffer, data[at : min(at + (1 << 16), len(data) - 1)], [1 << 16])
        most = max(most, buffer.held_bytes)
    assert buffer.large_frames == 1 and buffer.filled_bytes == len(data) - 1
    assert buffer.missing_bytes == 1
    assert most <= len(data) + (1 << 16)
