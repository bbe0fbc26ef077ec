"""Kafka batches as messages, compiled against the Python loop: one random case a call, AssertionError when they differ."""

from __future__ import annotations

import random  # noqa: TC003 - used in annotations of helpers that tests call
from unittest import mock

from magnetar.converters.errors import ConverterError
from magnetar.converters.kafka.batch_builder import build_record_batch
from magnetar.converters.kafka.errors import InvalidTimestampError, KafkaFormatError
from magnetar.converters.kafka.record_batch import HEADER_BYTES, RecordBatch
from magnetar.converters.kafka.records import Header, Record
from magnetar.converters.kafka_entry import slots
from magnetar.converters.kafka_entry.options import KafkaOptions, KeyText

TEXTS = ("", "k", "zo\u00eb", "\ud7ff\uffff", "\U0010ffff", "x" * 130, "__kafka.offset", "__kafka")
BROKEN = (b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\xf0\x8f\xbf\xbf", b"\xc3")


def some_bytes(rng: random.Random) -> bytes | None:
    kind = rng.randrange(6)
    if kind == 0:
        return None
    if kind == 1:
        return rng.choice(TEXTS).encode()
    return rng.choice(BROKEN) if kind == 2 else rng.randbytes(rng.choice((0, 1, 2, 3, 40, 200, 9000)))


def headers(rng: random.Random) -> tuple[Header, ...]:
    if rng.random() < 0.7:
        return ()
    plain = rng.random() < 0.7
    return tuple(
        Header("trace", rng.choice(TEXTS).encode()) if plain else Header(rng.choice(TEXTS), some_bytes(rng))
        for _ in range(rng.randrange(1, 4))
    )


def batch(rng: random.Random) -> RecordBatch:
    """Mostly records side by side; some with gaps, odd times, or bytes that were damaged."""
    gaps, base = rng.random() < 0.2, rng.choice((0, 5, 1 << 40))
    first = rng.choice((1_700_000_000_000, 0, -1, 100, (1 << 63) - 40, -5))
    offset, records = base, []
    for _ in range(rng.randrange(1, 12)):
        time = min(first + rng.choice((0, 1, 20)), (1 << 63) - 1)
        records.append(Record(offset, time, some_bytes(rng), some_bytes(rng), headers(rng)))
        offset += 1 + (rng.randrange(3) if gaps else 0)
    try:
        built = bytearray(build_record_batch(records))
    except InvalidTimestampError:
        return batch(rng)
    if rng.random() < 0.2:
        at = rng.randrange(HEADER_BYTES, len(built))
        built[at] = rng.randrange(256)
    if rng.random() < 0.1:
        built[57:61] = rng.randrange(14).to_bytes(4, "big")  # the count
    if rng.random() < 0.1:
        built[22] |= 8  # the time of the append counts
    if rng.random() < 0.05:
        del built[rng.randrange(HEADER_BYTES, len(built)) :]
    return RecordBatch(bytes(built))


def written(plain, stored: RecordBatch, options: KafkaOptions, declared: int, limit: int, dense: bool) -> object:
    """Payload and holes, or the error."""
    writer = slots.SlotWriter(options, declared, limit, dense=dense)
    try:
        with mock.patch.object(slots, "plain_slots", plain):
            writer.add(stored)
            writer.finish()
    except (ConverterError, KafkaFormatError) as error:
        return type(error), str(error)
    return bytes(writer.payload), writer.holes


def check_slots(compiled, rng: random.Random) -> None:
    stored = batch(rng)
    options = KafkaOptions(key=rng.choice(list(KeyText)), offset_property=rng.random() < 0.1)
    declared = stored.last_offset_delta + 1 + rng.choice((0, 0, 0, 1, -1))
    given = (stored, options, declared, rng.choice((1 << 20, 1 << 20, 300)), rng.random() < 0.3)
    taken = []

    def plain(*arguments):
        found = compiled.plain_slots(*arguments)
        taken.append(found is not None)
        return found

    assert written(plain, *given) == written(lambda *_: None, *given)
    check_slots.taken += sum(taken)  # type: ignore[attr-defined]


check_slots.taken = 0  # type: ignore[attr-defined]
CHECKS = (check_slots,)
