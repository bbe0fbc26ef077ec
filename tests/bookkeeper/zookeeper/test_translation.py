"""Errors and results of kazoo in the terms of the bookkeeper room."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kazoo import exceptions as kazoo_errors

from magnetar.bookkeeper.errors import (
    MetadataAccessError,
    MetadataRequestError,
    MetadataUnavailableError,
    NodeVersionError,
    NoSuchNodeError,
    SessionExpiredError,
)
from magnetar.bookkeeper.zookeeper.translation import node_stat, result_of, translated
from magnetar.bookkeeper.zookeeper.values import Check, Create, Delete, Set

STAT = SimpleNamespace(
    version=3, cversion=4, ephemeralOwner=5, ctime=6, mtime=7, czxid=8, mzxid=9, numChildren=10, dataLength=11
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (kazoo_errors.NoNodeError(), NoSuchNodeError),
        (kazoo_errors.BadVersionError(), NodeVersionError),
        (kazoo_errors.NoAuthError(), MetadataAccessError),
        (kazoo_errors.ConnectionLoss(), MetadataUnavailableError),
        (kazoo_errors.SessionExpiredError(), SessionExpiredError),
        (kazoo_errors.MarshallingError(), MetadataRequestError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_keep_their_kind_and_name_the_node(error, expected):
    found = translated(error, "/a/b")
    assert type(found) is expected
    assert "/a/b" in str(found)


def test_a_stat_keeps_its_numbers():
    stat = node_stat(STAT)
    assert (stat.version, stat.children_version, stat.ephemeral_owner) == (3, 4, 5)
    assert (stat.created_ms, stat.modified_ms) == (6, 7)
    assert (stat.creation_zxid, stat.modified_zxid, stat.children) == (8, 9, 10)


def test_results_of_a_transaction():
    assert result_of(Create("/a"), "/a0000000001") == "/a0000000001"
    assert result_of(Set("/a", b"x"), STAT) == node_stat(STAT)
    assert result_of(Delete("/a"), True) is None
    assert result_of(Check("/a", 1), True) is None
