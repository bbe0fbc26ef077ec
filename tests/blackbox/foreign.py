"""Entries in foreign formats, published by hand as no official client does."""

import base64
import json
import pathlib

from magnetar.converters.entry import build_entry
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka_entry.planning import plan_entry
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.raw import RawPeer, command, frame

FOLDER = pathlib.Path(__file__).parents[1] / "vectors" / "kafka"
VECTORS = {v["name"]: v for v in json.loads((FOLDER / "vectors.json").read_text())["vectors"]}


def foreign_entry(payload, entry_format, messages=None, **fields):
    """Headers and payload with the property entry.format."""
    metadata = pb.MessageMetadata(**({"producer_name": "raw", "sequence_id": 0, "publish_time": 1} | fields))
    metadata.properties.add(key="entry.format", value=entry_format)
    if messages is not None:
        metadata.num_messages_in_batch = messages
    return build_entry(metadata.SerializeToString(), payload)


def kafka_entry(record_set):
    """(entry, messages) of a Kafka record set."""
    planned = plan_entry(record_set, publish_time=1_700_000_000_000, producer_name="raw")
    return planned.data, planned.messages


def vector_bytes(name):
    return (FOLDER / f"{name}.bin").read_bytes()


def records_of(record_set):
    """(key, value) of each record a Pulsar client is to see."""
    return [
        (record.key, record.value or b"")
        for batch in RecordSet(record_set).batches()
        if not getattr(batch, "is_control", False)
        for record in batch.records()
    ]


def key_text(key):
    """How the official client shows the key of a converted record."""
    return "" if key is None else base64.b64encode(key).decode()


def publish(broker, topic, entries):
    """Store entries (bytes, or (bytes, messages)) and return their (ledger, entry) ids."""
    peer = RawPeer(broker.url)
    try:
        peer.producer(topic)
        ids = []
        for number, each in enumerate(entries):
            data, messages = each if isinstance(each, tuple) else (each, 1)
            base = command("SEND", "send", producer_id=1, sequence_id=number, num_messages=messages)
            peer.write(frame(base, data))
            answer = peer.receive()
            assert answer.type == pb.BaseCommand.SEND_RECEIPT, answer
            ids.append((answer.send_receipt.message_id.ledgerId, answer.send_receipt.message_id.entryId))
        return ids
    finally:
        peer.socket.close()
