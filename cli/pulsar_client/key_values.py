"""KeyValue schemas of `client produce` (`--key-value-encoding-type`). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.cli.pulsar_client.payloads import ValueSchema
from magnetar.client.sending import Outgoing
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

ENCODINGS: Final = ("separated", "inline")
_NAMES: Final = {"BYTES": "Bytes", "STRING": "String", "JSON": "client", "AVRO": "client"}


class KeyValueSchema:
    """A schema of keys and values, and messages in it, as pulsar-client makes them.

    inline       payload: i32 bytes of the key (-1 without a key), key, i32 bytes of the value, value
    separated    the payload is the value, the key stands in the metadata in base64
    schema data  i32 bytes, definition of the key, i32 bytes, definition of the value; their types and the encoding are
                 properties of the schema
    """

    def __init__(self, key: str, value: str, encoding: str) -> None:
        """Args: as --key-schema, --value-schema, --key-value-encoding-type. Raises: as `ValueSchema`."""
        self._separated = encoding == "separated"
        self._key, self._value = ValueSchema(key), ValueSchema(value)
        parts = {"key": self._key, "value": self._value}
        data = b"".join(len(part.definition).to_bytes(4, "big") + part.definition for part in parts.values())
        self.schema = pb.Schema(name="KeyValue", schema_data=data, type=pb.Schema.KeyValue)
        properties = {"kv.encoding.type": encoding.upper()}
        for side, part in parts.items():
            properties[f"{side}.schema.name"] = _NAMES[part.kind]
            properties[f"{side}.schema.type"] = part.kind
            properties[f"{side}.schema.properties"] = "{}"
        for name, text in properties.items():
            self.schema.properties.add(key=name, value=text)

    def outgoing(self, key: bytes | None, value: bytes, properties: Mapping[str, str]) -> Outgoing:
        """Return a message to send. Raises: CommandLineError when key or value do not fit the schema."""
        key = None if key is None else self._key.encode(key)
        value = self._value.encode(value)
        if self._separated:
            return Outgoing(value, key, properties)
        size = -1 if key is None else len(key)
        inline = size.to_bytes(4, "big", signed=True) + (key or b"") + len(value).to_bytes(4, "big") + value
        return Outgoing(inline, None, properties)
