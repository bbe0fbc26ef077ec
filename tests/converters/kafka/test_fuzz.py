"""Any bytes give records or a documented error, in bounded memory: truncated, flipped and re-sealed vectors."""

import pathlib
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch, seal_batch
from magnetar.converters.kafka.codecs import Codec, compress
from magnetar.converters.kafka.errors import DecompressedTooLargeError, KafkaFormatError
from magnetar.converters.kafka.framing import frames
from magnetar.converters.kafka.magic_conversion import convert_magic
from magnetar.converters.kafka.message_builder import encode_message, seal_message
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Record
from magnetar.converters.kafka.validation import ProduceRules, validate

FOLDER = pathlib.Path(__file__).parents[2] / "vectors" / "kafka"
SEEDS = [data for path in sorted(FOLDER.glob("*.bin")) if 0 < len(data := path.read_bytes()) < 2_000]
LIMIT = 1 << 20


def reseal(data):
    """Give every entry its right checksum, so that damage reaches the code behind it."""
    try:
        for frame in frames(data):
            (seal_batch if frame.magic == 2 else seal_message)(data, frame.start, frame.end)
    except KafkaFormatError:
        pass


def use_everything(data):
    for action in (
        lambda: list(RecordSet(data, max_decompressed_bytes=LIMIT, check_inner_crcs=True)),
        lambda: list(RecordSet(data, max_decompressed_bytes=LIMIT, check_crcs=False)),
        lambda: [batch.codec for batch in RecordSet(data).batches()],
        lambda: validate(data, ProduceRules(max_decompressed_bytes=LIMIT)),
        lambda: convert_magic(data, 2, max_decompressed_bytes=LIMIT),
        lambda: convert_magic(data, 1, max_decompressed_bytes=LIMIT),
    ):
        try:
            action()
        except KafkaFormatError:
            continue


@given(data=st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_sets(data):
    mutable = bytearray(data.draw(st.sampled_from(SEEDS)))
    for at, mask in data.draw(
        st.lists(st.tuples(st.integers(0, len(mutable) - 1), st.integers(1, 255)), min_size=1, max_size=4)
    ):
        mutable[at] ^= mask
    del mutable[data.draw(st.integers(0, len(mutable)) | st.just(len(mutable))) :]
    if data.draw(st.booleans()):
        reseal(mutable)
    use_everything(bytes(mutable))


@given(st.binary(max_size=300))
@settings(max_examples=100)
def test_garbage(data):
    use_everything(data)


@pytest.mark.parametrize("seed", [s for s in SEEDS if len(s) < 400][::3], ids=len)
def test_every_cut(seed):
    whole = list(RecordSet(seed, check_crcs=False)) if _reads(seed) else None
    for cut in range(len(seed)):
        try:
            got = list(RecordSet(seed[:cut], check_crcs=False))
        except KafkaFormatError:
            continue
        if whole is not None:
            assert got == whole[: len(got)]


def _reads(seed):
    try:
        list(RecordSet(seed, check_crcs=False))
    except KafkaFormatError:
        return False
    return True


def bombs():
    zeros = bytes(64 << 20)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        packed = compress(codec, zeros)
        yield codec.name, _around(packed, codec)
        if codec is not Codec.ZSTD:
            yield f"{codec.name} magic 1", encode_message(1, 0, 0, None, packed, attributes=codec)


def _around(packed, codec):
    """A batch whose compressed part is `packed`."""
    batch = bytearray(build_record_batch([Record(0, 0, None, None)], BatchOptions(codec=codec))[:61] + packed)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    seal_batch(batch, 0, len(batch))
    return bytes(batch)


def test_bombs_are_cut_off_in_bounded_memory():
    for name, bomb in bombs():
        tracemalloc.start()
        with pytest.raises(DecompressedTooLargeError):
            list(RecordSet(bomb, max_decompressed_bytes=LIMIT))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * LIMIT + 3 * len(bomb), name
