"""Entries of every kind, as a broker stores them."""

from __future__ import annotations

import random  # noqa: TC003 - used in annotations of helpers that tests call

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.records import Header, Record
from magnetar.pipeline.entry_chunk import EntryChunk
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry
from magnetar.protocol.compression import compress
from magnetar.protocol.metadata import after_prefix, split_entry

TOPIC = "persistent://public/default/orders-partition-2"
NOW = 1_700_000_000_000


def metadata(**fields):
    """MessageMetadata of a producer; properties as a list of pairs."""
    properties = fields.pop("properties", ())
    found = pb.MessageMetadata(**{"producer_name": "p-1", "sequence_id": 7, "publish_time": NOW, **fields})
    for key, value in properties:
        found.properties.add(key=key, value=value)
    return found


def single(payload=b"", **fields):
    """A message of a batch with its payload."""
    properties = fields.pop("properties", ())
    found = pb.SingleMessageMetadata(payload_size=len(payload), **fields)
    for key, value in properties:
        found.properties.add(key=key, value=value)
    return found, payload


def stored(meta, payload=b"", *, index=None, broker_time=NOW + 5):
    """One entry as stored; `index` is that of its last message."""
    body = encode_entry(meta, payload)
    if index is None:
        return body
    broker = pb.BrokerEntryMetadata(broker_timestamp=broker_time, index=index).SerializeToString()
    return b"\x0e\x02" + len(broker).to_bytes(4, "big") + broker + body


def plain(payload=b"value", *, index=None, codec=pb.NONE, **fields):
    """A message that is no batch."""
    meta = metadata(**fields)
    if codec != pb.NONE:
        meta.compression, meta.uncompressed_size = codec, len(payload)
    return stored(meta, compress(codec, payload), index=index)


def batch(messages, *, index=None, codec=pb.NONE, **fields):
    """A batch of `single` messages."""
    data = encode_batch(list(messages))
    meta = metadata(num_messages_in_batch=len(messages), **fields)
    if codec != pb.NONE:
        meta.compression, meta.uncompressed_size = codec, len(data)
    return stored(meta, compress(codec, data), index=index)


def chunks(payload, sizes, *, uuid="u-1", first=None, codec=pb.NONE, **fields):
    """Entries of one chunked message: its payload, compressed, cut into pieces of these sizes and a rest."""
    data = compress(codec, payload)
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    pieces.append(data)
    out = []
    for number, piece in enumerate(pieces):
        meta = metadata(
            uuid=uuid,
            chunk_id=number,
            num_chunks_from_msg=len(pieces),
            total_chunk_msg_size=sum(map(len, pieces)),
            **fields,
        )
        if codec != pb.NONE:
            meta.compression, meta.uncompressed_size = codec, len(payload)
        out.append(stored(meta, piece, index=None if first is None else max(first + number, 0)))
    return out


def kafka(records, *, index=None, codec=Codec.NONE, **fields):
    """A Kafka record batch in an entry; records are (key, value, headers)."""
    made = [
        Record(number, NOW + number, key, value, tuple(Header(*each) for each in headers))
        for number, (key, value, headers) in enumerate(records)
    ]
    pairs = [("entry.format", "kafka"), *fields.pop("properties", ())]
    meta = metadata(**{"num_messages_in_batch": len(records), "properties": pairs, **fields})
    return stored(meta, build_record_batch(made, BatchOptions(codec=codec)), index=index)


def encrypted(payload=b"cipher", *, index=None, **fields):
    meta = metadata(encryption_algo="AES/GCM", encryption_param=b"iv", **fields)
    key = meta.encryption_keys.add(key="app", value=b"data key")
    key.metadata.add(key="version", value="1")
    return stored(meta, payload, index=index)


def sealed(body, encryption):
    """The stored entry `body` as it were, had its producer encrypted the payload."""
    meta, payload = split_entry(body)
    encrypted = encryption.encrypt(meta, bytes(payload))
    return body[: after_prefix(body)] + encode_entry(meta, encrypted)


def chunk_of(bodies, *, topic=TOPIC, partition=2, ledger_id=9, first=0):
    return EntryChunk.of_bodies(topic, bodies, partition=partition, ledger_id=ledger_id, first=first)


# --- random entries ----------------------------------------------------------------------------------------------------


def _maybe(rng: random.Random, values: dict, share: float = 0.3) -> dict:
    return {name: value() for name, value in values.items() if rng.random() < share}


def _properties(rng: random.Random):
    return [
        (rng.choice(("a", "b", "long-name" * 5)), rng.choice(("", "v", "ü" * 30)))
        for _ in range(rng.choice((0, 0, 1, 4)))
    ]


def _own(rng: random.Random) -> dict:
    fields = _maybe(
        rng,
        {
            "event_time": lambda: rng.choice((0, 1, NOW)),
            "ordering_key": lambda: rng.randbytes(rng.choice((0, 3, 40))),
            "null_value": lambda: rng.random() < 0.7,
        },
    )
    if rng.random() < 0.5:
        fields["partition_key"] = rng.choice(("", "k", "key-of-more-than-twelve-bytes"))
        if rng.random() < 0.3:
            fields |= {
                "partition_key": rng.choice(("", "a2V5", "AAECAwQFBgcICQoLDA0ODw==")),
                "partition_key_b64_encoded": True,
            }
        if rng.random() < 0.1:
            fields["null_partition_key"] = True
    return {**fields, "properties": _properties(rng)}


def _outer(rng: random.Random) -> dict:
    return {
        "sequence_id": rng.choice((0, 5, 2**40)),
        "publish_time": rng.choice((0, NOW, NOW + 777)),
        "producer_name": rng.choice(("p", "a-producer-with-a-long-name", "ü")),
        **_maybe(
            rng,
            {
                "schema_version": lambda: (3).to_bytes(8, "big"),
                "replicated_from": lambda: "west",
                "txnid_least_bits": lambda: 4,
                "txnid_most_bits": lambda: 2**63 + 1,
                "deliver_at_time": lambda: NOW + 60_000,
            },
        ),
    }


def _payload(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 12, 13, 100, 3000)))


def _codec(rng: random.Random) -> int:
    return rng.choice((pb.NONE, pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY))


def _random_batch(rng: random.Random):
    count = rng.choice((0, 1, 2, 30))
    messages = []
    for _ in range(count):
        if rng.random() < 0.15:
            messages.append(single(compacted_out=True))
        else:
            messages.append(single(_payload(rng), **_own(rng), **_maybe(rng, {"sequence_id": lambda: 2**33})))
    outer = _outer(rng) | _maybe(rng, {"event_time": lambda: NOW + 9}, 0.1)
    codec = _codec(rng)
    return lambda at: batch(messages, index=at, codec=codec, **outer), count


def random_bodies(rng: random.Random, n: int) -> tuple[list[bytes], int]:
    """Entries of all kinds with their indexes, chunked messages mixed with others; and the index behind the last."""
    makers: list = []
    for _ in range(n):
        kind = rng.randrange(10)
        if kind <= 2:
            payload, codec, fields = _payload(rng), _codec(rng), _outer(rng) | _own(rng)
            makers.append((lambda at, p=payload, c=codec, f=fields: plain(p, index=at, codec=c, **f), 1))
        elif kind <= 5:
            makers.append(_random_batch(rng))
        elif kind == 6:
            records = [
                (
                    rng.choice((None, b"", b"k")),
                    rng.choice((None, b"", rng.randbytes(50))),
                    rng.choice(((), (("h", b"1"), ("h", None)))),
                )
                for _ in range(rng.choice((1, 3)))
            ]
            makers.append((lambda at, r=records: kafka(r, index=at), len(records)))
        elif kind == 7:
            fields = _outer(rng)
            makers.append((lambda at, f=fields: encrypted(index=at, **f), 1))
        elif kind == 8:
            makers.append((lambda at: plain(b"marker", index=at, marker_type=20), 1))
        else:
            makers += _random_chunks(rng, makers)
    with_index = rng.random() < 0.8
    bodies, index = [], rng.choice((0, 1000))
    for make, count in makers:
        index += max(count, 1)
        bodies.append(make(index - 1 if with_index else None))
    return bodies, index


def _random_chunks(rng: random.Random, before: list) -> list:
    payload, codec, fields = rng.randbytes(rng.randrange(20, 200)), _codec(rng), _outer(rng) | _own(rng)
    uuid = f"u-{rng.randrange(1 << 40)}"
    sizes = [5] * rng.randrange(1, 4)
    made = [
        (
            lambda at, k=k: chunks(
                payload, sizes, uuid=uuid, first=None if at is None else at - k, codec=codec, **fields
            )[k],
            1,
        )
        for k in range(len(sizes) + 1)
    ]
    if rng.random() < 0.2:
        del made[rng.randrange(len(made))]
    if before and rng.random() < 0.5:
        before.insert(rng.randrange(len(before) + 1), made.pop(0))
    return made
