"""Converters: MB/s of records converted per core and codec, and the cost of the chain for entries that no converter
accepts.

    python bench/converters_bench.py [--value-bytes 500] [--records 1000] [--seconds 1.0] [--json]

MB/s count keys and values, in millions of bytes per second of CPU time of one thread. The whole path is timed: stored
checksum, decompression, records, Pulsar batch, check of the output, new checksum. Interleaved; the best round counts.
"""

import argparse
import importlib
import json
import random
import time
import warnings

from magnetar.converters.entry import build_entry
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.creation import NewMessage, OffsetAssigner, create_record_set
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Header
from magnetar.converters.kafka_entry.planning import plan_entry
from magnetar.converters.outcome import Converted
from magnetar.converters.registry import load_chain
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

START_MS = 1_700_000_000_000


def messages(count, value_bytes, magic, headers=()):
    """Text of random words: it compresses about threefold, as logs and JSON do."""
    rng = random.Random(7)
    words = [rng.randbytes(3).hex() for _ in range(1000)]
    return [
        NewMessage(
            b"key-%d" % (n % 50),
            " ".join(rng.choice(words) for _ in range(value_bytes // 7 + 1)).encode()[:value_bytes],
            START_MS + n,
            headers,
            magic,
        )
        for n in range(count)
    ]


def conversion_cases(count, value_bytes):
    """name -> (bytes of records, function to time)."""
    chain = load_chain(["kafka"]).chain
    size = sum(len(m.key) + len(m.value) for m in messages(count, value_bytes, 2))
    cases = {}
    for magic in (2, 1):
        for codec in Codec:
            if magic == 1 and codec is Codec.ZSTD:
                continue
            made = create_record_set(messages(count, value_bytes, magic), OffsetAssigner.sequential(), codec=codec)
            # Uncompressed messages of magic 1 are many entries; converted together they become a single entry as well.
            cases[f"convert magic {magic} {codec.name.lower()}"] = (size, converting(chain, made))
    for kind, second in (("text", b"orders-service"), ("binary", b"\x00\xff")):
        two = (Header("trace", b"0af7651916cd43dd"), Header("source", second))
        with_headers = create_record_set(messages(count, value_bytes, 2, two), OffsetAssigner.sequential())
        cases[f"convert magic 2 none, 2 {kind} headers"] = (size, converting(chain, with_headers))
    plain = create_record_set(messages(count, value_bytes, 2), OffsetAssigner.sequential())
    cases["read records magic 2 none"] = (size, lambda: sum(1 for _ in RecordSet(plain)))
    return cases | reference_cases(size, plain)


def reference_cases(size, plain):
    """For comparison: the Kafka clients for Python read the same bytes, if they are installed."""
    cases = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in ("kafka", "aiokafka"):
            try:
                memory_records = importlib.import_module(f"{name}.record.memory_records").MemoryRecords
            except ImportError:
                continue
            cases[f"{name} reads the same"] = (size, lambda peer=memory_records: read_by_peer(peer, plain))
    return cases


def read_by_peer(peer, data):
    memory = peer(data)
    while (batch := memory.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            _ = record.offset, record.timestamp, record.key, record.value, record.headers


def converting(chain, record_set):
    data = plan_entry(record_set, publish_time=START_MS).data
    chosen = chain.select(data)
    assert isinstance(chain.convert(data, chosen), Converted)
    return lambda: chain.convert(data, chosen)


def rejection_cases():
    """name -> (entries, function to time): the cost of an entry that no converter accepts."""
    metadata = MessageMetadata(producer_name="standalone-0-12", sequence_id=99, publish_time=START_MS)
    metadata.properties.add(key="trace", value="0af7651916cd43dd")
    entry = build_entry(metadata.SerializeToString(), random.Random(1).randbytes(1024))
    count = 1000
    by_format, generic = load_chain(["kafka", "bytes"]).chain, load_chain(["reject-all"]).chain
    empty = load_chain([]).chain

    def each(chain):
        select = chain.select
        return lambda: [select(entry) for _ in range(count)]

    return {
        "empty chain, each entry": (count, each(empty)),
        "kafka and bytes, each entry": (count, each(by_format)),
        "reject-all (asked about every entry)": (count, each(generic)),
    }


def best_seconds(cases, seconds):
    """Interleaved rounds until each case has had its time; the shortest CPU time of one call each."""
    best = {name: float("inf") for name in cases}
    end = time.perf_counter() + seconds * len(cases)
    while time.perf_counter() < end:
        for name, (_, call) in cases.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--value-bytes", type=int, default=500)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0, help="per case")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = conversion_cases(options.records, options.value_bytes)
    speeds = {name: cases[name][0] / s / 1e6 for name, s in best_seconds(cases, options.seconds).items()}
    rejections = rejection_cases()
    costs = {name: s / rejections[name][0] * 1e9 for name, s in best_seconds(rejections, options.seconds).items()}
    if options.json:
        print(json.dumps({"mb_per_second": speeds, "ns_per_entry": costs}))
        return
    print(f"{options.records} records of {options.value_bytes} bytes an entry, one thread")
    for name, speed in speeds.items():
        print(f"{name:<42}{speed:8.0f} MB/s")
    print("an entry without a converter")
    for name, cost in costs.items():
        print(f"{name:<42}{cost:8.0f} ns")


if __name__ == "__main__":
    main()
