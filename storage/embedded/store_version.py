"""VERSION, the line of text that names format and store, and the metadata node that names the store. The module raises
errors only for damage and newer formats.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.file_header import FORMAT_VERSION
from magnetar.storage.errors import DamagedFileError, UnsupportedFormatError

if TYPE_CHECKING:
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout

__all__ = [
    "STORE_NODE",
    "encode_store_node",
    "encode_version",
    "parse_version",
    "read_version",
    "store_id_of",
    "stored_format",
]

STORE_NODE = "/store"
_PREFIX = "magnetar-store"


def encode_version(store_id: bytes, version: int = FORMAT_VERSION) -> bytes:
    """Text of the VERSION file."""
    line = f"{_PREFIX} {version} {store_id.hex()}"
    return f"{line} {crc32c(line.encode()):08x}\n".encode()


def parse_version(path: str, data: bytes) -> tuple[int, bytes]:
    """(format, store id). Raises DamagedFileError, UnsupportedFormatError."""
    words = data.decode("ascii", "replace").split()
    line = " ".join(words[:3])
    intact = len(words) == 4 and words[0] == _PREFIX and data == f"{line} {crc32c(line.encode()):08x}\n".encode()
    if not intact or not words[1].isdecimal():
        raise DamagedFileError(path, 0, "not an intact VERSION file")
    if int(words[1]) > FORMAT_VERSION:
        raise UnsupportedFormatError(path, int(words[1]), FORMAT_VERSION)
    try:
        return int(words[1]), bytes.fromhex(words[2])
    except ValueError as error:
        raise DamagedFileError(path, 0, "not an intact VERSION file") from error


def read_version(files: FileSystem, layout: Layout) -> tuple[tuple[int, bytes] | None, DamagedFileError | None]:
    """((format, store id), damage); both None when there is no file. Raises UnsupportedFormatError."""
    if not files.exists(layout.version):
        return None, None
    file = files.open_read_only(layout.version)
    try:
        return parse_version(layout.version, file.read(file.size(), 0)), None
    except DamagedFileError as error:
        return None, error
    finally:
        file.close()


def stored_format(files: FileSystem, layout: Layout) -> int | None:
    """The format in an intact VERSION. Raises UnsupportedFormatError."""
    found, _ = read_version(files, layout)
    return found[0] if found is not None else None


def encode_store_node(store_id: bytes) -> bytes:
    """Value of the node ``/store``."""
    return json.dumps({"id": store_id.hex()}).encode()


def store_id_of(node: tuple[bytes, int] | None) -> bytes | None:
    """The store id in the node ``/store``; None without the node."""
    return bytes.fromhex(json.loads(node[0])["id"]) if node is not None else None
