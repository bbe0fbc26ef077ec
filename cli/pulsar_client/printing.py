"""How pulsar-client prints a message. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from magnetar.client.messages import ReceivedMessage

BOUNDARY: Final = "----- got message -----"


def message_line(message: ReceivedMessage, *, as_hex: bool, with_metadata: bool) -> str:
    """publishTime, eventTime, key, properties and content in one line, followed by the metadata on request."""
    properties = ", ".join(f"{key}={value}" for key, value in message.properties.items())
    content = hex_lines(message.payload) if as_hex else message.payload.decode(errors="replace")
    if message.null_value:
        content = "null"
    text = (
        f"publishTime:[{message.publish_time_ms}], eventTime:[{message.event_time_ms}], "
        f"key:[{message.key_text if message.key_text is not None else 'null'}], "
        f"properties:[{properties}], content:{content}"
    )
    return text + _metadata(message) if with_metadata else text


def _metadata(message: ReceivedMessage) -> str:
    fields = {
        "event-time": _instant(message.event_time_ms),
        "message-id": message_id(message),
        "producer-name": message.producer_name,
        "sequence-id": str(message.sequence_id),
        "replicated-from": message.replicated_from or "null",
        "redelivery-count": str(message.redelivery_count),
        "ordering-key": message.ordering_key.decode(errors="replace"),
        "schema-version": message.schema_version.hex(),
    }
    if message.broker_index >= 0:
        fields["index"] = str(message.broker_index)
    return "".join(f", {name}:{value}" for name, value in fields.items())


def message_id(message: ReceivedMessage) -> str:
    """`ledger:entry:partition`, with the batch index behind it in a batch."""
    _, separator, partition = message.topic.rpartition("-partition-")
    place = f"{message.ledger_id}:{message.entry_id}:{partition if separator and partition.isdigit() else -1}"
    return place if message.batch_index < 0 else f"{place}:{message.batch_index}"


def _instant(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError):  # a producer chooses the time; Python's calendar ends with the year 9999
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")


def hex_lines(data: bytes) -> str:
    """Return a hex dump; each line has offset, sixteen bytes and their characters, as commons-io prints them."""
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        hexes = "".join(f"{byte:02X} " for byte in part)
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08X} {hexes:<48}{letters}\n")
    return "".join(lines)
