"""Rates of the pipeline's decoder beside plain Python and beside pyarrow reading the same rows from Parquet.

    python bench/pipeline_decode_bench.py [--rounds 5] [--seconds 0.4] [--only TEXT]

One process, everything in memory. `decoder`: stored entries to record batches, checksums verified. `plain Python`: the
reference decoder, message by message with the protobuf library (`pipeline/decode/reference.py`), rows as dicts.
`Parquet`: pyarrow reads the same columns of the same rows, uncompressed Parquet in memory. Printed are medians over
rounds whose order alternates, in millions of messages a second with min and max, and the ratios to the decoder.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import time
from dataclasses import dataclass

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.converters.kafka.batch_builder import build_record_batch
from magnetar.converters.kafka.records import Record
from magnetar.pipeline.decode.decoder import Decoder
from magnetar.pipeline.decode.reference import reference_rows
from magnetar.pipeline.entry_chunk import EntryChunk
from magnetar.pipeline.values.decoders import value_decoder
from magnetar.pipeline.values.topic_schema import TopicSchema
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry
from magnetar.protocol.compression import compress

NOW = 1_700_000_000_000
FEW = ["value", "__key", "__publishTime", "__index"]
CHUNK_BYTES = 16 << 20
RNG = random.Random(1)
POOL = RNG.randbytes(1 << 20)
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": ["null", "string"], "default": None},
    {"name": "amount", "type": "double"},
    {"name": "paid", "type": "boolean"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]
NESTED = [*FIELDS, {"name": "lines", "type": {"type": "array", "items": "int"}}]


def payload(i: int, size: int) -> bytes:
    start = i * 7919 % (len(POOL) - size)
    return POOL[start : start + size]


def entry(index: int, data: bytes, **fields: object) -> bytes:
    properties = fields.pop("properties", ())
    meta = pb.MessageMetadata(producer_name="standalone-0-1", sequence_id=index, publish_time=NOW + index, **fields)
    for key, value in properties:
        meta.properties.add(key=key, value=value)
    broker = pb.BrokerEntryMetadata(broker_timestamp=NOW + index, index=index).SerializeToString()
    return b"\x0e\x02" + len(broker).to_bytes(4, "big") + broker + encode_entry(meta, data)


def batches(values: list[bytes], messages: int, codec: int = pb.NONE) -> list[bytes]:
    """Entries of `messages` messages with key, event time and sequence id."""
    out = []
    for first in range(0, len(values) - messages + 1, messages):
        singles = [
            (pb.SingleMessageMetadata(payload_size=0, partition_key=f"k{i}", event_time=NOW, sequence_id=i), value)
            for i, value in enumerate(values[first : first + messages], first)
        ]
        data = encode_batch(singles)
        fields = {} if codec == pb.NONE else {"compression": codec, "uncompressed_size": len(data)}
        packed = compress(codec, data)
        out.append(entry(first + messages - 1, packed, num_messages_in_batch=messages, **fields))
    return out


def texts(n: int) -> list[bytes]:
    """Payloads of 100 bytes that compress about three to one."""
    words = [b"order", b"customer", b"amount", b"shipped", b"pending", b"Berlin", b"Osaka"]
    return [b" ".join(RNG.choice(words) + b"%d" % RNG.randrange(100) for _ in range(12))[:100] for _ in range(n)]


def kafka(n: int, records: int) -> list[bytes]:
    out = []
    for first in range(0, n, records):
        made = [Record(i, NOW + i, b"k%d" % i, payload(first + i, 100), ()) for i in range(records)]
        data = build_record_batch(made)
        properties = [("entry.format", "kafka")]
        out.append(entry(first + records - 1, data, num_messages_in_batch=records, properties=properties))
    return out


def schema(kind: str, fields: list[object]) -> TopicSchema:
    return TopicSchema(kind, json.dumps({"type": "record", "name": "Order", "fields": fields}).encode())


def orders(n: int, *, nested: bool = False, as_json: bool = False) -> list[bytes]:
    parsed = fastavro.parse_schema(schema("AVRO", NESTED if nested else FIELDS).definition)
    out = []
    for i in range(n):
        value = {"id": i, "customer": f"customer-{i % 999}", "amount": i / 7, "paid": i % 2 == 0, "at": NOW + i}
        if nested:
            value["lines"] = [1, 2, 3]
        if as_json:
            out.append(json.dumps(value).encode())
            continue
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        out.append(stream.getvalue())
    return out


@dataclass
class Case:
    name: str
    bodies: list[bytes]
    columns: list[str] | None = None
    schema: TopicSchema | None = None


def cases() -> list[Case]:
    large = [entry(i, payload(i, 1024), partition_key=f"k{i}") for i in range(16_000)]
    small = [payload(i, 100) for i in range(60_000)]
    text = texts(60_000)
    names = [field["name"] for field in FIELDS]
    return [
        Case("1 KiB, no batches, all columns", large),
        Case("1 KiB, no batches, 4 columns", large, FEW),
        Case("100 B, batches of 1000, all columns", batches(small, 1000)),
        Case("100 B, batches of 1000, 4 columns", batches(small, 1000), FEW),
        Case("100 B, batches of 50, 4 columns", batches(small, 50), FEW),
        *(
            Case(
                f"100 B text, batches of 1000, {pb.CompressionType.Name(codec)}, 4 columns",
                batches(text, 1000, codec),
                FEW,
            )
            for codec in (pb.LZ4, pb.ZSTD, pb.SNAPPY, pb.ZLIB)
        ),
        Case("100 B, Kafka batches of 1000, 4 columns", kafka(20_000, 1000), FEW),
        Case("Avro, flat, batches of 1000", batches(orders(40_000), 1000), names, schema("AVRO", FIELDS)),
        Case(
            "Avro, with a list, batches of 1000",
            batches(orders(40_000, nested=True), 1000),
            names,
            schema("AVRO", NESTED),
        ),
        Case("JSON, batches of 1000", batches(orders(20_000, as_json=True), 1000), names, schema("JSON", FIELDS)),
    ]


def best_of(call, seconds: float) -> float:
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() > end:
            return best


def chunks(case: Case) -> list[EntryChunk]:
    """The entries in chunks of about CHUNK_BYTES, as a reader of segments gives them."""
    out, start, size = [], 0, 0
    for i, body in enumerate(case.bodies):
        size += len(body)
        if size >= CHUNK_BYTES or i == len(case.bodies) - 1:
            out.append(EntryChunk.of_bodies("persistent://public/default/t", case.bodies[start : i + 1], first=start))
            start, size = i + 1, 0
    return out


def decode(case: Case, given: list[EntryChunk]) -> list[pa.RecordBatch]:
    decoder = Decoder(case.columns, value=value_decoder(case.schema))
    return [batch for chunk in given for batch in decoder.decode(chunk)]


def measure(case: Case, rounds: int, seconds: float) -> None:
    given = chunks(case)
    table = pa.Table.from_batches(decode(case, given))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    parquet = sink.getvalue()
    first = given[0].slice(0, max(1, len(given[0]) // 8))
    messages = sum(1 for _ in reference_rows(first))
    calls = {
        "decoder": (lambda: decode(case, given), table.num_rows),
        "plain": (lambda: list(reference_rows(first)), messages),
        "parquet": (lambda: pq.read_table(pa.BufferReader(parquet), use_threads=False), table.num_rows),
    }
    rates: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds):
        for name in list(calls) if i % 2 == 0 else reversed(list(calls)):
            call, rows = calls[name]
            rates[name].append(rows / best_of(call, seconds) / 1e6)
    ours = statistics.median(rates["decoder"])
    shown = [f"{statistics.median(v):.2f} ({min(v):.2f}-{max(v):.2f})" for v in rates.values()]
    ratios = [f"{ours / statistics.median(rates[name]):.1f}" for name in ("plain", "parquet")]
    print(f"| {case.name} | {' | '.join(shown)} | {' | '.join(ratios)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has this text")
    options = parser.parse_args()
    print("| M messages/s: median (min-max) | decoder | plain Python | Parquet | to plain | to Parquet |")
    print("|---|---|---|---|---|---|")
    for case in cases():
        if options.only not in case.name:
            continue
        measure(case, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
