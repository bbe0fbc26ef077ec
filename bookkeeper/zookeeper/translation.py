"""Errors and results of kazoo in the terms of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo import exceptions as kazoo_errors

from magnetar.bookkeeper.errors import (
    MetadataAccessError,
    MetadataError,
    MetadataRequestError,
    MetadataUnavailableError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeVersionError,
    NoSuchNodeError,
    SessionExpiredError,
)
from magnetar.bookkeeper.zookeeper.values import Create, NodeStat, Set

if TYPE_CHECKING:
    from magnetar.bookkeeper.zookeeper.values import Operation

__all__ = ["CONSEQUENCES", "REFUSALS", "node_stat", "result_of", "translated"]

_ERRORS: tuple[tuple[type[Exception], type[MetadataError]], ...] = (
    (kazoo_errors.NoNodeError, NoSuchNodeError),
    (kazoo_errors.NodeExistsError, NodeExistsError),
    (kazoo_errors.BadVersionError, NodeVersionError),
    (kazoo_errors.NotEmptyError, NodeNotEmptyError),
    (kazoo_errors.NoAuthError, MetadataAccessError),
    (kazoo_errors.AuthFailedError, MetadataAccessError),
    (kazoo_errors.InvalidACLError, MetadataAccessError),
    (kazoo_errors.ConnectionClosedError, MetadataUnavailableError),
    (kazoo_errors.SessionExpiredError, SessionExpiredError),
    (kazoo_errors.ConnectionLoss, MetadataUnavailableError),
    (kazoo_errors.OperationTimeoutError, MetadataUnavailableError),
    (kazoo_errors.SessionMovedError, MetadataUnavailableError),
    (kazoo_errors.ThrottledOpError, MetadataUnavailableError),
)
"""The classes of errors in the order of the search: the first class that fits counts. Any other error is a
MetadataRequestError.
"""

REFUSALS = (kazoo_errors.AuthFailedError, kazoo_errors.SessionClosedRequireSaslError, kazoo_errors.SASLException)
"""The service rejects the credentials, or demands credentials from a client without them."""

CONSEQUENCES = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""Errors of the other operations of a failed transaction: consequences, not the cause."""


def translated(error: Exception, path: str) -> MetadataError:
    """The error of this room for an error of kazoo."""
    for known, ours in _ERRORS:
        if isinstance(error, known):
            return ours(path)
    return MetadataRequestError(path, type(error).__name__)


def node_stat(stat: Any) -> NodeStat:
    """The stat of a node from kazoo's."""
    return NodeStat(
        version=stat.version,
        children_version=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        creation_zxid=stat.czxid,
        modified_zxid=stat.mzxid,
        children=stat.numChildren,
    )


def result_of(operation: Operation, found: Any) -> str | NodeStat | None:
    """The result of one operation of a transaction: the path of a create, the stat after a set, None for others."""
    if isinstance(operation, Create):
        return str(found)
    return node_stat(found) if isinstance(operation, Set) else None
