"""Identity of a data directory: LOCK, VERSION, the store id that binds its parts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.checkpoint_file import Checkpoint, write_checkpoint
from magnetar.storage.embedded.file_header import FORMAT_VERSION
from magnetar.storage.embedded.layout import segment_id_of
from magnetar.storage.errors import DamagedFileError, StoreMismatchError, UnsupportedFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.interfaces import Clock, MetadataStore

__all__ = ["encode_version", "open_store", "parse_version"]

_STORE_NODE = "/store"
_PREFIX = "magnetar-store"


def encode_version(store_id: bytes) -> bytes:
    """Text of the VERSION file."""
    line = f"{_PREFIX} {FORMAT_VERSION} {store_id.hex()}"
    return f"{line} {crc32c(line.encode()):08x}\n".encode()


def parse_version(path: str, data: bytes) -> bytes:
    """The store id. Raises DamagedFileError, UnsupportedFormatError."""
    words = data.decode("ascii", "replace").split()
    line = " ".join(words[:3])
    if len(words) != 4 or words[0] != _PREFIX or words[3] != f"{crc32c(line.encode()):08x}" or data[-1:] != b"\n":
        raise DamagedFileError(path, 0, "not an intact VERSION file")
    if int(words[1]) > FORMAT_VERSION:
        raise UnsupportedFormatError(path, int(words[1]), FORMAT_VERSION)
    return bytes.fromhex(words[2])


async def open_store(
    files: FileSystem, layout: Layout, metadata: MetadataStore, entropy: Callable[[int], bytes], clock: Clock
) -> tuple[bytes, DamagedFileError | None]:
    """The store id; makes the store when the directory is new. Also tells damage of VERSION, which is written anew.

    Raises StoreMismatchError, UnsupportedFormatError.
    """
    node = await metadata.get(_STORE_NODE)
    known = bytes.fromhex(json.loads(node[0])["id"]) if node is not None else None
    found, damage = _read_version(files, layout)
    if known is None:
        if found is not None or damage is not None or _has_data(files, layout):
            raise StoreMismatchError(
                f"{layout.root} holds a journal or ledgers, but its metadata do not know the store: "
                f"{layout.metadata} is missing or new; put the right one back"
            )
        known = entropy(16)
        await metadata.put(_STORE_NODE, json.dumps({"id": known.hex()}).encode(), -1)
    if found is not None and found != known:
        raise StoreMismatchError(
            f"{layout.version} names store {found.hex()}, the metadata belong to store {known.hex()}"
        )
    if found is None:
        _write_new(files, layout, known, clock)
    return known, damage


def _read_version(files: FileSystem, layout: Layout) -> tuple[bytes | None, DamagedFileError | None]:
    if not files.exists(layout.version):
        return None, None
    file = files.open_read_only(layout.version)
    try:
        return parse_version(layout.version, file.read(file.size(), 0)), None
    except DamagedFileError as error:
        return None, error
    finally:
        file.close()


def _has_data(files: FileSystem, layout: Layout) -> bool:
    folders = (layout.journal, layout.ledgers)
    return any(files.exists(folder) and files.list_dir(folder) for folder in folders)


def _write_new(files: FileSystem, layout: Layout, store_id: bytes, clock: Clock) -> None:
    """Folders, first checkpoint, VERSION last: its presence says that the store is complete."""
    for folder in (layout.journal, layout.ledgers):
        files.make_dir(folder)
    files.sync_dir(layout.root)
    # Segments without VERSION mean that only VERSION was damaged: then a missing checkpoint is recovery's matter.
    made = files.exists(layout.checkpoint)
    if not made and not any(segment_id_of(name) is not None for name in files.list_dir(layout.journal)):
        write_checkpoint(files, layout, store_id, Checkpoint(), clock.now_ms())
    file = files.open(layout.version + ".new", create=True)
    try:
        file.truncate(0)
        file.write([encode_version(store_id)], 0)
        file.sync()
    finally:
        file.close()
    files.rename(layout.version + ".new", layout.version)
    files.sync_dir(layout.root)
