"""Stores of format 1: read once and kept aside, without loss; damaged stores are refused.

``tests/vectors/stores`` holds two such stores: one of a stopped broker, one of a killed broker with all changes in
SQLite's write-ahead log; ``expected.json`` lists the published messages and those that the subscription ``reader`` has
still to get.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import random
import zipfile

import pytest

from magnetar.broker.rebuilding import rebuild_records
from magnetar.storage.embedded.engine import open_embedded
from magnetar.storage.embedded.metadata.format_1 import write_ahead_problem
from magnetar.storage.embedded.verify.command import verify_store
from magnetar.storage.errors import MetadataDamagedError
from magnetar.storage.interfaces import SystemClock
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.position import EARLIEST

STORES = pathlib.Path(__file__).parents[3] / "vectors" / "stores"
KINDS = ["stopped", "killed"]


def unpack(kind: str, folder: pathlib.Path) -> dict[str, dict[str, list[str]]]:
    """Unpack the store into ``folder``; returns its expected messages."""
    with zipfile.ZipFile(STORES / f"store-format-1-{kind}.zip") as store:
        store.extractall(folder)
    expected = folder / "expected.json"
    found = json.loads(expected.read_text())
    expected.unlink()
    return found


async def content(folder: pathlib.Path) -> dict[str, tuple[list[str], int]]:
    """By topic: all payloads, and the backlog of ``reader``."""
    storage = await open_embedded(str(folder))
    assert not storage.recovery.damaged_files
    assert not storage.recovery.set_aside
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, SystemClock(), asyncio.get_running_loop())
    found = {}
    for namespace in ("public/default", "old/kept"):
        for name in await factory.names(f"{namespace}/persistent"):
            ledger = await factory.open(name, create_if_missing=False)
            spans = await ledger.new_read_cursor(EARLIEST).read(1000, 1 << 20)
            bodies = [bytes(span.slab.body(k)) for span in spans for k in range(span.start, span.end)]
            backlog = ledger.cursors["reader"].backlog_entries
            found[name.replace("/persistent/", "/")] = ([body.rpartition(b"\x00")[2] for body in bodies], backlog)
    await factory.close()
    await storage.close()
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_everything_is_there_and_stays(kind, tmp_path):
    expected = unpack(kind, tmp_path)
    assert verify_store(str(tmp_path)).damaged is False
    for _ in range(2):
        found = await content(tmp_path)
        for topic, bodies in expected.items():
            stored, backlog = found[topic]
            assert [b.encode() in s for s, b in zip(stored, bodies["all"], strict=True)] == [True] * len(stored)
            assert backlog == len(bodies["left"])
        assert (tmp_path / "VERSION").read_bytes().startswith(b"magnetar-store 2 ")
        assert (tmp_path / "metadata.sqlite.format-1").exists()
        assert not (tmp_path / "metadata.sqlite").exists()
        assert verify_store(str(tmp_path)).findings == []


@pytest.mark.parametrize("kind", KINDS)
async def test_properties_and_sequences_come_over(kind, tmp_path):
    unpack(kind, tmp_path)
    storage = await open_embedded(str(tmp_path))
    known = await storage.ledgers.list_ledgers()
    assert len(known) >= 6
    owners = {(await storage.ledgers.properties(ledger_id)).get("pulsar/managed-ledger") for ledger_id in known}
    assert "public/default/persistent/plain" in owners
    assert (await storage.ledgers.create()).ledger_id >= 64, "ids given by the version before are not given again"
    assert await storage.metadata.get("/admin/policies/old/kept") is not None
    await storage.close()


def test_a_flipped_bit_in_the_write_ahead_log_is_refused_or_harmless(tmp_path):
    """SQLite would open the store without an error, and without topics."""
    pristine = tmp_path / "pristine"
    unpack("killed", pristine)
    log = (pristine / "metadata.sqlite-wal").read_bytes()
    chance = random.Random(5)
    refused = 0
    for bit in chance.sample(range(len(log) * 8), 60):
        data = bytearray(log)
        data[bit // 8] ^= 1 << (bit % 8)
        path = tmp_path / "wal"
        path.write_bytes(data)
        at = bit // 8
        found = write_ahead_problem(path)
        # Only the last transaction may be torn, and bytes of an earlier use of the file do not count.
        refused += found is not None
        assert found is not None or at > len(log) * 3 // 4, f"bit {bit} of {len(log) * 8}"
    assert refused > 30


async def test_a_damaged_store_is_refused_and_left_as_it_is(tmp_path):
    unpack("killed", tmp_path)
    path = tmp_path / "metadata.sqlite-wal"
    data = bytearray(path.read_bytes())
    data[9000] ^= 1
    path.write_bytes(data)
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file() and each.name != "LOCK"}
    with pytest.raises(MetadataDamagedError, match="write-ahead"):
        await open_embedded(str(tmp_path))
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file() and each.name != "LOCK"} == before
    assert any(finding.kind == "metadata" for finding in verify_store(str(tmp_path)).findings)


async def test_a_row_with_a_wrong_checksum_is_refused(tmp_path):
    unpack("stopped", tmp_path)
    path = tmp_path / "metadata.sqlite"
    data = bytearray(path.read_bytes())
    at = data.index(b'"pulsar/managed-ledger"')
    data[at + 3] ^= 2
    path.write_bytes(data)
    with pytest.raises(MetadataDamagedError):
        await open_embedded(str(tmp_path))


async def test_a_damaged_store_is_repaired_from_every_intact_row(tmp_path):
    """Rows behind the damage come too, and the ledgers' names with them: files of format 1 have none."""
    expected = unpack("killed", tmp_path)
    path = tmp_path / "metadata.sqlite-wal"
    data = bytearray(path.read_bytes())
    data[32 + 24 + 3000] ^= 1
    path.write_bytes(data)
    with pytest.raises(MetadataDamagedError):
        await open_embedded(str(tmp_path))
    report = verify_store(str(tmp_path), repair=["metadata"], rebuild=rebuild_records)
    assert report.repaired
    found = await content(tmp_path)
    for topic, bodies in expected.items():
        stored, backlog = found[topic]
        assert len(stored) == len(bodies["all"])
        assert backlog == len(bodies["left"])
    assert not (tmp_path / "metadata.sqlite").exists()
    assert not any(finding.severity == "damage" for finding in verify_store(str(tmp_path)).findings)


@pytest.mark.parametrize("kind", KINDS)
def test_verify_of_a_start_that_was_interrupted(kind, tmp_path):
    """Files of the interrupted start do not count yet: the next start reads the database again, and so does ``verify``."""
    unpack(kind, tmp_path)
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "00000001.snapshot").write_bytes(b"half")
    report = verify_store(str(tmp_path))
    assert not [found for found in report.findings if found.severity == "damage"]
