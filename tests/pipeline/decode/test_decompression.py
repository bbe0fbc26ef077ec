import numpy as np
import pytest

from magnetar.pipeline.decode.decompression import decompressed
from magnetar.pipeline.decode.headers import Headers
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.pipeline import entries_for_tests as e

CODECS = (pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY)


@pytest.mark.parametrize("sizes", [[3], [0, 1, 500, 0, 70_000]])
def test_payloads_lie_one_behind_the_other(sizes):
    payloads = [bytes([k]) * size for k, size in enumerate(sizes)]
    chunk = e.chunk_of([e.plain(payload, codec=codec) for payload in payloads for codec in CODECS])
    arena = decompressed(memoryview(chunk.data), Headers(chunk, verify=True), np.arange(len(chunk)), 1 << 20)
    assert not arena.failures
    assert arena.entries.tolist() == list(range(len(chunk)))
    found = [bytes(arena.data[start:end]) for start, end in zip(arena.starts, arena.ends, strict=True)]
    assert found == [payload for payload in payloads for _ in CODECS]


def test_a_payload_that_fails_takes_nothing_with_it():
    packed = e.compress(pb.LZ4, b"x" * 100)
    bodies = [
        e.plain(b"one", codec=pb.LZ4),
        e.stored(e.metadata(compression=pb.LZ4, uncompressed_size=99), packed),
        e.stored(e.metadata(compression=pb.LZ4, uncompressed_size=101), packed),
        e.stored(e.metadata(compression=pb.LZ4, uncompressed_size=5000), packed),
        e.plain(b"two", codec=pb.ZSTD),
    ]
    chunk = e.chunk_of(bodies)
    arena = decompressed(memoryview(chunk.data), Headers(chunk, verify=False), np.arange(5), 1000)
    assert set(arena.failures) == {1, 2, 3}
    assert "declares 5000 bytes, 1000 are allowed" in arena.failures[3]
    assert [bytes(arena.data[start:end]) for start, end in zip(arena.starts, arena.ends, strict=True)] == [
        b"one",
        b"two",
    ]


def test_nothing_to_decompress():
    chunk = e.chunk_of([])
    assert len(decompressed(memoryview(b""), Headers(chunk, verify=False), np.zeros(0, np.int64), 10).data) == 0
