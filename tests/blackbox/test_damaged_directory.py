"""Data directories of a broker that was stopped or killed, damaged: one bit anywhere, and metadata that are gone.

A flipped bit is harmless, or reported and limited to one entry. ``make test`` flips a seeded sample of bits in each
directory, ``MAGNETAR_CRASH_LONG=1`` 1,000, ``MAGNETAR_FLIPS`` as many as it says.
"""

import asyncio
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition, MessageId

from magnetar.broker import cli
from magnetar.storage.embedded.engine import open_embedded
from magnetar.storage.embedded.verify.command import verify_store
from magnetar.storage.errors import CorruptEntryError
from tests.blackbox.clients import quiet_client

FLIPS = int(os.environ.get("MAGNETAR_FLIPS", "1000" if os.environ.get("MAGNETAR_CRASH_LONG") else "40"))
TOPICS = [f"persistent://public/default/flip-{k}" for k in range(3)]
MESSAGES = 12


def fill(broker):
    """Publish messages to several topics, and acknowledge every third message on a subscription of each."""
    client = quiet_client(broker.url)
    for topic in TOPICS:
        consumer = client.subscribe(topic, "jobs", ConsumerType.Shared)
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(MESSAGES):
            producer.send(b"%d" % number * 40)
        got = [consumer.receive(10_000) for _ in range(MESSAGES)]
        for message in got[::3]:
            consumer.acknowledge(message)
    client.close()


async def content(folder):
    """(entries by ledger, None for an unreadable entry; metadata nodes; whether the start reported damage)."""
    storage = await open_embedded(str(folder))
    report = storage.recovery
    noticed = bool(report.damaged_files or report.damaged_entries or report.missing_frames or report.torn_frame)
    ledgers = {}
    for ledger_id in await storage.ledgers.list_ledgers():
        info = await storage.ledgers.open_recover(ledger_id)
        bodies = []
        for entry in range(info.entries):
            try:
                slab = (await storage.ledgers.read(ledger_id, entry, entry, 1))[0]
                bodies.append(bytes(slab.body(entry - slab.first_entry_id)))
            except CorruptEntryError:
                noticed = True
                bodies.append(None)
        ledgers[ledger_id] = bodies
    nodes = {path: node[0] for path, node in storage.metadata._tree.nodes.items() if not path.startswith("/ledgers/")}
    assert (await storage.ledgers.create()).ledger_id > max(ledgers)
    await storage.close()
    return ledgers, nodes, noticed


def bits(folder, chance):
    """Places to flip: each file as often as any other, mostly at written bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "LOCK")
    for number in range(FLIPS):
        path = files[number % len(files)]
        data = path.read_bytes()
        used = len(data.rstrip(b"\0")) or len(data)
        yield path.relative_to(folder), chance.randrange((used if chance.random() < 0.9 else len(data)) * 8)


@pytest.mark.timeout(60 + FLIPS * 3)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_one_flipped_bit_costs_at_most_one_entry_and_is_reported(new_broker, tmp_path, how):
    broker = new_broker()
    fill(broker)
    with_confirmation = broker.data_dir / "journal"
    before = -1
    while before != (now := sum(path.stat().st_mtime_ns for path in with_confirmation.iterdir())):
        before = now  # the frame that confirms the last frame follows a second later
        asyncio.run(asyncio.sleep(1.6))
    getattr(broker, how)()
    pristine = pathlib.Path(shutil.copytree(broker.data_dir, tmp_path / "pristine"))
    shutil.copytree(pristine, tmp_path / "read")
    ledgers, nodes, noticed = asyncio.run(content(tmp_path / "read"))
    assert not noticed
    assert sum(map(len, ledgers.values())) >= len(TOPICS) * MESSAGES
    told = 0
    for name, bit in bits(pristine, random.Random(how)):
        folder = tmp_path / "flipped"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(pristine, folder)
        data = bytearray((folder / name).read_bytes())
        data[bit // 8] ^= 1 << (bit % 8)
        (folder / name).write_bytes(data)
        findings = verify_store(str(folder)).findings
        found, found_nodes, noticed = asyncio.run(content(folder))
        where = f"{name} bit {bit}"
        assert found_nodes == nodes, where
        assert {k: len(v) for k, v in found.items()} == {k: len(v) for k, v in ledgers.items()}, where
        lost = [(k, e) for k, v in ledgers.items() for e, body in enumerate(v) if found[k][e] != body]
        assert len(lost) <= 1, where
        assert all(found[k][e] is None for k, e in lost), f"{where}: bytes that no producer sent"
        assert not lost or (noticed and any(finding.severity == "damage" for finding in findings)), where
        assert findings or not str(name).startswith("metadata/"), f"{where}: not seen by verify"
        told += noticed
    assert told


@pytest.mark.timeout(180)
def test_metadata_that_are_gone_refuse_the_start_and_come_back_with_every_entry(new_broker):
    broker = new_broker()
    fill(broker)
    broker.stop()
    for path in (broker.data_dir / "metadata").iterdir():
        path.unlink()
    ledgers = sorted(path.name for path in (broker.data_dir / "ledgers").iterdir())
    arguments = [sys.executable, "-m", "magnetar"]
    refused = subprocess.run(
        [*arguments, "standalone", "--data-dir", str(broker.data_dir), "--set", "brokerServicePort=0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == cli.EXIT_METADATA
    assert "magnetar verify --repair metadata" in refused.stderr
    assert sorted(path.name for path in (broker.data_dir / "ledgers").iterdir()) == ledgers
    done = subprocess.run(
        [*arguments, "verify", "--repair", "metadata", str(broker.data_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == cli.EXIT_DAMAGED
    assert "magnetar-repair" in done.stdout
    broker.start()
    client = quiet_client(broker.url)
    for topic in TOPICS:
        reader = client.create_reader(topic, MessageId.earliest)
        assert [reader.read_next(10_000).data() for _ in range(MESSAGES)] == [b"%d" % k * 40 for k in range(MESSAGES)]
        again = client.subscribe(topic, "magnetar-repair", initial_position=InitialPosition.Earliest)
        assert again.receive(10_000).data() == b"0" * 40
        with pytest.raises(pulsar.Timeout):
            reader.read_next(300)
        client.create_producer(topic).send(b"more")
        assert reader.read_next(10_000).data() == b"more"
    client.close()
    assert broker.stop() == 0


@pytest.mark.parametrize("deduplication", ["true", "false"])
def test_statistics_of_a_topic_whose_last_ledger_was_deleted_are_answered(new_broker, deduplication):
    broker = new_broker(brokerDeduplicationEnabled=deduplication, autoSkipNonRecoverableData="true")
    topic = TOPICS[0]
    fill(broker)
    broker.unload(topic)
    client = quiet_client(broker.url)
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"of the last ledger")
    client.close()
    path = topic.replace("://", "/")
    last = json.loads(broker.admin("GET", f"/admin/v2/{path}/internalStats"))["ledgers"][-1]["ledgerId"]
    assert broker.stop() == 0
    (deleted,) = (file for file in (broker.data_dir / "ledgers").iterdir() if int(file.stem) == last)
    deleted.unlink()
    broker.start()
    precise = "stats?getPreciseBacklog=true&getEarliestTimeInBacklog=true"
    for view in (precise, "internalStats", "internal-info", "subscriptions"):
        json.loads(broker.admin("GET", f"/admin/v2/{path}/{view}"))  # an HTTP status of an error raises
    client = quiet_client(broker.url)
    consumer = client.subscribe(topic, "jobs", ConsumerType.Shared)
    producer = client.create_producer(topic)
    producer.send(b"of a new ledger")
    got = [consumer.receive(10_000).data() for _ in range(MESSAGES - len(range(0, MESSAGES, 3)) + 1)]
    assert got[-1] == b"of a new ledger"
    client.close()
    assert broker.stop() == 0
