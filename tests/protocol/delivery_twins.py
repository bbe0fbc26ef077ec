"""MESSAGE frames as columns, compiled against the Python twin: one random case a call, AssertionError when they differ."""

from __future__ import annotations

import random  # noqa: TC003 - used in annotations of helpers that tests call

from frames_for_tests import mutated, u64

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.deliveries import pure_deliveries

CONSUMER = 7


def frame(rng: random.Random) -> bytes:
    """Mostly a MESSAGE for the consumer."""
    kind = rng.choices(("message", "other", "pong", "broken"), (20, 1, 1, 1))[0]
    command = pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong())
    if kind != "pong":
        command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE)
        message = command.message
        message.consumer_id = CONSUMER if kind != "other" else 8
        message.message_id.ledgerId, message.message_id.entryId = u64(rng), u64(rng)
        if rng.random() < 0.3:
            message.message_id.partition = rng.randrange(-1, 9)
            message.redelivery_count = rng.randrange(3)
            message.ack_set.extend(rng.getrandbits(40) for _ in range(rng.randrange(3)))
    raw = command.SerializeToString()
    raw = mutated(rng, raw) if kind == "broken" else raw
    body = rng.randbytes(rng.randrange(40)) if kind != "pong" else b""
    return (4 + len(raw) + len(body)).to_bytes(4, "big") + len(raw).to_bytes(4, "big") + raw + body


def check_deliveries(compiled, rng: random.Random) -> None:
    data = b"".join(frame(rng) for _ in range(rng.randrange(12)))
    data = mutated(rng, data) if data and rng.random() < 0.2 else data[: len(data) - rng.choice((0, 0, 1, 9, 30))]
    for start in (0, rng.randrange(-2, len(data) + 3)):
        assert result(compiled.deliveries, data, start) == result(pure_deliveries, data, start)


def result(function, data, start):
    try:
        return function(data, start, CONSUMER)
    except ValueError as e:
        return str(e)


CHECKS = (check_deliveries,)
