"""Errors of the ZooKeeper session as errors of this room."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from magnetar.bookkeeper import errors as service
from magnetar.storage.errors import NoNodeError, NotEmptyError, StorageError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["storage_errors"]


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Every error of the session that leaves the block is a StorageError."""
    try:
        yield
    except service.NoSuchNodeError as error:
        raise NoNodeError(error.path) from error
    except service.NodeNotEmptyError as error:
        raise NotEmptyError(error.path) from error
    except service.MetadataUnavailableError as error:
        raise StorageUnavailableError(str(error)) from error
    except service.MetadataError as error:
        raise StorageError(str(error)) from error
