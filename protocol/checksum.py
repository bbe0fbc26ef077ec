"""CRC-32C (Castagnoli), the checksum of frames and records: the package `crc32c`, without its own imports.

The package reads its own version with `importlib.metadata`, which takes a twentieth of the broker's start-up time. So
this module loads only the package's extension, or the whole package where that fails.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

__all__ = ["crc32c"]


def _extension() -> object:
    package = importlib.util.find_spec("crc32c")
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations) if package is not None else None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "crc32c", None)


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    crc32c = _extension()
    if crc32c is None:  # a release of the package with another structure
        from crc32c import crc32c
