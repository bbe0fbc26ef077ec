"""Ledgers on real bookies, and the Java client's view of them."""

from __future__ import annotations

import asyncio
import hashlib
import pathlib

import pytest

from magnetar.bookkeeper.client import BookKeeper
from magnetar.bookkeeper.errors import (
    EntryTooLargeError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    WrongPasswordError,
)
from magnetar.bookkeeper.options import LedgerOptions
from magnetar.bookkeeper.wire.digests import DigestType

TOOL = str(pathlib.Path(__file__).with_name("LedgerTool.java"))
E3 = LedgerOptions(3, 3, 2)


def uri(cluster):
    return f"zk+hierarchical://{cluster.zookeeper}/ledgers"


@pytest.fixture
async def client(cluster):
    async with await BookKeeper.connect(uri(cluster)) as opened:
        yield opened


def payloads(count, size=200):
    return [f"{i}:{'x' * (i * 37 % size)}".encode() for i in range(count)]


async def written(client, entries, options=E3, close=True):
    writer = await client.create(options)
    await asyncio.gather(*(writer.append(payload) for payload in entries))
    if close:
        await writer.close()
    return writer


async def contents(reader):
    return [bytes(entry.payload) async for entry in reader.entries()]


@pytest.mark.parametrize("quorums", [(1, 1, 1), (3, 2, 2), (3, 3, 2), (3, 2, 1)])
async def test_entries_come_back(client, quorums):
    entries = payloads(500)
    writer = await written(client, entries, LedgerOptions(*quorums))
    assert writer.last_add_confirmed == 499
    reader = await client.open(writer.ledger_id)
    assert (reader.is_closed, reader.last_add_confirmed, reader.length) == (True, 499, sum(map(len, entries)))
    assert await contents(reader) == entries
    assert [e.entry_id for e in await reader.read(498, 10_000)] == [498, 499]
    with pytest.raises(NoSuchEntryError):
        await reader.read(500, 500)


@pytest.mark.parametrize("kind", list(DigestType))
async def test_every_digest_and_a_password(client, kind):
    writer = await written(client, [b"a", b"b" * 1000], LedgerOptions(3, 3, 2, kind, b"secret"))
    reader = await client.open(writer.ledger_id, b"secret")
    assert await contents(reader) == [b"a", b"b" * 1000]
    with pytest.raises(WrongPasswordError):
        await client.open(writer.ledger_id, b"other")


async def test_ledgers_are_listed_and_deleted(client):
    first, second = await client.create(E3), await client.create(E3)
    listed = [ledger async for ledger in client.ledger_ids()]
    assert {first.ledger_id, second.ledger_id} <= set(listed)
    assert first.ledger_id < second.ledger_id
    await client.delete(first.ledger_id)
    with pytest.raises(NoSuchLedgerError):
        await client.open(first.ledger_id)
    with pytest.raises(NoSuchLedgerError):
        await client.delete(first.ledger_id)
    with pytest.raises(NoSuchLedgerError):
        await first.append(b"x")


async def test_a_closed_ledger_takes_nothing(client):
    writer = await written(client, [b"a"])
    with pytest.raises(LedgerClosedError):
        await writer.append(b"b")
    assert (await writer.close()).last_entry_id == 0


async def test_too_large_an_entry_is_refused_and_the_largest_is_taken(client):
    writer = await client.create(E3)
    with pytest.raises(EntryTooLargeError):
        await writer.append(bytes(writer.max_payload_bytes + 1))
    assert await writer.append(bytes(writer.max_payload_bytes)) == 0
    await writer.close()
    reader = await client.open(writer.ledger_id)
    assert len((await reader.read(0, 0))[0].payload) == writer.max_payload_bytes


async def test_more_bookies_than_there_are(client):
    with pytest.raises(NotEnoughBookiesError, match="ensemble of 4"):
        await client.create(LedgerOptions(4, 2, 2))


async def test_recovery_by_another_client_fences_the_writer_and_keeps_every_acknowledged_entry(cluster, client):
    entries = payloads(300)
    writer = await written(client, entries, close=False)
    async with await BookKeeper.connect(uri(cluster)) as other:
        reader = await other.open(writer.ledger_id)
        assert await contents(reader) == entries
        with pytest.raises(LedgerFencedError):
            await writer.append(b"late")
        with pytest.raises(LedgerFencedError):
            await writer.close()
        again = await other.open(writer.ledger_id)
        assert again.metadata == reader.metadata


async def test_recovery_of_an_empty_ledger_stops_a_writer_that_has_written_nothing(cluster, client):
    writer = await client.create(E3)
    async with await BookKeeper.connect(uri(cluster)) as other:
        assert (await other.open(writer.ledger_id)).last_add_confirmed == -1
    with pytest.raises(LedgerFencedError):
        await writer.append(b"late")


async def test_an_open_ledger_is_read_without_fencing(cluster, client):
    writer = await written(client, payloads(10), close=False)
    await writer.append(b"the last")
    async with await BookKeeper.connect(uri(cluster)) as other:
        reader = await other.open(writer.ledger_id, recover_first=False)
        assert not reader.is_closed
        assert reader.last_add_confirmed >= 9  # the header of an entry names its predecessor
    assert await writer.append(b"more") == 11
    assert await contents(client.reader_of(writer)) == [*payloads(10), b"the last", b"more"]


async def test_many_recoveries_at_once_come_to_the_same_end(cluster, client):
    writer = await written(client, payloads(100), close=False)
    others = [await BookKeeper.connect(uri(cluster)) for _ in range(3)]
    adding = [asyncio.ensure_future(writer.append(b"y")) for _ in range(50)]
    readers = await asyncio.gather(*(other.open(writer.ledger_id) for other in others))
    outcomes = await asyncio.gather(*adding, return_exceptions=True)
    acknowledged = max((o for o in outcomes if isinstance(o, int)), default=99)
    assert len({reader.metadata for reader in map(_frozen, readers)}) == 1
    assert readers[0].last_add_confirmed >= acknowledged
    for other in others:
        await other.close()


def _frozen(reader):
    class Frozen:
        metadata = (reader.metadata.last_entry_id, reader.metadata.length, reader.metadata.segments)

    return Frozen


def java(cluster, *commands):
    """BookKeeper's own client: (ledger id, last entry id, hash) for each command."""
    words = [str(word) for command in commands for word in command]
    lines = cluster.java(TOOL, cluster.zookeeper, *words).splitlines()
    found = [line.split()[1:] for line in lines if line.startswith("RESULT ")]
    return [(int(ledger_id), int(last), digest) for ledger_id, last, digest in found]


def hash_of(entries):
    return hashlib.sha256(b"".join(entries)).hexdigest()


async def test_each_client_reads_and_recovers_ledgers_of_the_other(cluster, client):
    entries = payloads(200)
    closed = await written(client, entries)
    left = await written(client, entries, LedgerOptions(3, 3, 2, DigestType.HMAC, b"pw"), close=False)
    striped = await written(client, entries, LedgerOptions(3, 2, 2, DigestType.CRC32, b"pw"))
    found = await asyncio.to_thread(
        java,
        cluster,
        ("read", "CRC32C", "", closed.ledger_id),
        ("read", "MAC", "pw", left.ledger_id),
        ("read", "CRC32", "pw", striped.ledger_id),
        ("write", "CRC32", "pw", 150, 300, "close"),
        ("write", "CRC32C", "", 120, 300, "leave"),
    )
    ours, theirs = found[:3], found[3:]
    assert ours == [(writer.ledger_id, 199, hash_of(entries)) for writer in (closed, left, striped)]
    assert (await client.metadata(left.ledger_id)).is_closed
    with pytest.raises(LedgerFencedError):
        await left.append(b"late")
    for (ledger_id, last, digest), password, is_closed in zip(theirs, (b"pw", b""), (True, False), strict=True):
        assert (await client.metadata(ledger_id)).is_closed == is_closed
        reader = await client.open(ledger_id, password)
        assert reader.last_add_confirmed == last
        assert hash_of(await contents(reader)) == digest
