"""Every error the room raises.

::

    BookKeeperError
     +- MetadataError(path)                  the metadata service
         +- NoSuchNodeError                  the node (or the parent of a node to create) does not exist
         +- NodeExistsError                  a node of this path exists already
         +- NodeVersionError                 compare-and-set lost: the node has another version
         +- NodeNotEmptyError                a node with children cannot be deleted
         +- MetadataAccessError              authentication failed, or the access list forbids the operation
         +- MetadataRequestError             the service refuses the request (value too large, bad path)
         +- MetadataUnavailableError         connection lost or deadline passed: the outcome of a write is unknown
             +- SessionExpiredError          the session ended: its ephemeral nodes are gone
"""

from __future__ import annotations

__all__ = [
    "BookKeeperError",
    "MetadataAccessError",
    "MetadataError",
    "MetadataRequestError",
    "MetadataUnavailableError",
    "NoSuchNodeError",
    "NodeExistsError",
    "NodeNotEmptyError",
    "NodeVersionError",
    "SessionExpiredError",
]


class BookKeeperError(Exception):
    """Root of the room's errors."""


class MetadataError(BookKeeperError):
    """An operation on one node of the metadata service failed."""

    what = "failed"

    def __init__(self, path: str, detail: str = "") -> None:
        super().__init__(path, detail)
        self.path, self.detail = path, detail

    def __str__(self) -> str:
        return f"metadata node {self.path}: {self.what}{': ' if self.detail else ''}{self.detail}"


class NoSuchNodeError(MetadataError):
    what = "no such node"


class NodeExistsError(MetadataError):
    what = "exists already"


class NodeVersionError(MetadataError):
    """The node changed since the caller read it: read again, decide again."""

    what = "has another version"


class NodeNotEmptyError(MetadataError):
    what = "has children"


class MetadataAccessError(MetadataError):
    what = "access denied"


class MetadataRequestError(MetadataError):
    what = "request refused"


class MetadataUnavailableError(MetadataError):
    """No answer. A read may be tried again; a write may or may not have happened: read the node before deciding."""

    what = "the metadata service did not answer"


class SessionExpiredError(MetadataUnavailableError):
    what = "the session expired"
