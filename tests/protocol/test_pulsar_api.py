"""The generated module agrees with the .proto beside it."""

import pathlib
import re

from magnetar.protocol import pulsar_api_pb2 as pb

PROTO = pathlib.Path(pb.__file__).with_name("pulsar_api.proto").read_text()
FIELD = re.compile(r"^\s*(required|optional|repeated)\s+([\w.]+)\s+(\w+)\s*=\s*(\d+)", re.MULTILINE)
LABELS = {"optional": 1, "required": 2, "repeated": 3}


def described(messages):
    """(name, number, label) of every field, messages in messages too."""
    for message in messages:
        label = {False: LABELS["optional"]}
        for f in message.fields:
            yield (
                f.name,
                f.number,
                LABELS["required"] if f.is_required else LABELS["repeated"] if f.is_repeated else label[False],
            )
        yield from described(message.nested_types)


def test_every_field_has_the_number_and_label_of_the_proto():
    written = sorted((name, int(number), LABELS[label]) for label, _, name, number in FIELD.findall(PROTO))
    one_of = re.findall(r"oneof\s+\w+\s*{(.*?)}", PROTO, re.DOTALL)
    for block in one_of:
        written += [(n, int(k), LABELS["optional"]) for n, k in re.findall(r"[\w.]+\s+(\w+)\s*=\s*(\d+)", block)]
    generated = sorted(described(pb.DESCRIPTOR.message_types_by_name.values()))
    assert generated == sorted(written)
    assert len(generated) > 500


def test_every_command_type_has_a_field():
    fields = {f.number for f in pb.BaseCommand.DESCRIPTOR.fields}
    assert {v.number for v in pb.BaseCommand.Type.DESCRIPTOR.values} == fields - {1}
