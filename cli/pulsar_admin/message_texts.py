"""A message of the REST API as pulsar-admin shows it: its headers line by line, its payload as a hex dump. Pure."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from magnetar.client.messages import key_bytes
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import walk_batch
from magnetar.protocol.errors import ProtocolError
from magnetar.protocol.message_id import signed
from magnetar.protocol.texts import repair_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SEPARATOR: Final = "-" * 73 + "\n\n"
_ENTRY_TIME: Final = "X-Pulsar-Broker-Entry-METADATA-timestamp"
_ENTRY_INDEX: Final = "X-Pulsar-Broker-Entry-METADATA-index"
_RULE: Final = f"+--------+{'-' * 49}+{'-' * 16}+\n"


class ShownMessage(NamedTuple):
    """One message of an entry. `message_id`: `ledger:entry`, with the batch index behind it in a batch."""

    message_id: str
    batched: bool
    publish_time: int
    event_time: int
    deliver_at: int
    properties: dict[str, str]
    key: bytes | None
    payload: bytes
    null_value: bool
    headers: Mapping[str, str]


def messages_of(body: bytes, headers: Mapping[str, str]) -> Iterator[ShownMessage]:
    """Return the messages of an entry from the REST API: the body contains a batch, the headers all other metadata."""
    place = headers.get("X-Pulsar-Message-ID", "?")
    common = millis(headers.get("X-Pulsar-publish-time")), millis(headers.get("X-Pulsar-deliver-at-time"))
    count = headers.get("X-Pulsar-num-batch-message")
    if count is not None and headers.get("X-Pulsar-Is-Encrypted") != "true":
        batch = pb.MessageMetadata(num_messages_in_batch=int(count))
        try:
            for each in walk_batch(batch, body):
                single = each.metadata
                repair_texts(single)
                yield ShownMessage(
                    f"{place}:{each.batch_index}",
                    True,
                    common[0],
                    signed(single.event_time),
                    common[1],
                    {one.key: one.value for one in single.properties},
                    key_bytes(
                        single.partition_key if single.HasField("partition_key") else None,
                        encoded=single.partition_key_b64_encoded,
                    ),
                    bytes(each.payload),
                    single.null_value,
                    headers,
                )
        except ProtocolError:
            pass  # an unreadable entry is shown as one message
        else:
            return
    properties = json.loads(headers.get("X-Pulsar-PROPERTY", "{}"))
    event_time = millis(headers.get("X-Pulsar-event-time"))
    encoded = headers.get("X-Pulsar-partition-key-b64-encoded") == "true"
    key = key_bytes(headers.get("X-Pulsar-partition-key"), encoded=encoded)
    null = headers.get("X-Pulsar-null-value") == "true"
    yield ShownMessage(place, False, common[0], event_time, common[1], properties, key, body, null, headers)


def message_text(body: bytes, headers: Mapping[str, str]) -> Iterator[str]:
    """Return each message of an entry as `topics peek-messages` prints it."""
    for message in messages_of(body, headers):
        label = "Batch Message ID" if message.batched else "Message ID"
        shown = [f"{label}: {message.message_id}", f"Publish time: {message.publish_time}"]
        shown.append(f"Event time: {message.event_time}")
        if message.deliver_at:
            shown.append(f"Deliver at time: {message.deliver_at}")
        if (stored := headers.get(_ENTRY_TIME)) is not None:
            shown.append(f"Broker entry metadata timestamp: {millis(stored)}")
        if (index := headers.get(_ENTRY_INDEX)) is not None:
            shown.append(f"Broker entry metadata index: {index}")
        if message.properties:
            shown += ["Properties:", *(f"{key}    {value}" for key, value in message.properties.items())]
        yield "\n".join(shown) + "\n" + hex_dump(message.payload) + "\n"


def millis(text: str | None) -> int:
    """Return the milliseconds since 1970 of a time in a header; 0 without a time.

    A producer chooses its times: this broker gives those behind the year 9999 as a number, Apache Pulsar with a year of
    more digits, which counts as no time.
    """
    if not text:
        return 0
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0


def hex_dump(data: bytes) -> str:
    """Return a hex dump with sixteen bytes per line, framed as Netty prints a buffer; the empty text for no bytes."""
    if not data:
        return ""
    text = f"         +{'-' * 49}+\n         | {' '.join(f' {digit:x}' for digit in range(16))} |\n{_RULE}"
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        hexes = " ".join(f"{byte:02x}" for byte in part)
        letters = "".join(chr(byte) if 0x1F < byte < 0x7F else "." for byte in part)
        text += f"|{at:08x}| {hexes:<48}|{letters:<16}|\n"
    return (text + _RULE).rstrip("\n")
