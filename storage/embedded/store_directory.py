"""Identity of a data directory: LOCK, VERSION, the store id that binds its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.embedded.checkpoint_file import Checkpoint, write_checkpoint
from magnetar.storage.embedded.file_header import FORMAT_VERSION
from magnetar.storage.embedded.layout import segment_id_of
from magnetar.storage.embedded.store_version import (
    STORE_NODE,
    encode_store_node,
    encode_version,
    read_version,
    store_id_of,
)
from magnetar.storage.errors import MetadataDamagedError, StoreMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.errors import DamagedFileError
    from magnetar.storage.interfaces import Clock, MetadataStore

__all__ = ["open_store"]


async def open_store(
    files: FileSystem, layout: Layout, metadata: MetadataStore, new_id: Callable[[], bytes], clock: Clock
) -> tuple[bytes, DamagedFileError | None]:
    """Return the store id, and the damage of VERSION or None. Makes the store when the directory is new.

    Writes VERSION anew when the file is missing, damaged, or of an older format; from then on the present format
    counts. Raises StoreMismatchError, MetadataDamagedError, UnsupportedFormatError, OSError.
    """
    known = store_id_of(await metadata.get(STORE_NODE))
    found, damage = read_version(files, layout)
    if known is None:
        if found is not None or damage is not None or _has_data(files, layout):
            raise MetadataDamagedError(
                layout.root, [f"{layout.root} holds a journal or ledgers, but its metadata do not know the store"]
            )
        known = new_id()
        await metadata.put(STORE_NODE, encode_store_node(known), -1)
    if found is not None and found[1] != known:
        raise StoreMismatchError(
            f"{layout.version} names store {found[1].hex()}, the metadata belong to store {known.hex()}"
        )
    if found is None or found[0] < FORMAT_VERSION:
        _write_new(files, layout, known, clock)
    return known, damage


def _has_data(files: FileSystem, layout: Layout) -> bool:
    folders = (layout.journal, layout.ledgers)
    return any(files.exists(folder) and files.list_dir(folder) for folder in folders)


def _write_new(files: FileSystem, layout: Layout, store_id: bytes, clock: Clock) -> None:
    """Make the folders, the first checkpoint, and VERSION last: a store with VERSION is complete."""
    for folder in (layout.journal, layout.ledgers):
        files.make_dir(folder)
    files.sync_dir(layout.root)
    # Segments without VERSION mean that only VERSION was damaged: then recovery handles a missing checkpoint.
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
