"""Fuzzing of the readers of Kafka bytes: recorded sets cut and flipped, and whole files with damage in some of their
batches.

Any bytes give records or a documented error, an entry or a failure of its own; and damage stays local: every undamaged
batch of a file is imported once and in order.

MAGNETAR_FUZZ_SECONDS sets how long; MAGNETAR_FUZZ_SEED repeats a failed run.
"""

import os
import random
import time

import pytest

from magnetar.converters.chain import ConverterChain, loaded
from magnetar.converters.entry import Entry
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.log_file import LogFile
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.records import Record
from magnetar.converters.kafka_entry.converter import KafkaConverter
from magnetar.converters.kafka_entry.import_plan import ImportPlan, SequenceMode
from magnetar.converters.outcome import ConversionFailure, Converted
from tests.converters.kafka.test_fuzz import SEEDS, reseal, use_everything
from tests.converters.kafka_entry.test_round_trip import entry_of

SECONDS = float(os.environ.get("MAGNETAR_FUZZ_SECONDS", "3"))
SEED = int(os.environ.get("MAGNETAR_FUZZ_SEED", "20240307"))


def mutated(data, rng):
    """Flipped, overwritten, shortened or lengthened somewhere."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out)) if rng.random() < 0.5 else rng.randrange(min(len(out), 70))
        match rng.randrange(5):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at : at + 4] = rng.choice((b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff", rng.randbytes(4)))
            case 2:
                del out[at : at + rng.randrange(1, 40)]
            case 3:
                out[at:at] = rng.choice((bytes(20), rng.randbytes(20), bytes(out[:30])))
            case _:
                del out[at:]
        if not out:
            return b"\x01"
    return bytes(out)


@pytest.mark.timeout(SECONDS + 120)
def test_recorded_sets_and_entries():
    rng, chain = random.Random(SEED), ConverterChain([loaded(KafkaConverter())])
    end, runs = time.monotonic() + SECONDS, 0
    while time.monotonic() < end or runs < 50:
        runs += 1
        data = bytearray(mutated(rng.choice(SEEDS) + rng.choice((b"", rng.choice(SEEDS))), rng))
        if rng.random() < 0.5:
            reseal(data)
        use_everything(bytes(data))
        entry = entry_of(bytes(data), rng.choice((None, 1, 4, 50)))
        result = chain.convert(entry, chain.select(entry))
        assert isinstance(result, Converted | ConversionFailure)
        assert not getattr(result, "defect", False), (SEED, runs, result)


def batches(rng):
    """Ascending batches of every magic and codec; their bytes are all different."""
    parts, offset = [], rng.choice((0, 5, (1 << 32) - 10, 1 << 40))
    for _ in range(rng.randrange(3, 9)):
        count, codec, magic = rng.randrange(1, 6), rng.choice(tuple(Codec)), rng.choice((0, 1, 2, 2))
        records = [Record(offset + n, 5 if magic else -1, b"k", rng.randbytes(rng.randrange(60))) for n in range(count)]
        if magic == 2:
            parts.append(build_record_batch(records, BatchOptions(codec=codec)))
        else:
            parts.append(
                build_message_set(records, magic, codec=Codec.GZIP if codec in (Codec.NONE, Codec.ZSTD) else codec)
            )
        offset += count + rng.randrange(3)
    return parts


@pytest.mark.timeout(SECONDS + 120)
def test_damage_takes_nothing_with_it():
    rng = random.Random(SEED)
    end, runs = time.monotonic() + SECONDS, 0
    while time.monotonic() < end or runs < 50:
        runs += 1
        parts = batches(rng)
        touched = set(rng.sample(range(1, len(parts)), rng.randrange(1, 3)))
        pieces = [mutated(part, rng) if n in touched else part for n, part in enumerate(parts)]
        data, damage = b"".join(pieces), []
        log = LogFile(lambda at, size, data=data: data[at : at + size], len(data), on_damage=damage.append)
        plan = ImportPlan("n", SequenceMode.POSITION, 1, on_damage=damage.append)
        steps = [step for step in plan.steps(log) if step.entry is not None]
        # Zeros of the next batch may complete a batch that lost its last zeros: then the next batch is damaged.
        whole = [part for n, part in enumerate(parts) if n not in touched and not borrowed(pieces, n, steps)]
        stored = [bytes(Entry(step.entry.data).payload) for step in steps]
        assert [part for part in stored if part in whole] == whole, (SEED, runs, sorted(touched))


def borrowed(pieces, n, steps):
    """Whether an entry that begins before piece n ends inside that piece."""
    start = sum(map(len, pieces[:n]))
    return any(step.position < start < step.next_position for step in steps)
