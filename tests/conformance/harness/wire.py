"""Frames between plain Python values and bytes, as a test needs them: nothing is checked, everything can be broken."""

import base64
import hashlib
import hmac
import json
import struct

import crc32c
from google.protobuf.descriptor import FieldDescriptor

import pulsar_pb as pb

TYPES = {v.name: v.number for v in pb.BaseCommand.DESCRIPTOR.enum_types_by_name["Type"].values}
NAMES = {number: name for name, number in TYPES.items()}
_FIELDS = {f.name.lower().replace("_", ""): f.name for f in pb.BaseCommand.DESCRIPTOR.fields}
_ODD = {
    "PARTITIONED_METADATA": "partitionMetadata",
    "PARTITIONED_METADATA_RESPONSE": "partitionMetadataResponse",
    "LOOKUP": "lookupTopic",
    "LOOKUP_RESPONSE": "lookupTopicResponse",
}
CHECKSUM_MAGIC = b"\x0e\x01"
ENTRY_METADATA_MAGIC = b"\x0e\x02"
PUBLISH_TIME = 1_700_000_000_000
TEST_KEY = bytes(range(1, 33))  # the secret key of the tokens in auth.conf
_DIGESTS = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512", "none": None}


def field_of(type_name):
    return _ODD.get(type_name) or _FIELDS[type_name.lower().replace("_", "")]


def fill(message, values):
    """Set fields from plain values: enums by name or number, nested messages as dicts, repeated fields as lists."""
    for name, value in values.items():
        f = message.DESCRIPTOR.fields_by_name[name]
        repeated = isinstance(value, (list, tuple))
        for item in value if repeated else [value]:
            if f.type == FieldDescriptor.TYPE_MESSAGE:
                target = getattr(message, name)
                target = target.add() if repeated else target
                target.SetInParent()
                fill(target, item)
                continue
            is_name = f.type == FieldDescriptor.TYPE_ENUM and isinstance(item, str)
            plain_value = f.enum_type.values_by_name[item].number if is_name else item
            if repeated:
                getattr(message, name).append(plain_value)
            else:
                setattr(message, name, plain_value)


def plain(message):
    """The message's set fields as plain values: enums by name, bytes in hex."""
    out = {}
    for f, value in message.ListFields():
        if f.type == FieldDescriptor.TYPE_MESSAGE:
            convert = plain
        elif f.type == FieldDescriptor.TYPE_ENUM:
            convert = _enum_name(f)
        elif f.type == FieldDescriptor.TYPE_BYTES:
            convert = bytes.hex
        else:
            convert = _same
        repeated = not isinstance(value, (str, bytes)) and hasattr(value, "append")
        out[f.name] = [convert(item) for item in value] if repeated else convert(value)
    return out


def _enum_name(field):
    return lambda number: field.enum_type.values_by_number[number].name


def _same(value):
    return value


def short_bytes(data):
    return data.hex() if len(data) <= 256 else f"{len(data)} bytes crc {crc32c.crc32c(data):08x}"


def command(type_name, fields):
    """A BaseCommand of that type and its own message, which may lack required fields."""
    base = pb.BaseCommand()
    base.type = TYPES[type_name]
    target = getattr(base, field_of(type_name))
    target.SetInParent()
    fill(target, fields)
    return base, target


def framed(base, tail=b""):
    raw = base.SerializePartialToString()
    return struct.pack(">II", 4 + len(raw) + len(tail), len(raw)) + raw + tail


def metadata_of(sequence_id, fields):
    message = pb.MessageMetadata()
    fill(message, {"producer_name": "p", "sequence_id": sequence_id, "publish_time": PUBLISH_TIME} | fields)
    return message


def headers_and_payload(metadata, payload):
    raw = metadata.SerializePartialToString()
    return struct.pack(">I", len(raw)) + raw + payload


def checksummed(entry, bad=False):
    return CHECKSUM_MAGIC + struct.pack(">I", crc32c.crc32c(entry) ^ int(bad)) + entry


def encode(type_name, **fields):
    """A whole frame of a command as bytes, for raw()."""
    return framed(command(type_name, fields)[0])


def encode_send(producer_id, sequence_id, payload=b"x", **metadata):
    """A whole SEND frame as bytes, for raw()."""
    base, _ = command("SEND", {"producer_id": producer_id, "sequence_id": sequence_id})
    return framed(base, checksummed(headers_and_payload(metadata_of(sequence_id, metadata), payload)))


def jwt(sub=None, key=TEST_KEY, alg="HS256", **claims):
    """A signed token; the broker of auth.conf accepts the default key. alg "none" has no signature."""

    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = ({} if sub is None else {"sub": sub}) | claims
    text = part(json.dumps({"alg": alg, "typ": "JWT"}).encode()) + "." + part(json.dumps(claims).encode())
    digest = _DIGESTS[alg]
    return text + "." + (part(hmac.new(key, text.encode(), getattr(hashlib, digest)).digest()) if digest else "")


class Frame:
    """A received frame: type name, command, and for MESSAGE also metadata, entry metadata, payload, crc (or None)."""

    def __init__(self, body):
        (size,) = struct.unpack_from(">I", body)
        base = pb.BaseCommand.FromString(body[4 : 4 + size])
        self.type = NAMES[base.type]
        self.command = getattr(base, field_of(self.type))
        self.metadata = self.entry_metadata = self.payload = self.crc = None
        rest = body[4 + size :]
        if self.type == "MESSAGE" and rest:
            self._read_entry(rest)

    def _read_entry(self, rest):
        if rest[:2] == ENTRY_METADATA_MAGIC:
            (n,) = struct.unpack_from(">I", rest, 2)
            self.entry_metadata = pb.BrokerEntryMetadata.FromString(rest[6 : 6 + n])
            rest = rest[6 + n :]
        if rest[:2] == CHECKSUM_MAGIC:
            (crc,) = struct.unpack_from(">I", rest, 2)
            rest = rest[6:]
            self.crc = crc32c.crc32c(rest) == crc
        (n,) = struct.unpack_from(">I", rest)
        self.metadata = pb.MessageMetadata.FromString(rest[4 : 4 + n])
        self.payload = rest[4 + n :]

    @property
    def message_id(self):
        m = self.command.message_id
        return {"ledgerId": m.ledgerId, "entryId": m.entryId}
