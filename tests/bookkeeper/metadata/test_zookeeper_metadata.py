"""Requests of the store of ledger metadata. Their effects on a real ZooKeeper: ``tests/cluster/test_ledgers.py``."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.bookkeeper.background import Background
from magnetar.bookkeeper.errors import NodeNotEmptyError, NoSuchLedgerError, NoSuchNodeError
from magnetar.bookkeeper.metadata.ledger_paths import Layout
from magnetar.bookkeeper.metadata.zookeeper_metadata import ZooKeeperLedgerMetadata


class Session:
    """Nodes of a ZooKeeper, and its deletions."""

    def __init__(self, *paths):
        self.paths, self.deletions = set(paths), []

    async def exists(self, path):
        below = {each for each in self.paths if each.startswith(f"{path}/")}
        return SimpleNamespace(children=len(below)) if path in self.paths else None

    async def delete(self, path):
        await asyncio.sleep(0)
        self.deletions.append(path)
        if path not in self.paths:
            raise NoSuchNodeError(path)
        if (await self.exists(path)).children:
            raise NodeNotEmptyError(path)
        self.paths.remove(path)


def opened(session):
    return ZooKeeperLedgerMetadata(session, "/ledgers", Layout.HIERARCHICAL, Background("test"))


PARENTS = ("/ledgers", "/ledgers/00", "/ledgers/00/0000")
FIRST, SECOND = "/ledgers/00/0000/L0001", "/ledgers/00/0000/L0002"


async def test_the_deletion_of_a_ledger_beside_others_is_one_write():
    session = Session(*PARENTS, FIRST, SECOND)
    await opened(session).delete(1)
    assert session.deletions == [FIRST]


async def test_empty_directories_go_with_their_last_ledger():
    session = Session(*PARENTS, FIRST)
    await opened(session).delete(1)
    assert session.deletions == [FIRST, "/ledgers/00/0000", "/ledgers/00"]
    assert session.paths == {"/ledgers"}


async def test_a_missing_ledger():
    session = Session(*PARENTS, SECOND)
    with pytest.raises(NoSuchLedgerError):
        await opened(session).delete(1)
    assert session.paths == {*PARENTS, SECOND}
