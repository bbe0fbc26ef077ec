"""ProtobufNative definitions: a JSON text with the descriptors of files, the name of one file and of its root message.

As in Apache Pulsar a definition is valid when the descriptors of the root's file and of all files that it imports fit
together and declare the root message; other files are not looked at.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from magnetar.broker.errors import InvalidSchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

__all__ = ["protobuf_root"]


def protobuf_root(data: bytes) -> str:
    """Check a definition and return the full name of its root message; raises InvalidSchemaError."""
    from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415 - start-up budget: few topics have such schemas

    try:
        found = json.loads(data)
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(found["fileDescriptorSet"])).file
        root, name = found["rootMessageTypeName"], found["rootFileDescriptorName"]
        pool = descriptor_pool.DescriptorPool()
        for file in _with_imports({each.name: each for each in files}, name):
            pool.AddSerializedFile(file.SerializeToString())
        message = pool.FindMessageTypeByName(root.strip("."))
    except (ValueError, KeyError, TypeError, AttributeError, DecodeError, RecursionError) as e:
        raise InvalidSchemaError(f"deserialize ProtobufNative Schema failed: {e}") from e
    if message.file.name != name:
        raise InvalidSchemaError(f"deserialize ProtobufNative Schema failed: no message {root} in file {name}")
    return str(message.full_name)


def _with_imports(files: Mapping[str, FileDescriptorProto], root: str) -> list[FileDescriptorProto]:
    """Return the root's file and all files that it imports, each file after its imports; raises KeyError,
    ValueError.
    """
    ordered: list[FileDescriptorProto] = []
    done: dict[str, bool] = {}  # file name -> whether all its imports are in the list
    stack = [root]
    while stack:
        name = stack[-1]
        if done.setdefault(name, False):
            stack.pop()
            continue
        waiting = [each for each in files[name].dependency if not done.get(each, False)]
        if any(each in done for each in waiting):
            raise ValueError(f"{name} imports a file that imports {name}")
        if waiting:
            stack += waiting
            continue
        done[name] = True
        ordered.append(files[name])
    return ordered
